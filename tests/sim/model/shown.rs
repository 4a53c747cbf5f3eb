//! What an operator is shown, counted once more.

use super::Lease;
use super::Model;
use super::Parked;
use super::Unit;
use super::Who;
use super::index;
use governor_engine::id::{KeyId, LeaseId, MemberId, OrgId, PoolId, SessionId, TrafficId};
use governor_engine::policy::FairShare;
use governor_engine::snapshot::{LeaseView, Snapshot};
use governor_engine::time::Instant;
use std::collections::BTreeMap;

/// What both must show alike.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    node_counted: u32,
    leases: Vec<ShownLease>,
    /// Org, counted, cap.
    orgs: Vec<(OrgId, u32, u32)>,
    pools: Vec<ShownPool>,
}

type ShownLease = (LeaseId, SessionId, Option<MemberId>, [bool; 3], [Instant; 2]);

#[derive(Debug, PartialEq, Eq)]
struct ShownPool {
    pool: PoolId,
    capacity: u32,
    in_flight: u32,
    parked: u32,
    congested: bool,
    oversubscribed: bool,
    members: BTreeMap<MemberId, u32>,
    /// In flight, parked, weight, floor, cap; and the share.
    keys: BTreeMap<Option<KeyId>, ([u32; 5], Option<u32>)>,
    orgs: BTreeMap<OrgId, (u32, u32)>,
    traffic: BTreeMap<TrafficId, u32>,
}

impl Shown {
    /// Of the engine.
    pub(crate) fn of(snapshot: Snapshot, leases: Vec<LeaseView>) -> Self {
        let lease = |l: LeaseView| {
            (l.lease, l.session, l.member, [l.child, l.suspended, l.client_gone], [l.granted, l.expires])
        };
        let pools = snapshot.pools.into_iter().map(|pool| ShownPool {
            pool: pool.pool,
            capacity: pool.capacity,
            in_flight: pool.in_flight,
            parked: pool.parked,
            congested: pool.congested,
            oversubscribed: pool.oversubscribed,
            members: pool.members.iter().map(|member| (member.member, member.in_flight)).collect(),
            keys: pool
                .keys
                .iter()
                .map(|key| (key.key, ([key.in_flight, key.parked, key.weight, key.floor, key.cap], key.share)))
                .collect(),
            orgs: pool.orgs.iter().map(|org| (org.org, (org.in_flight, org.parked))).collect(),
            traffic: pool.traffic.iter().map(|kind| (kind.traffic, kind.in_flight)).collect(),
        });
        let mut pools: Vec<_> = pools.collect();
        pools.sort_by_key(|pool| pool.pool);
        Self {
            node_counted: snapshot.node_counted,
            leases: leases.into_iter().map(lease).collect(),
            orgs: snapshot.orgs.into_iter().map(|org| (org.org, org.counted, org.cap)).collect(),
            pools,
        }
    }
}

impl Model {
    pub(crate) fn shown(&self) -> Shown {
        let lease = |l: &Lease| {
            let said = [l.child, l.suspended, l.client_gone];
            (l.id, l.session, l.member, said, [l.granted, Self::lease_end(l).0])
        };
        let mut leases: Vec<_> = self.leases.iter().map(lease).collect();
        leases.sort();
        let known = self.leases.iter().map(|l| l.who).chain(self.parked.iter().map(|w| w.who));
        let mut orgs: Vec<OrgId> = known.filter_map(|who| who.org).collect();
        orgs.sort();
        orgs.dedup();
        let org = |org: OrgId| {
            let who = Who { org: Some(org), key: None };
            let cap = self.org_cap(org).unwrap_or_else(|| self.ceiling(who));
            (org, self.counted_where(|who| who.org == Some(org)), cap)
        };
        let pools = (0..self.pools.len()).filter(|p| self.pools[*p].present);
        Shown {
            node_counted: self.counted(),
            leases,
            orgs: orgs.into_iter().map(org).collect(),
            pools: pools.map(|p| self.shown_pool(PoolId(u32::try_from(p).unwrap()))).collect(),
        }
    }

    fn shown_pool(&self, pool: PoolId) -> ShownPool {
        let state = &self.pools[index(pool.0)];
        // Oldest first, what runs before what waits: the first says what org a key is of.
        let mut running: Vec<&Lease> = self.running().filter(|l| l.pool == pool).collect();
        running.sort_by_key(|l| l.id);
        let mut waiting: Vec<&Parked> = self.parked.iter().filter(|w| w.pool == pool).collect();
        waiting.sort_by_key(|w| w.order);
        let (mut keys, mut orgs) = (BTreeMap::new(), BTreeMap::new());
        for (who, held) in running.iter().map(|l| (l.who, (1, 0))).chain(waiting.iter().map(|w| (w.who, (0, 1)))) {
            let (_, sum): &mut (Who, (u32, u32)) = keys.entry(who.named()).or_insert((who, (0, 0)));
            *sum = (sum.0 + held.0, sum.1 + held.1);
            if let Some(org) = who.org {
                let sum: &mut (u32, u32) = orgs.entry(org).or_default();
                *sum = (sum.0 + held.0, sum.1 + held.1);
            }
        }
        let key = |(key, (who, (in_flight, parked))): (Option<KeyId>, (Who, (u32, u32)))| {
            let Some(id) = who.key else { return (key, ([in_flight, parked, 1, 0, 0], None)) };
            let (unit, in_org) = (Unit::Key(id), who.org.is_some());
            let share =
                (state.policy.fair_share != FairShare::Off).then(|| self.standing(&Parked::any(pool, who)).share);
            let (weight, floor) = (self.weight(unit, in_org), self.floor(unit, in_org));
            (key, ([in_flight, parked, weight, floor, self.key_cap(id).unwrap_or(0)], share))
        };
        let members = (0..state.members.len()).filter(|m| state.members[*m].present);
        let members = members.map(|m| MemberId(u32::try_from(m).unwrap()));
        let kinds = (0..state.traffic.len()).map(|t| TrafficId(u32::try_from(t).unwrap()));
        let kinds = kinds.filter(|t| self.known_traffic(pool, Some(*t)).is_some());
        let of_kind = |t| running.iter().filter(|l| l.traffic == Some(t)).count();
        let nobody = Parked::any(pool, Who { key: None, org: None });
        ShownPool {
            pool,
            congested: self.is_congested(&nobody),
            oversubscribed: self.is_oversubscribed(&nobody),
            capacity: self.capacity(pool, &None),
            in_flight: u32::try_from(running.len()).unwrap(),
            parked: u32::try_from(waiting.len()).unwrap(),
            members: members.map(|m| (m, self.on_member(pool, m))).collect(),
            keys: keys.into_iter().map(key).collect(),
            orgs,
            traffic: kinds.map(|t| (t, u32::try_from(of_kind(t)).unwrap())).collect(),
        }
    }
}
