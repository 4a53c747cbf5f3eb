//! Whether a request can go now, and on which member.

use super::Answer;
use super::Member;
use super::Model;
use super::Parked;
use super::Task;
use super::index;
use governor_engine::id::{MemberId, PoolId};
use governor_engine::io::{Kind, Reason};
use governor_engine::policy::{FairShare, Mode};

impl Model {
    pub(super) fn judge(&self, w: &Parked) -> Answer {
        let pool = &self.pools[index(w.pool.0)];
        let is_move = matches!(w.task, Task::Move(_));
        if Self::is_ordinary(w) && pool.policy.mode == Mode::Enforce && !self.standing(w).admitted {
            return Answer::Not(Reason::FairShare, None);
        }
        let held_back = w.kind == Kind::Ordinary && !is_move;
        if held_back && self.sub_capacity(w).is_some_and(|(running, slots)| running >= slots) {
            return Answer::Not(Reason::SubCapacity, None);
        }
        if self.is_unlimited(w.pool) {
            return Answer::Go(None);
        }
        let among = self.resolve(w.pool, &w.candidates);
        if let Some(member) = self.best_member(w, &among) {
            return Answer::Go(Some(member));
        }
        let usable: Vec<&Member> =
            among.iter().map(|m| &pool.members[index(m.0)]).filter(|m| Self::usable(m)).collect();
        if !usable.is_empty() && usable.iter().all(|m| Self::refuses(m)) {
            let back = usable.iter().filter_map(|m| m.rate_limited.max(m.overloaded).max(m.ordered)).min();
            let last = self.now.after(pool.policy.max_cooldown);
            return Answer::Not(Reason::AllCooling, back.map(|back| back.min(last)));
        }
        Answer::Not(Reason::PoolExhausted, None)
    }

    fn best_member(&self, w: &Parked, among: &[MemberId]) -> Option<MemberId> {
        let pool = &self.pools[index(w.pool.0)];
        if Self::is_ordinary(w) {
            let counted = self.counted_over(w.pool, &w.candidates);
            let ordinary = counted.iter().filter(|l| l.kind == Kind::Ordinary && !l.child).count();
            let c = index(self.capacity(w.pool, &w.candidates));
            let max_min = matches!(pool.policy.fair_share, FairShare::MaxMin { .. });
            let shared = w.who.key.is_some() && max_min && pool.policy.mode == Mode::Enforce;
            if ordinary >= c || (shared && counted.len() >= c) {
                return None;
            }
        }
        let room = |m: MemberId| {
            let member = &pool.members[index(m.0)];
            let whole = w.kind == Kind::Reattach || w.child;
            let slots = if whole { member.policy.slots } else { Self::ordinary_slots(member) };
            self.open(w.pool, m) && self.on_member(w.pool, m) < slots
        };
        if let Some(sticky) = w.sticky.filter(|m| among.contains(m) && room(*m)) {
            return Some(sticky);
        }
        self.least_loaded(w.pool, among.iter().copied().filter(|m| room(*m)).collect())
    }

    fn least_loaded(&self, pool: PoolId, among: Vec<MemberId>) -> Option<MemberId> {
        let mut best: Option<MemberId> = None;
        for m in among {
            let load = |m: MemberId| {
                let slots = Self::ordinary_slots(&self.pools[index(pool.0)].members[index(m.0)]).max(1);
                (self.on_member(pool, m), slots)
            };
            let better = best.is_none_or(|b| {
                let ((x, xs), (y, ys)) = (load(m), load(b));
                x * ys < y * xs || (x * ys == y * xs && m < b)
            });
            if better {
                best = Some(m);
            }
        }
        best
    }

    pub(super) fn bypass_member(&self, w: &Parked) -> Option<MemberId> {
        let pool = &self.pools[index(w.pool.0)];
        if self.is_unlimited(w.pool) {
            return None;
        }
        let among = self.resolve(w.pool, &w.candidates);
        let present: Vec<MemberId> = among.iter().copied().filter(|m| pool.members[index(m.0)].present).collect();
        let open: Vec<MemberId> = present.iter().copied().filter(|m| self.open(w.pool, *m)).collect();
        self.best_member(w, &among)
            .or_else(|| self.least_loaded(w.pool, open))
            .or_else(|| self.least_loaded(w.pool, present))
    }
}
