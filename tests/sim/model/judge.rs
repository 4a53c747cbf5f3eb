//! Whether a request can go now, and on which member.

use governor_engine::id::{MemberId, PoolId};
use governor_engine::io::{Kind, Reason};
use governor_engine::policy::{FairShare, Mode};

use super::{Answer, Member, Model, Parked, index};

impl Model {
    pub(super) fn judge(&self, w: &Parked) -> Answer {
        let pool = &self.pools[index(w.pool.0)];
        let is_move = w.lease.is_some();
        if w.kind == Kind::Ordinary && !is_move && pool.policy.mode == Mode::Enforce && !self.share(w).5 {
            return Answer::Not(Reason::FairShare, None);
        }
        if pool.members.iter().filter(|m| m.present).all(|m| m.policy.slots == 0) {
            return Answer::Go(None);
        }
        let among = self.resolve(w.pool, &w.candidates);
        if let Some(member) = self.best_member(w, &among, is_move) {
            return Answer::Go(Some(member));
        }
        let usable: Vec<&Member> =
            among.iter().map(|m| &pool.members[index(m.0)]).filter(|m| Self::usable(m)).collect();
        if !usable.is_empty() && usable.iter().all(|m| m.rate_limited.is_some()) {
            let back = usable.iter().filter_map(|m| m.rate_limited.max(m.overloaded)).min();
            return Answer::Not(Reason::AllCooling, back);
        }
        Answer::Not(Reason::PoolExhausted, None)
    }

    pub(super) fn best_member(&self, w: &Parked, among: &[MemberId], is_move: bool) -> Option<MemberId> {
        let pool = &self.pools[index(w.pool.0)];
        if w.kind == Kind::Ordinary && !is_move {
            let ordinary = self.counted_over(w.pool, &w.candidates).iter().filter(|l| l.kind == Kind::Ordinary).count();
            let (all, c) = (self.counted_over(w.pool, &w.candidates).len(), self.capacity(w.pool, &w.candidates));
            let max_min = matches!(pool.policy.fair_share, FairShare::MaxMin { .. });
            if u32::try_from(ordinary).unwrap() >= c
                || (w.key.is_some() && max_min && pool.policy.mode == Mode::Enforce && all >= index(c))
            {
                return None;
            }
        }
        let room = |m: MemberId| {
            let member = &pool.members[index(m.0)];
            let slots = if w.kind == Kind::Reattach { member.policy.slots } else { Self::ordinary_slots(member) };
            self.open(w.pool, m) && self.on_member(w.pool, m) < slots
        };
        if let Some(sticky) = w.sticky.filter(|m| among.contains(m) && room(*m)) {
            return Some(sticky);
        }
        self.least_loaded(w.pool, among.iter().copied().filter(|m| room(*m)).collect())
    }

    pub(super) fn least_loaded(&self, pool: PoolId, among: Vec<MemberId>) -> Option<MemberId> {
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
        if pool.members.iter().filter(|m| m.present).all(|m| m.policy.slots == 0) {
            return None;
        }
        let among = self.resolve(w.pool, &w.candidates);
        let present: Vec<MemberId> = among.iter().copied().filter(|m| pool.members[index(m.0)].present).collect();
        let open: Vec<MemberId> = present.iter().copied().filter(|m| self.open(w.pool, *m)).collect();
        self.best_member(w, &among, w.lease.is_some())
            .or_else(|| self.least_loaded(w.pool, open))
            .or_else(|| self.least_loaded(w.pool, present))
    }
}
