//! Builds the read-only views. Reads everything; never on the decision path.

use std::collections::BTreeMap;

use crate::engine::Engine;
use crate::id::{KeyId, PoolId, TrafficId};
use crate::policy::FairShare;
use crate::pool::Pool;
use crate::set::SetId;
use crate::snapshot::{KeyView, LeaseView, MemberView, PoolView, Snapshot, Totals, TrafficView};
use crate::time::Instant;

#[derive(Default)]
struct Tally {
    in_flight: u32,
    parked: u32,
    oldest_parked: Option<Instant>,
    /// (in flight, parked).
    keys: BTreeMap<KeyId, (u32, u32)>,
}

impl Engine {
    /// The whole engine at this moment.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut tallies: BTreeMap<PoolId, Tally> = BTreeMap::new();
        for lease in self.leases.values() {
            let tally = tallies.entry(lease.pool).or_default();
            tally.in_flight += 1;
            if let Some(key) = lease.holder {
                tally.keys.entry(key).or_default().0 += 1;
            }
        }
        for parked in self.parked.values() {
            let tally = tallies.entry(parked.ask.pool).or_default();
            tally.parked += 1;
            // In order of arrival: the first seen is the oldest.
            tally.oldest_parked.get_or_insert(parked.ask.arrived);
            if let Some(key) = parked.ask.holder {
                tally.keys.entry(key).or_default().1 += 1;
            }
        }
        let view = |id: &PoolId| view_of(&self.pools[id.index()], tallies.remove(id).unwrap_or_default());
        Snapshot {
            node_counted: self.node_counted(),
            exempt_total: self.exempt,
            bypass: self.bypass,
            level: crate::io::Level::Normal,
            orgs: Vec::new(),
            overrides: Vec::new(),
            pools: self.order.iter().map(view).collect(),
            totals: self.totals(),
        }
    }

    /// The live leases, by id.
    #[must_use]
    pub fn leases(&self) -> Vec<LeaseView> {
        let view = |(id, lease): (&crate::id::LeaseId, &crate::lease::Lease)| LeaseView {
            lease: *id,
            session: lease.session,
            pool: lease.pool,
            key: lease.holder,
            org: None,
            traffic: None,
            priority: crate::io::Priority::Normal,
            child: false,
            suspended: false,
            client_gone: false,
            member: lease.member,
            kind: lease.kind,
            granted: lease.granted,
            expires: lease.expires,
            moved: lease.moved,
        };
        self.leases.iter().map(view).collect()
    }

    fn totals(&self) -> Totals {
        let pools = || self.order.iter().map(|id| &self.pools[id.index()]);
        let mut shed: Vec<_> =
            pools().flat_map(|pool| pool.counters.shed.iter().map(|(reason, n)| (pool.id, *reason, *n))).collect();
        let mut would_have: Vec<_> = pools()
            .flat_map(|pool| pool.counters.would_have.iter().map(|(reason, (p, r))| (pool.id, *reason, *p, *r)))
            .collect();
        shed.sort_unstable();
        would_have.sort_unstable();
        Totals {
            granted: pools().map(|pool| pool.counters.granted).collect(),
            parked: pools().map(|pool| pool.counters.parked).collect(),
            shed,
            would_have,
            ..self.totals.clone()
        }
    }
}

fn view_of(pool: &Pool, tally: Tally) -> PoolView {
    let everybody = pool.sets.get(SetId::EVERYBODY);
    let members = pool.order.iter().map(|id| {
        let member = &pool.members[id.index()];
        MemberView {
            member: *id,
            name: member.policy.name.clone(),
            slots: member.policy.slots,
            reserve: member.policy.reserve,
            in_flight: member.load.total(),
            state: member.state(),
        }
    });
    let keys = tally.keys.iter().map(|(key, (in_flight, parked))| KeyView {
        key: *key,
        org: None,
        weight: 1,
        floor: 0,
        cap: 0,
        in_flight: *in_flight,
        parked: *parked,
        share: match pool.policy.fair_share {
            FairShare::Off => None,
            FairShare::EqualSplit { .. } | FairShare::MaxMin { .. } => {
                Some(pool.standing(SetId::EVERYBODY, Some(*key)).share)
            }
        },
    });
    PoolView {
        pool: pool.id,
        name: pool.policy.name.clone(),
        capacity: everybody.capacity,
        in_flight: tally.in_flight,
        parked: tally.parked,
        oldest_parked: tally.oldest_parked,
        fair_share: pool.policy.fair_share,
        mode: pool.policy.mode,
        congested: pool.standing(SetId::EVERYBODY, None).congested,
        headroom: 0,
        oversubscribed: false,
        active_keys: everybody.load.active_keys(),
        members: members.collect(),
        keys: keys.collect(),
        orgs: Vec::new(),
        traffic: pool.traffic.order.iter().filter_map(|id| Some(traffic_of(*id, pool.traffic.get(*id)?))).collect(),
    }
}

fn traffic_of(id: TrafficId, kind: &crate::traffic::Kind) -> TrafficView {
    TrafficView { traffic: id, name: kind.policy.name.clone(), slots: kind.policy.slots, in_flight: kind.in_flight }
}
