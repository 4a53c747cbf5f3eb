//! A new policy, all or nothing. Pools and members keep their index by name; no lease is cut but those of a pool that
//! is no longer there. What keys and orgs are entitled to changes in the same step.

use crate::engine::Engine;
use crate::id::{LeaseId, PoolId};
use crate::io::{RejectReason, RevokeReason};
use crate::park::ParkId;
use crate::policy::Policy;
use crate::pool::Pool;
use crate::sets::Ledger;
use crate::slots::Slot;

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
        self.parties.classes.obey(policy.classes, self.node.default_class.as_deref());
        self.parties.settings.obey(&policy.keys, &policy.orgs);
        self.parties.entitle_all();
        let mut gone: Vec<PoolId> = std::mem::take(&mut self.order);
        for wanted in policy.pools {
            let known = self.pools.iter().position(|pool| pool.policy.name == wanted.name);
            let index = known.unwrap_or(self.pools.len());
            let id = PoolId(u32::try_from(index).expect("pools are fewer than names fit in memory"));
            if known.is_none() {
                self.pools.push(Pool::new(id, &wanted.name));
                self.pool_timers.push(None);
            }
            let ledger = Ledger { leases: &self.leases, parked: &self.parked, parties: &self.parties };
            self.pools[index].obey(wanted, self.now, ledger);
            gone.retain(|pool| *pool != id);
            self.order.push(id);
            self.wake(id);
        }
        gone.sort_unstable();
        for pool in gone {
            self.close_pool(pool);
        }
        self.order_queues();
    }

    /// A pool left the policy: its requests can never be valid again, its leases count nowhere.
    fn close_pool(&mut self, id: PoolId) {
        // What it counts is counted on the new terms before it is given back.
        let ledger = Ledger { leases: &self.leases, parked: &self.parked, parties: &self.parties };
        let pool = &mut self.pools[id.index()];
        pool.rebuild(ledger);
        pool.present = false;
        let of_pool = self.leases.iter().map(|(_, lease)| lease).filter(|lease| lease.pool == id);
        let mut leases: Vec<LeaseId> = of_pool.map(|lease| lease.id).collect();
        leases.sort_unstable();
        for lease in leases {
            if let Some(ended) = self.give_back(lease) {
                self.totals.revoked += 1;
                self.order_revoke(ended.session, lease, RevokeReason::PoolGone);
            }
        }
        let of_pool = self.parked.iter().filter(|(_, parked)| parked.ask.pool == id);
        let mut parked: Vec<(ParkId, Slot)> = of_pool.map(|(slot, parked)| (parked.id, slot)).collect();
        parked.sort_unstable();
        for (_, slot) in parked {
            self.reject_parked(slot, RejectReason::UnknownPool);
        }
    }
}
