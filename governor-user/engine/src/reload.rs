//! A new policy, all or nothing. Pools and members keep their index by name; no lease is cut but those of a pool that
//! is no longer there.

use crate::engine::Engine;
use crate::id::{LeaseId, PoolId};
use crate::io::{RejectReason, RevokeReason};
use crate::park::ParkId;
use crate::policy::Policy;
use crate::pool::Pool;

impl Engine {
    pub(crate) fn change_policy(&mut self, policy: Policy) {
        if policy.check().is_err() {
            self.totals.policies_refused += 1;
            return;
        }
        self.obey(policy);
    }

    /// Takes a policy that was checked.
    pub(crate) fn obey(&mut self, policy: Policy) {
        self.node = policy.node;
        self.classes.obey(policy.classes);
        let mut gone: Vec<PoolId> = std::mem::take(&mut self.order);
        for wanted in policy.pools {
            let known = self.pools.iter().position(|pool| pool.policy.name == wanted.name);
            let index = known.unwrap_or(self.pools.len());
            let id = PoolId(u32::try_from(index).expect("pools are fewer than names fit in memory"));
            match self.pools.get_mut(index) {
                Some(pool) => pool.obey(wanted, self.now),
                None => {
                    self.pools.push(Pool::new(id, wanted, self.now));
                    self.pool_timers.push(None);
                }
            }
            gone.retain(|pool| *pool != id);
            self.order.push(id);
            self.wake(id);
        }
        gone.sort_unstable();
        for pool in gone {
            self.close_pool(pool);
        }
    }

    /// A pool left the policy: its requests can never be valid again, its leases count nowhere.
    fn close_pool(&mut self, id: PoolId) {
        self.pools[id.index()].present = false;
        let leases: Vec<LeaseId> =
            self.leases.iter().filter(|(_, lease)| lease.pool == id).map(|(lease, _)| *lease).collect();
        for lease in leases {
            if let Some(ended) = self.give_back(lease) {
                self.totals.revoked += 1;
                self.order_revoke(ended.session, lease, RevokeReason::PoolGone);
            }
        }
        let parked: Vec<ParkId> =
            self.parked.iter().filter(|(_, parked)| parked.ask.pool == id).map(|(park, _)| *park).collect();
        for park in parked {
            if let Some(parked) = self.unpark(park) {
                self.reject(parked.ask.session, parked.ask.request, RejectReason::UnknownPool);
                self.pools[id.index()].sets.release(parked.ask.set);
            }
        }
    }
}
