//! A new policy, all or nothing. Pools and members keep their index by name; no lease is cut but those of a pool that
//! is no longer there. What keys and orgs are entitled to changes in the same step.

use crate::collections::slots::Slot;
use crate::engine::Engine;
use crate::fairness::sets::Ledger;
use crate::id::{LeaseId, PoolId};
use crate::identity::party::Name;
use crate::io::{EndCause, RejectReason};
use crate::policy::{Anonymous, Policy};
use crate::pools::pool::Pool;
use crate::waiting::park::{Door, ParkId};

impl Engine {
    pub(in crate::engine) fn change_policy(&mut self, policy: Policy) {
        if policy.check().is_err() {
            self.totals.policies_refused += 1;
            return;
        }
        self.obey(policy);
    }

    /// Takes a policy that was checked.
    pub(in crate::engine) fn obey(&mut self, policy: Policy) {
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
            if self.pools[index].policy.anonymous != wanted.anonymous {
                self.identify_again(id, wanted.anonymous);
            }
            let ledger = Ledger { leases: &self.leases, parked: &self.parked, parties: &self.parties };
            self.pools[index].obey(wanted, self.now, ledger);
            self.announce_members(id, None);
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

    /// Requests of a pool that name no key get the identity they share, or lose it. The caller rebuilds the pool's counts.
    fn identify_again(&mut self, id: PoolId, rule: Anonymous) {
        let name = Name::of_anonymous(rule, id);
        let of_pool = self.leases.iter().filter(|(_, lease)| lease.pool == id);
        let leases: Vec<Slot> =
            of_pool.filter(|(_, lease)| self.parties.key_of(lease.holder).is_none()).map(|(slot, _)| slot).collect();
        for slot in leases {
            let (before, counts) = (self.leases[slot].holder, !self.leases[slot].suspended);
            self.leases[slot].holder = self.parties.rename(before, name, counts);
        }
        let of_pool = self.parked.iter().filter(|(_, parked)| parked.ask.pool == id);
        let parked: Vec<Slot> = of_pool
            .filter(|(_, parked)| self.parties.key_of(parked.ask.holder).is_none())
            .map(|(slot, _)| slot)
            .collect();
        for slot in parked {
            let ask = &mut self.parked[slot].ask;
            self.pools[id.index()].count_parked_out(ask.holder);
            ask.holder = self.parties.rename(ask.holder, name, !ask.moves());
            self.pools[id.index()].count_parked_in(ask.holder);
            ask.door = match (ask.door, ask.holder.key) {
                (Door::Keyed, None) => Door::Keyless,
                (Door::Keyless, Some(_)) => Door::Keyed,
                (door, _) => door,
            };
        }
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
            if self.give_back(lease, EndCause::PoolGone).is_some() {
                self.totals.revoked += 1;
            }
        }
        let of_pool = self.parked.iter().filter(|(_, parked)| parked.ask.pool == id);
        let mut parked: Vec<(ParkId, Slot)> = of_pool.map(|(slot, parked)| (parked.id, slot)).collect();
        parked.sort_unstable();
        for (_, slot) in parked {
            self.reject_parked(slot, RejectReason::UnknownPool);
        }
        self.announce_members(id, None);
    }
}
