//! Waiting: who may, and who is next.

use governor_engine::id::PoolId;
use governor_engine::io::{Origin, Output, Reason};
use governor_engine::time::Instant;

use super::{Answer, Model, Parked, index};

impl Model {
    pub(super) fn deadline_is_hopeless(&self, w: &Parked) -> bool {
        let typical = self.pools[index(w.pool.0)].typical;
        w.deadline.zip(typical).is_some_and(|(deadline, typical)| self.now.after(typical) > deadline)
    }

    /// Why it may not wait: (reason, origin if it differs from the reason's own, status).
    pub(super) fn may_not_wait(
        &self,
        w: &Parked,
        why: Reason,
        back: Option<Instant>,
    ) -> Option<(Reason, Option<Origin>)> {
        let pool = &self.pools[index(w.pool.0)];
        if w.until <= self.now || back.is_some_and(|at| at > w.until) || self.deadline_is_hopeless(w) {
            return Some((why, None));
        }
        if w.lease.is_some() {
            return None;
        }
        let here = self.parked.iter().filter(|p| p.pool == w.pool);
        let of_key = here.clone().filter(|p| p.key == w.key).count();
        let room: u32 = pool.members.iter().filter(|m| Self::usable(m)).map(Self::ordinary_slots).sum();
        if w.key.is_some() && of_key >= index(pool.policy.max_parked_per_key) {
            return Some((Reason::KeyQueueFull, None));
        }
        if here.count() >= index(room.max(pool.policy.max_parked_per_key)) {
            return Some((Reason::QueueFull, Some(Origin::Pool)));
        }
        if self.parked.len() >= index(self.node.max_parked) {
            return Some((Reason::QueueFull, Some(Origin::Node)));
        }
        None
    }

    pub(super) fn park(&mut self, mut w: Parked) {
        w.order = self.next_park;
        self.next_park += 1;
        self.out.push(Output::Parked { session: w.session, request: w.request });
        self.parked.push(w);
    }

    /// Grants while anybody who waits can go; pools in order of their index.
    pub(super) fn serve_all(&mut self) {
        for p in 0..self.pools.len() {
            let id = PoolId(u32::try_from(p).unwrap());
            loop {
                let able = |w: &&Parked| w.pool == id && (self.bypass || matches!(self.judge(w), Answer::Go(_)));
                let rank = |w: &&Parked| match w.lease {
                    Some(_) => (0, 0, w.order),
                    None => {
                        let counted = self.counted_over(id, &w.candidates);
                        (1, counted.iter().filter(|l| l.key == w.key).count(), w.order)
                    }
                };
                let Some(next) = self.parked.iter().filter(able).min_by_key(rank).map(|w| w.order) else { break };
                let at = self.parked.iter().position(|w| w.order == next).unwrap();
                let w = self.parked.remove(at);
                if self.bypass {
                    let member = self.bypass_member(&w);
                    self.grant(&w, member);
                } else if self.deadline_is_hopeless(&w) {
                    self.shed(&w, Reason::PoolExhausted, None, None);
                } else if let Answer::Go(member) = self.judge(&w) {
                    if !w.recorded {
                        self.observe(&w);
                    }
                    self.grant(&w, member);
                }
            }
        }
    }
}
