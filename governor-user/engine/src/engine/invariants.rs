//! What must hold between any two steps. Reads everything and trusts no count: each is made again from the live leases
//! and the parked requests.

use crate::engine::Engine;
use crate::engine::deadline::Timer;
use crate::fairness::demand::Demand;
use crate::fairness::set::{CandidateSet, Counts};
use crate::fairness::sets;
use crate::id::SetId;
use crate::identity::party::{Holder, PartyId};
use crate::leases::lease::Lease;
use crate::policy::Anonymous;
use crate::pools::pool::Pool;
use crate::waiting::park::{Ask, Door};
use std::collections::{BTreeMap, BTreeSet};

impl Engine {
    /// Checks that
    ///
    /// - every count (member, candidate set, key, org, kind of traffic, node, session) equals what the live leases and
    ///   parked requests say, and no principal is known that has neither;
    /// - no request is parked that could be granted now (work-conserving), and none at all while bypass is on;
    /// - every lease, wait, grace, cool-down and override has its deadline, and no deadline is for something that is
    ///   over;
    /// - every lease and every parked request belongs to a session that is known, to a pool that is there, and lost
    ///   sessions wait for nothing;
    /// - parked requests stand in exactly one lane, ordered by what their org and key hold, and none is of a suspended
    ///   key.
    ///
    /// Costs time linear in everything. Debug builds call it after each step while the tables are small.
    ///
    /// # Panics
    /// If one of them does not hold: that is a bug in the engine, whatever the inputs were.
    pub fn check_invariants(&self) {
        for pool in &self.pools {
            self.check_members(pool);
            self.check_identities(pool);
            pool.sets.iter().for_each(|(id, set)| self.check_set(pool, id, set));
            self.check_lanes(pool);
            assert_eq!(self.most_deserving(pool.id), None, "pool {:?}: a parked request could be granted", pool.id);
        }
        self.check_parties();
        self.check_parked();
        self.check_sessions();
        self.check_timers();
    }

    fn leases_in(&self, pool: &Pool) -> impl Iterator<Item = &Lease> {
        let id = pool.id;
        self.leases.iter().map(|(_, lease)| lease).filter(move |lease| lease.pool == id)
    }

    fn asks_in(&self, pool: &Pool) -> impl Iterator<Item = &Ask> {
        let id = pool.id;
        self.parked.iter().map(|(_, parked)| &parked.ask).filter(move |ask| ask.pool == id)
    }

    fn check_members(&self, pool: &Pool) {
        let running = || self.leases_in(pool).filter(|lease| !lease.suspended);
        for (id, member) in (0..).map(crate::id::MemberId).zip(&pool.members) {
            let leases = running().filter(|lease| lease.member == Some(id)).count();
            assert_eq!(member.in_flight as usize, leases, "leases on {}", member.policy.name);
        }
        let figures = self.pool_figures(pool.id).expect("a pool of ours has figures");
        let counts = (figures.in_flight as usize, figures.parked as usize);
        assert_eq!(counts, (running().count(), self.asks_in(pool).count()), "in flight and parked in {:?}", pool.id);
        for id in &pool.traffic.order {
            let leases = running().filter(|lease| lease.traffic == Some(*id)).count();
            assert_eq!(pool.traffic.in_flight(Some(*id)) as usize, leases, "leases of {id:?}");
        }
    }

    fn check_identities(&self, pool: &Pool) {
        let holders = self.leases_in(pool).map(|lease| lease.holder).chain(self.asks_in(pool).map(|ask| ask.holder));
        for holder in holders.filter(|holder| self.parties.key_of(*holder).is_none()) {
            let judged = pool.policy.anonymous == Anonymous::Judge;
            assert_eq!(holder.key.is_some(), judged, "{holder:?} in {:?}", pool.id);
        }
    }

    fn check_set(&self, pool: &Pool, id: SetId, set: &CandidateSet) {
        let open = |lease: &&Lease| match lease.member {
            Some(member) => set.contains(member) && pool.members[member.index()].open,
            None => true,
        };
        let mut expected = CandidateSet::default();
        let mut of: BTreeMap<PartyId, Counts> = BTreeMap::new();
        for lease in self.leases_in(pool).filter(|lease| !lease.suspended).filter(open) {
            expected.total += 1;
            expected.ordinary += u32::from(lease.is_ordinary());
            let Some(key) = lease.holder.key else {
                expected.keyless += 1;
                continue;
            };
            of.entry(key).or_default().in_flight += 1;
            expected.active_keys += u32::from(of[&key].in_flight == 1);
            if let Some(unit) = lease.holder.unit(true).filter(|_| pool.sets.by_org) {
                of.entry(unit).or_default().held += 1;
            }
            self.expect_wanted(pool, &mut of, lease.holder);
        }
        for ask in self.asks_in(pool).filter(|ask| sets::wants(ask, &pool.traffic)) {
            if set.meets(&pool.sets.get(ask.set).members) {
                self.expect_wanted(pool, &mut of, ask.holder);
            }
        }
        for (party, counts) in of.iter_mut().filter(|(_, counts)| counts.wanted > 0) {
            counts.reach = self.reach(pool, set, *party);
        }
        let open = set.members.iter().map(|id| &pool.members[id.index()]).filter(|member| member.open);
        expected.capacity = open.map(crate::members::member::Member::ordinary_slots).sum();
        let numbers = |set: &CandidateSet| (set.capacity, set.total, set.ordinary, set.keyless, set.active_keys);
        assert_eq!(numbers(set), numbers(&expected), "statistics of {:?}", set.members);
        assert_eq!(set.parties(), of.len(), "who has anything over {:?}", set.members);
        let mut demand = Demand::default();
        for (party, counts) in &of {
            let has = set.counts(*party);
            // Where it wants nothing, what it could reach does not matter.
            let has = if counts.wanted > 0 { has } else { Counts { reach: counts.reach, ..has } };
            assert_eq!(has, *counts, "{party:?} over {:?}", set.members);
            (1..=counts.demand()).for_each(|n| demand.add(self.parties.get(*party).entitled.terms, n));
        }
        for level in [0, 1, 2, 3, 5, 8, 100] {
            let limit = |terms: crate::identity::entitle::Terms| (level * terms.weight).max(terms.floor);
            assert_eq!(set.demand.filled(limit), demand.filled(limit), "what is wanted of {:?}", set.members);
        }
        assert_eq!(set.demand.floors(), demand.floors(), "floors over {:?}", set.members);
        let refer = |on: SetId| usize::from(on == id);
        let references = self.leases_in(pool).map(|lease| refer(lease.set)).sum::<usize>()
            + self.asks_in(pool).map(|ask| refer(ask.set)).sum::<usize>()
            + usize::from(id == SetId::EVERYBODY);
        assert_eq!(set.references as usize, references, "who refers to {:?}", set.members);
    }

    fn expect_wanted(&self, pool: &Pool, of: &mut BTreeMap<PartyId, Counts>, holder: Holder) {
        if let Some(unit) = holder.unit(true).filter(|_| pool.sets.by_org) {
            of.entry(unit).or_default().wanted += 1;
        }
    }

    /// Slots of open members of a set that a unit's leases and wanting requests name; no limit if one names none.
    fn reach(&self, pool: &Pool, set: &CandidateSet, unit: PartyId) -> u32 {
        let leases = self.leases_in(pool).filter(|lease| !lease.suspended).map(|lease| (lease.holder, lease.set));
        let asks = self.asks_in(pool).filter(|ask| sets::wants(ask, &pool.traffic)).map(|ask| (ask.holder, ask.set));
        let of_unit = leases.chain(asks).filter(|(holder, _)| holder.unit(true) == Some(unit));
        let named: BTreeSet<SetId> = of_unit.map(|(_, set)| set).collect();
        if named.contains(&SetId::EVERYBODY) {
            return u32::MAX;
        }
        let among = set.members.iter().filter(|id| named.iter().any(|named| pool.sets.get(*named).contains(**id)));
        let open = among.map(|id| &pool.members[id.index()]).filter(|member| member.open);
        open.map(crate::members::member::Member::ordinary_slots).sum()
    }

    fn check_lanes(&self, pool: &Pool) {
        let mut standing = BTreeSet::new();
        for (id, set) in pool.sets.iter() {
            for lane in set.lanes() {
                assert!(lane.is_consistent(&pool.sets.standings), "order of {:?} of {:?}", lane.key, set.members);
                for (slot, stand) in lane.iter(&pool.sets.standings) {
                    let ask = &self.parked[slot].ask;
                    let now = set.stand(ask.door, ask.holder, pool.sets.by_org, &self.parties);
                    assert_eq!((ask.pool, ask.set, ask.door), (pool.id, id, lane.key.door), "{ask:?}");
                    assert_eq!((stand.unit, stand.key), (now.unit, now.key), "{ask:?}");
                    let held = |stand: crate::waiting::stand::Stand| {
                        let (unit, key) = (stand.of_unit, stand.of_key);
                        (unit.in_flight, unit.terms, key.in_flight, key.terms)
                    };
                    assert_eq!(held(stand), held(now), "{ask:?} is ordered by what its org and key hold");
                    assert!(standing.insert(slot), "{ask:?} stands in one lane");
                }
            }
        }
        assert_eq!(standing.len(), self.asks_in(pool).count(), "every parked request stands in a lane");
        assert_eq!(pool.parked as usize, standing.len(), "parked in the pool");
        let mut by_key: BTreeMap<PartyId, u32> = BTreeMap::new();
        self.asks_in(pool).filter_map(|ask| ask.holder.key).for_each(|key| *by_key.entry(key).or_insert(0) += 1);
        assert_eq!(pool.parked_by_key.len(), by_key.len(), "keys that wait");
        assert!(by_key.iter().all(|(key, n)| pool.parked_by_key.get(key) == Some(n)), "parked by key");
    }

    fn check_parties(&self) {
        // (references, counted).
        let mut expected: BTreeMap<PartyId, (u32, u32)> = BTreeMap::new();
        let mut refer = |holder: Holder, counts: bool| {
            for party in holder.key.into_iter().chain(holder.org) {
                let (references, counted) = expected.entry(party).or_default();
                *references += 1;
                *counted += u32::from(counts);
            }
        };
        self.leases.iter().for_each(|(_, lease)| refer(lease.holder, !lease.suspended));
        self.parked.iter().for_each(|(_, parked)| refer(parked.ask.holder, !parked.ask.moves()));
        let known = self.parties.iter().map(|(id, party)| (id, (self.parties.references(id), party.counted)));
        assert_eq!(known.collect::<BTreeMap<_, _>>(), expected, "keys and orgs: references, counted");
        let again = self.parties.entitled_again();
        assert!(again, "everybody is entitled to what settings, class and override say");
    }

    fn check_parked(&self) {
        assert!(!self.bypass || self.parked.is_empty(), "bypass parks nobody");
        let mut moves = 0;
        for (slot, parked) in self.parked.iter() {
            let ask = &parked.ask;
            let session = self.sessions.get(&ask.session).expect("a parked request's session is known");
            assert_eq!(self.requests.get(&(ask.session, ask.request)), Some(&slot), "its session knows it");
            assert!(session.grace.is_none(), "a lost session waits for nothing");
            assert!(self.pools[ask.pool.index()].present, "its pool is there");
            assert!(ask.until > self.now, "its wait is not spent");
            assert!(ask.door != Door::Child, "a child never waits");
            let suspended = ask.holder.key.is_some_and(|key| self.parties.get(key).entitled.suspended);
            assert!(!suspended || ask.moves(), "nobody waits whose key is suspended");
            assert!(!self.draining || ask.moves(), "nothing new waits while the node is drained");
            moves += u32::from(ask.moves());
        }
        assert_eq!(self.parked_moves, moves, "parked requests that hold a lease");
        assert_eq!(self.requests.len(), self.parked.len(), "every unanswered request is parked");
    }

    fn check_sessions(&self) {
        let mut suspended = 0;
        for (id, session) in self.sessions.iter() {
            let leases: Vec<_> = self.lease_links.iter(session.leases).collect();
            let parked: Vec<_> = self.park_links.iter(session.parked).collect();
            assert_eq!((leases.len(), parked.len()), (session.held as usize, session.waiting as usize), "{id:?}");
            assert!(leases.iter().all(|slot| self.leases[*slot].session == id), "leases of {id:?}");
            assert!(parked.iter().all(|slot| self.parked[*slot].ask.session == id), "requests of {id:?}");
        }
        let held: u32 = self.sessions.iter().map(|(_, session)| session.held).sum();
        let waiting: u32 = self.sessions.iter().map(|(_, session)| session.waiting).sum();
        assert_eq!((held as usize, waiting as usize), (self.leases.len(), self.parked.len()), "what sessions hold");
        assert_eq!(self.lease_slots.len(), self.leases.len(), "every lease has an id");
        for (slot, lease) in self.leases.iter() {
            assert_eq!(self.lease_slots.get(&lease.id), Some(&slot), "{lease:?}");
            assert!(self.pools[lease.pool.index()].present, "the pool of {lease:?} is there");
            let waits = self.parked.iter().find(|(_, parked)| {
                use crate::waiting::park::Errand;
                matches!(parked.ask.errand, Errand::Move(id) | Errand::Resume(id) if id == lease.id)
            });
            assert_eq!(lease.waits, waits.map(|(slot, _)| slot), "what {lease:?} waits for");
            suspended += u32::from(lease.suspended);
        }
        assert_eq!(self.suspended, suspended, "suspended leases");
    }

    fn check_timers(&self) {
        let ends: BTreeSet<_> = self.lease_ends.iter().collect();
        let leases: BTreeSet<_> = self.leases.iter().map(|(slot, lease)| ((lease.end(), lease.id), slot)).collect();
        assert_eq!(ends, leases, "ends of leases");
        let ends: BTreeSet<_> = self.park_ends.iter().collect();
        let parked: BTreeSet<_> = self.parked.iter().map(|(slot, p)| ((p.ask.until, p.id), slot)).collect();
        assert_eq!(ends, parked, "ends of waits");
        let mut timers = BTreeSet::new();
        timers.extend(self.sessions.iter().filter_map(|(id, s)| Some((s.grace?, Timer::Session(id)))));
        timers.extend(self.pools.iter().filter_map(|pool| Some((pool.changes_at()?, Timer::Pool(pool.id)))));
        let overrides = &self.parties.settings.overrides;
        timers.extend(overrides.iter().filter_map(|(key, over)| Some((over.until?, Timer::Override(*key)))));
        assert_eq!(self.timers, timers, "deadlines");
    }
}
