//! Time: what falls due, in which order, and what then happens.

use super::Answer;
use super::Lease;
use super::Model;
use super::index;
use governor_engine::id::{KeyId, LeaseId, PoolId, SessionId};
use governor_engine::io::{EndCause, Reason, WaitEnd};
use governor_engine::time::Instant;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    Lease(LeaseId),
    Session(SessionId),
    Pool(PoolId),
    Override(KeyId),
    Park(u64),
}

impl Model {
    pub(super) fn due(&self) -> Vec<(Instant, Due)> {
        let mut due = vec![];
        due.extend(self.leases.iter().map(|l| (Self::lease_end(l).0, Due::Lease(l.id))));
        due.extend(self.sessions.iter().filter_map(|(s, grace)| Some(((*grace)?, Due::Session(*s)))));
        for (p, pool) in self.pools.iter().enumerate() {
            let cooling = pool.members.iter().flat_map(|m| [m.rate_limited, m.overloaded, m.ordered]).flatten().min();
            due.extend(cooling.map(|at| (at, Due::Pool(PoolId(u32::try_from(p).unwrap())))));
        }
        due.extend(self.overrides.iter().filter_map(|(key, over)| Some((over.until?, Due::Override(*key)))));
        due.extend(self.parked.iter().map(|w| (w.until, Due::Park(w.order))));
        due
    }

    /// When a lease ends by itself, and why.
    pub(super) fn lease_end(lease: &Lease) -> (Instant, EndCause) {
        match lease.reclaimed {
            Some(at) if at <= lease.expires => (at, EndCause::Reclaimed),
            _ => (lease.expires, EndCause::Expired),
        }
    }

    pub(super) fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
        while let Some((_, due)) = self.due().into_iter().filter(|(at, _)| *at <= self.now).min() {
            match due {
                Due::Lease(id) => {
                    let lease = self.leases.iter().find(|l| l.id == id).unwrap();
                    let cause = Self::lease_end(lease).1;
                    self.end_lease(id, cause);
                    if cause == EndCause::Reclaimed {
                        self.revoked.push(id);
                    }
                }
                Due::Session(session) => self.session_gone(session),
                Due::Override(key) => drop(self.overrides.remove(&key)),
                Due::Pool(pool) => {
                    self.forget_past_cooldowns(pool);
                    self.say_members(pool, None);
                }
                Due::Park(order) => {
                    let at = self.parked.iter().position(|w| w.order == order).unwrap();
                    let waiter = self.parked.remove(at);
                    let (reason, back) = match self.judge(&waiter) {
                        Answer::Go(_) => (Reason::PoolExhausted, None),
                        Answer::Not(reason, back) => (reason, back),
                    };
                    self.say_unparked(&waiter, WaitEnd::Refused);
                    self.shed(&waiter, reason, None, back);
                }
            }
            self.serve_all();
        }
    }

    pub(super) fn forget_past_cooldowns(&mut self, pool: PoolId) {
        let now = self.now;
        for member in &mut self.pools[index(pool.0)].members {
            member.rate_limited = member.rate_limited.filter(|at| *at > now);
            member.overloaded = member.overloaded.filter(|at| *at > now);
            member.ordered = member.ordered.filter(|at| *at > now);
        }
    }
}
