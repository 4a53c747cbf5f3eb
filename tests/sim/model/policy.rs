//! A new policy, as a whole.

use governor_engine::id::{LeaseId, PoolId};
use governor_engine::io::{RejectReason, RevokeReason};
use governor_engine::policy::Policy;
use governor_engine::time::Instant;

use super::{Member, Model, Parked, Pool};

impl Model {
    pub(super) fn obey(&mut self, policy: Policy) {
        self.node = policy.node;
        for pool in &mut self.pools {
            pool.present = false;
        }
        let now = self.now;
        for wanted in policy.pools {
            let at = self.pools.iter().position(|p| p.policy.name == wanted.name).unwrap_or_else(|| {
                self.pools.push(Pool {
                    policy: wanted.clone(),
                    present: true,
                    members: vec![],
                    ends: vec![],
                    tail: Instant::ZERO,
                    typical: None,
                });
                self.pools.len() - 1
            });
            let pool = &mut self.pools[at];
            pool.members.iter_mut().for_each(|m| m.present = false);
            for member in &wanted.members {
                match pool.members.iter_mut().find(|m| m.policy.name == member.name) {
                    Some(known) => (known.policy, known.present) = (member.clone(), true),
                    None => pool.members.push(Member {
                        policy: member.clone(),
                        present: true,
                        rate_limited: None,
                        overloaded: None,
                    }),
                }
            }
            (pool.policy, pool.present) = (wanted, true);
            for member in &mut pool.members {
                member.rate_limited = member.rate_limited.filter(|at| *at > now);
                member.overloaded = member.overloaded.filter(|at| *at > now);
            }
        }
        for p in (0..self.pools.len()).filter(|p| !self.pools[*p].present).collect::<Vec<_>>() {
            let id = PoolId(u32::try_from(p).unwrap());
            let mut held: Vec<LeaseId> = self.leases.iter().filter(|l| l.pool == id).map(|l| l.id).collect();
            held.sort();
            for lease in held {
                let ended = self.end_lease(lease).unwrap();
                self.say_revoke(ended.session, lease, RevokeReason::PoolGone);
            }
            let (gone, rest) = std::mem::take(&mut self.parked).into_iter().partition(|w| w.pool == id);
            self.parked = rest;
            for w in gone as Vec<Parked> {
                self.reject(w.session, w.request, RejectReason::UnknownPool);
            }
        }
    }
}
