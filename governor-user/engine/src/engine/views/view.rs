//! Builds the read-only views. Reads everything; never on the decision path.

use crate::engine::Engine;
use crate::id::SetId;
use crate::id::{KeyId, MemberId, OrgId, PoolId, TrafficId};
use crate::identity::party::{Holder, Name};
use crate::leases::lease::Lease;
use crate::members::member::Member;
use crate::policy::FairShare;
use crate::pools::pool::Pool;
use crate::snapshot::{
    KeyView, LeaseView, MemberView, OrgView, PoolFigures, PoolOrgView, PoolView, Snapshot, Totals, TrafficView,
};
use crate::time::Instant;
use std::collections::BTreeMap;

/// What is in flight and parked in one pool.
#[derive(Default)]
struct Tally {
    in_flight: u32,
    parked: u32,
    oldest_parked: Option<Instant>,
    /// `None`: those that name no key.
    keys: BTreeMap<Option<KeyId>, Held>,
    orgs: BTreeMap<OrgId, Held>,
}

#[derive(Clone, Copy)]
struct Held {
    holder: Holder,
    in_flight: u32,
    parked: u32,
}

impl Tally {
    /// What a key or org holds, its requests taken in the order of `add`.
    fn of(&mut self, holder: Holder, key: Option<KeyId>, org: Option<OrgId>, add: impl Fn(&mut Held)) {
        let none = Held { holder, in_flight: 0, parked: 0 };
        add(self.keys.entry(key).or_insert(none));
        org.into_iter().for_each(|org| add(self.orgs.entry(org).or_insert(none)));
    }
}

fn member_view(id: MemberId, member: &Member) -> MemberView {
    MemberView {
        member: id,
        name: member.policy.name.clone(),
        slots: member.policy.slots,
        reserve: member.policy.reserve,
        in_flight: member.in_flight,
        state: member.state(),
        cooling_until: member.cooling_until(),
        cooling: member.cooling_cause(),
        drained: member.is_drained(),
    }
}

impl Engine {
    /// The whole engine at this moment.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut tallies = self.tallies();
        let view = |id: &PoolId| self.pool_view(&self.pools[id.index()], tallies.remove(id).unwrap_or_default());
        Snapshot {
            node_counted: self.node_counted(),
            exempt_total: self.exempt,
            bypass: self.bypass,
            draining: self.draining,
            level: self.level,
            orgs: self.org_views(),
            overrides: self.parties.settings.overrides.iter().map(|(key, over)| (*key, *over)).collect(),
            pools: self.order.iter().map(view).collect(),
            totals: self.totals(),
        }
    }

    /// The figures of a pool, the same as in its view; `None` if there is no such pool.
    #[must_use]
    pub fn pool_figures(&self, pool: PoolId) -> Option<PoolFigures> {
        let pool = self.pools.get(pool.index())?;
        let everybody = pool.sets.get(SetId::EVERYBODY);
        // Those on members that take no requests count in no set.
        let apart = pool.members.iter().filter(|member| !member.open).map(|member| member.in_flight);
        let count = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
        let usable = || pool.order.iter().filter_map(|id| pool.member(*id)).filter(|member| member.usable());
        Some(PoolFigures {
            capacity: everybody.capacity,
            unlimited: pool.is_unlimited(),
            in_flight: apart.fold(everybody.total, u32::saturating_add),
            parked: pool.parked,
            congested: pool.standing(SetId::EVERYBODY, Holder::default(), &self.parties).congested,
            granted: pool.counters.granted,
            members: count(pool.order.len()),
            cooling: count(usable().filter(|member| !member.open).count()),
            usable: count(usable().count()),
            failing: count(usable().filter(|member| member.cooling_until().is_some()).count()),
            failures: pool.counters.failures,
            recoveries: pool.counters.recoveries,
            refused: pool.counters.refused(),
            refused_in_all: pool.counters.shed.values().sum(),
            ended: pool.counters.ended,
            held: pool.counters.held,
        })
    }

    /// Arrival of the oldest parked request of each pool that has one. Looks at every parked request.
    #[must_use]
    pub fn oldest_parked(&self) -> BTreeMap<PoolId, Instant> {
        let mut oldest: BTreeMap<PoolId, Instant> = BTreeMap::new();
        for (_, parked) in self.parked.iter() {
            let first = oldest.entry(parked.ask.pool).or_insert(parked.ask.arrived);
            *first = parked.ask.arrived.min(*first);
        }
        oldest
    }

    /// One member, the same as in its pool's view; `None` if it is not in the policy.
    #[must_use]
    pub fn member(&self, pool: PoolId, member: MemberId) -> Option<MemberView> {
        Some(member_view(member, self.pools.get(pool.index())?.present_member(member)?))
    }

    /// The live leases, by id.
    #[must_use]
    pub fn leases(&self) -> Vec<LeaseView> {
        self.leases_by_id().into_iter().map(|lease| self.lease_view(lease)).collect()
    }

    /// The live leases in the next `slots` slots of the lease table from slot `cursor` on, and the cursor to go on
    /// with; `None` when the walk is complete. A walk that starts at 0 visits every lease that lives throughout it
    /// exactly once, in bounded steps; leases granted or ended meanwhile may be missed.
    pub fn leases_from(&self, cursor: u32, slots: u32) -> (impl Iterator<Item = LeaseView>, Option<u32>) {
        let all = self.leases.end();
        let end = cursor.saturating_add(slots).min(all);
        let leases = (cursor..end).filter_map(|slot| self.leases.get(slot)).map(|lease| self.lease_view(lease));
        (leases, Some(end).filter(|end| *end < all))
    }

    fn lease_view(&self, lease: &Lease) -> LeaseView {
        LeaseView {
            lease: lease.id,
            session: lease.session,
            pool: lease.pool,
            key: self.parties.key_of(lease.holder),
            org: self.parties.org_of(lease.holder),
            class: self.parties.class_of(lease.holder),
            traffic: lease.traffic,
            priority: lease.priority,
            member: lease.member,
            kind: lease.kind,
            child: lease.child,
            suspended: lease.suspended,
            ends_with_client: lease.ends_with_client,
            client_gone: lease.client_gone,
            site: lease.site,
            granted: lease.granted,
            expires: lease.end(),
            moved: lease.moved.get(),
        }
    }

    fn leases_by_id(&self) -> Vec<&Lease> {
        let mut leases: Vec<_> = self.leases.iter().map(|(_, lease)| lease).collect();
        leases.sort_unstable_by_key(|lease| lease.id);
        leases
    }

    fn tallies(&self) -> BTreeMap<PoolId, Tally> {
        let mut tallies: BTreeMap<PoolId, Tally> = BTreeMap::new();
        for lease in self.leases_by_id().into_iter().filter(|lease| !lease.suspended) {
            let tally = tallies.entry(lease.pool).or_default();
            tally.in_flight += 1;
            let (key, org) = (self.parties.key_of(lease.holder), self.parties.org_of(lease.holder));
            tally.of(lease.holder, key, org, |held| held.in_flight += 1);
        }
        let mut parked: Vec<_> = self.parked.iter().map(|(_, parked)| parked).collect();
        parked.sort_unstable_by_key(|parked| parked.id);
        for parked in parked {
            let ask = &parked.ask;
            let tally = tallies.entry(ask.pool).or_default();
            tally.parked += 1;
            // In order of arrival: the first seen is the oldest.
            tally.oldest_parked.get_or_insert(ask.arrived);
            let (key, org) = (self.parties.key_of(ask.holder), self.parties.org_of(ask.holder));
            tally.of(ask.holder, key, org, |held| held.parked += 1);
        }
        tallies
    }

    fn org_views(&self) -> Vec<OrgView> {
        let view = |party: &crate::identity::party::Party| match party.name() {
            Name::Key(_) | Name::Anonymous(_) => None,
            Name::Org(org) => Some(OrgView {
                org,
                class: self.parties.classes.resolve(party.class),
                counted: party.counted,
                cap: self.cap_of(party),
                tier: self.tiers.holding(org, self.now),
            }),
        };
        let mut orgs: Vec<_> = self.parties.iter().filter_map(|(_, party)| view(party)).collect();
        orgs.sort_unstable_by_key(|org| org.org);
        orgs
    }

    fn pool_view(&self, pool: &Pool, tally: Tally) -> PoolView {
        let everybody = pool.sets.get(SetId::EVERYBODY);
        let standing = pool.standing(SetId::EVERYBODY, Holder::default(), &self.parties);
        let members = pool.order.iter().map(|id| member_view(*id, &pool.members[id.index()]));
        PoolView {
            pool: pool.id,
            name: pool.policy.name.clone(),
            capacity: everybody.capacity,
            unlimited: pool.is_unlimited(),
            in_flight: tally.in_flight,
            parked: tally.parked,
            oldest_parked: tally.oldest_parked,
            fair_share: pool.policy.fair_share,
            mode: pool.policy.mode,
            congested: standing.congested,
            headroom: standing.headroom,
            oversubscribed: standing.oversubscribed,
            active_keys: everybody.active_keys,
            members: members.collect(),
            keys: tally.keys.iter().map(|(key, held)| self.key_view(pool, *key, *held)).collect(),
            orgs: tally.orgs.iter().map(|(org, held)| self.pool_org_view(pool, *org, *held)).collect(),
            traffic: pool.traffic.order.iter().filter_map(|id| traffic_view(pool, *id)).collect(),
        }
    }

    fn key_view(&self, pool: &Pool, key: Option<KeyId>, held: Held) -> KeyView {
        let entitled = held.holder.key.map(|party| self.parties.get(party).entitled);
        let terms = self.parties.terms(held.holder, held.holder.key);
        let share = || pool.standing(SetId::EVERYBODY, held.holder, &self.parties).share;
        KeyView {
            key,
            org: self.parties.org_of(held.holder),
            in_flight: held.in_flight,
            parked: held.parked,
            share: (pool.policy.fair_share != FairShare::Off && held.holder.key.is_some()).then(share),
            weight: terms.weight,
            floor: terms.floor,
            cap: entitled.and_then(|entitled| entitled.cap()).unwrap_or(0),
        }
    }

    fn pool_org_view(&self, pool: &Pool, org: OrgId, held: Held) -> PoolOrgView {
        let terms = held.holder.org.map(|party| self.parties.get(party).entitled.terms).unwrap_or_default();
        // Requests of an org that name no key are not judged: the share shown is what a key of it would get.
        let holder = Holder { key: held.holder.key.or(held.holder.org), org: held.holder.org };
        let share = || pool.standing(SetId::EVERYBODY, holder, &self.parties).share;
        PoolOrgView {
            org,
            in_flight: held.in_flight,
            parked: held.parked,
            share: pool.sets.by_org.then(share),
            weight: terms.weight,
            floor: terms.floor,
        }
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

fn traffic_view(pool: &Pool, id: TrafficId) -> Option<TrafficView> {
    let kind = pool.traffic.get(id)?;
    Some(TrafficView {
        traffic: id,
        name: kind.policy.name.clone(),
        slots: kind.policy.slots,
        in_flight: kind.in_flight,
    })
}
