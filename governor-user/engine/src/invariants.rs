//! What must hold between any two steps. Reads everything and trusts no count: each is made again from the live leases
//! and the parked requests.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::{Engine, Timer};
use crate::load::Load;
use crate::park::Class;
use crate::pool::Pool;
use crate::set::SetId;

impl Engine {
    /// Checks that
    ///
    /// - every count (member, candidate set, key, node, session) equals what the live leases and parked requests say;
    /// - nobody is parked who could be granted now (work-conserving), and nobody at all while bypass is on;
    /// - every lease, wait, grace and cool-down has its deadline, and no deadline is for something that is over;
    /// - every lease and every parked request belongs to a session that is known, to a pool that is there, and lost
    ///   sessions wait for nothing;
    /// - parked requests stand in exactly one lane, ordered by the count of their key.
    ///
    /// Costs time linear in everything. Debug builds call it after each step while the tables are small.
    ///
    /// # Panics
    /// If one of them does not hold: that is a bug in the engine, whatever the inputs were.
    pub fn check_invariants(&self) {
        for pool in &self.pools {
            self.check_loads(pool);
            self.check_lanes(pool);
            assert_eq!(self.most_deserving(pool.id), None, "pool {:?}: a parked request could be granted", pool.id);
        }
        self.check_parked();
        self.check_sessions();
        self.check_timers();
    }

    fn check_loads(&self, pool: &Pool) {
        let mut members = vec![Load::default(); pool.members.len()];
        let mut unplaced = Load::default();
        let mut references: BTreeMap<SetId, u32> = BTreeMap::from([(SetId::EVERYBODY, 1)]);
        for lease in self.leases.values().filter(|lease| lease.pool == pool.id) {
            let load = lease.member.map_or(&mut unplaced, |member| &mut members[member.index()]);
            load.add(lease.holder, lease.kind);
            *references.entry(lease.set).or_insert(0) += 1;
        }
        for parked in self.parked.values().filter(|parked| parked.ask.pool == pool.id) {
            *references.entry(parked.ask.set).or_insert(0) += 1;
        }
        assert_eq!(pool.unplaced, unplaced, "leases on no member");
        for (member, load) in pool.members.iter().zip(&members) {
            assert_eq!(member.load, *load, "leases on {}", member.policy.name);
        }
        for (id, set) in pool.sets.iter() {
            let mut load = unplaced.clone();
            let mut capacity = 0;
            for member in set.members.iter().map(|id| &pool.members[id.index()]).filter(|member| member.open) {
                capacity += member.ordinary_slots();
                load.merge(&member.load);
            }
            assert_eq!((set.capacity, &set.load), (capacity, &load), "statistics of {:?}", set.members);
            let mut demand = BTreeMap::new();
            pool.sets.wanted(set, |key| *demand.entry(key).or_insert(0) += 1);
            assert_eq!(set.demand.by_key(), &demand, "what is wanted of {:?}", set.members);
            assert_eq!(pool.sets.references(id), references.get(&id).copied().unwrap_or(0), "{:?}", set.members);
        }
    }

    fn check_lanes(&self, pool: &Pool) {
        let mut standing = BTreeSet::new();
        for (id, set) in pool.sets.iter() {
            for class in Class::ALL {
                let lane = set.lane(class);
                assert!(lane.is_consistent(), "order of the {class:?} lane of {:?}", set.members);
                for (park, holder, in_flight) in lane.iter() {
                    let ask = &self.parked.get(&park).expect("a lane holds parked requests only").ask;
                    assert_eq!((ask.pool, ask.set, ask.class, ask.holder), (pool.id, id, class, holder), "{park:?}");
                    let counted = if class == Class::Move { 0 } else { set.load.of(holder) };
                    assert_eq!(in_flight, counted, "{park:?} is ordered by its key's count");
                    assert!(standing.insert(park), "{park:?} stands in one lane");
                }
            }
        }
        let parked = self.parked.values().filter(|parked| parked.ask.pool == pool.id);
        assert_eq!(standing.len(), parked.clone().count(), "every parked request stands in a lane");
        assert_eq!(pool.parked as usize, standing.len(), "parked in the pool");
        let mut by_key = BTreeMap::new();
        for key in parked.filter_map(|parked| parked.ask.holder) {
            *by_key.entry(key).or_insert(0) += 1;
        }
        assert_eq!(pool.parked_by_key, by_key, "parked by key");
    }

    fn check_parked(&self) {
        assert!(!self.bypass || self.parked.is_empty(), "bypass parks nobody");
        let mut moves = 0;
        for (park, parked) in &self.parked {
            let ask = &parked.ask;
            let session = self.sessions.get(&ask.session).expect("a parked request's session is known");
            assert_eq!(session.parked.get(&ask.request), Some(park), "its session knows it");
            assert!(session.grace.is_none(), "a lost session waits for nothing");
            assert!(self.pools[ask.pool.index()].present, "its pool is there");
            assert!(ask.until > self.now, "its wait is not spent");
            if let Some(lease) = ask.lease {
                assert_eq!(self.leases.get(&lease).and_then(|lease| lease.moving), Some(*park), "its lease is moving");
                moves += 1;
            }
        }
        assert_eq!(self.parked_moves, moves, "parked requests that hold a lease");
    }

    fn check_sessions(&self) {
        let leases: usize = self.sessions.values().map(|session| session.leases.len()).sum();
        let parked: usize = self.sessions.values().map(|session| session.parked.len()).sum();
        assert_eq!((leases, parked), (self.leases.len(), self.parked.len()), "what sessions hold");
        for (id, lease) in &self.leases {
            assert!(self.sessions.get(&lease.session).is_some_and(|session| session.leases.contains(id)), "{id:?}");
            assert!(self.pools[lease.pool.index()].present, "the pool of {id:?} is there");
            assert!(lease.moving.is_none_or(|park| self.parked.contains_key(&park)), "{id:?} moves");
        }
    }

    fn check_timers(&self) {
        let mut timers = BTreeSet::new();
        timers.extend(self.leases.iter().map(|(id, lease)| (lease.expires, Timer::Lease(*id))));
        timers.extend(self.parked.iter().map(|(id, parked)| (parked.ask.until, Timer::Park(*id))));
        timers.extend(self.sessions.iter().filter_map(|(id, s)| Some((s.grace?, Timer::Session(*id)))));
        timers.extend(self.pools.iter().filter_map(|pool| Some((pool.next_change()?, Timer::Pool(pool.id)))));
        assert_eq!(self.timers, timers, "deadlines");
    }
}
