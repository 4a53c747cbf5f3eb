//! The fair-share rules, from the list of leases and the list of those who wait.

use super::Id;
use super::Model;
use super::Parked;
use super::Task;
use super::Unit;
use super::Who;
use super::index;
use governor_engine::id::{MemberId, PoolId};
use governor_engine::policy::FairShare;
use std::collections::BTreeMap;

/// How a requester stands over its candidates, before this admission.
pub(super) struct Standing {
    pub(super) key_in_flight: u32,
    /// What it may hold while the candidates are congested.
    pub(super) share: u32,
    pub(super) unit_in_flight: u32,
    pub(super) weight: u32,
    pub(super) floor: u32,
    pub(super) headroom: u32,
    pub(super) filled: u32,
    pub(super) in_flight: u32,
    pub(super) capacity: u32,
    pub(super) active_keys: u32,
    /// The rule lets it in.
    pub(super) admitted: bool,
}

impl Model {
    /// Who the share is for.
    pub(super) fn unit(&self, w: &Parked) -> Option<Unit> {
        self.unit_of(w, w.who)
    }

    fn unit_of(&self, w: &Parked, who: Who) -> Option<Unit> {
        let max_min = matches!(self.pools[index(w.pool.0)].policy.fair_share, FairShare::MaxMin { .. });
        let key = who.key?;
        Some(who.org.filter(|_| max_min).map_or(Unit::Key(key), Unit::Org))
    }

    /// Parked requests by which a key wants something.
    fn wanting(&self, pool: PoolId) -> impl Iterator<Item = &Parked> {
        let here = self.parked.iter().filter(move |p| p.pool == pool && p.who.key.is_some());
        // What moves is wanted already; what its own sub-capacity holds back could not use more.
        here.filter(|p| !matches!(p.task, Task::Move(_)) && self.sub_capacity(p).is_none())
    }

    /// The most that a unit can use of the candidates of `w`: the slots of those it may run on, or what it holds there if
    /// that is more.
    fn usable_by(&self, w: &Parked, unit: Option<Unit>) -> u32 {
        let of_unit = |who: Who| self.unit_of(w, who) == unit;
        let leases = self.running().filter(|l| l.pool == w.pool && of_unit(l.who)).map(|l| &l.candidates);
        let parked = self.wanting(w.pool).filter(|p| of_unit(p.who)).map(|p| &p.candidates);
        let Some(named) = leases.chain(parked).cloned().collect::<Option<Vec<Vec<MemberId>>>>() else {
            // Some of it may run anywhere: all there is, and nobody's part is ever more.
            return u32::MAX;
        };
        let mut among = self.resolve(w.pool, &w.candidates);
        among.retain(|m| named.iter().any(|named| named.contains(m)));
        let held = self.counted_over(w.pool, &w.candidates).into_iter().filter(|l| of_unit(l.who)).count();
        self.capacity(w.pool, &Some(among)).max(u32::try_from(held).unwrap())
    }

    pub(super) fn standing(&self, w: &Parked) -> Standing {
        let policy = &self.pools[index(w.pool.0)].policy;
        let counted = self.counted_over(w.pool, &w.candidates);
        let t = u32::try_from(counted.len()).unwrap();
        let c = self.capacity(w.pool, &w.candidates);
        let mut keys: Vec<Id> = counted.iter().filter_map(|l| l.who.key).collect();
        let held = w.who.key.map_or(0, |key| u32::try_from(keys.iter().filter(|k| **k == key).count()).unwrap());
        keys.extend(w.who.key);
        keys.sort();
        keys.dedup();
        let active = u32::try_from(keys.len()).unwrap();
        let unit = self.unit(w);
        let unit_held = counted.iter().filter(|l| unit.is_some() && self.unit_of(w, l.who) == unit).count();
        let mut standing = Standing {
            key_in_flight: held,
            share: c,
            unit_in_flight: u32::try_from(unit_held).unwrap(),
            weight: unit.map_or(1, |unit| self.weight(unit, w.who.org.is_some())),
            floor: 0,
            headroom: 0,
            filled: 0,
            in_flight: t,
            capacity: c,
            active_keys: active,
            admitted: true,
        };
        match policy.fair_share {
            FairShare::Off => {}
            FairShare::EqualSplit { .. } => {
                standing.share = policy.min_guarantee.max(c.checked_div(active).unwrap_or(c));
                standing.admitted = unit.is_none() || !self.is_congested(w) || held < standing.share;
            }
            FairShare::MaxMin { headroom } => {
                let h = headroom.slots(c);
                let pressed = Filling::new(self, w, c - h);
                let filled = (0..=c - h).take_while(|level| pressed.to(*level) <= c - h).last().unwrap_or(0);
                standing.headroom = h;
                standing.floor = pressed.own_floor;
                // Below the guarantee, at least one, it is a newcomer, which no share refuses.
                let newcomer = policy.min_guarantee.max(1);
                standing.share = filled.max(pressed.own_floor).max(newcomer);
                standing.filled = pressed.to(standing.unit_in_flight + 1);
                standing.admitted = unit.is_none()
                    || c == 0
                    || t < c - h
                    || standing.unit_in_flight < newcomer
                    || standing.unit_in_flight < pressed.own_floor
                    || standing.filled <= c - h;
            }
        }
        standing
    }

    /// The share test is asked over these candidates.
    pub(super) fn is_congested(&self, w: &Parked) -> bool {
        let t = u32::try_from(self.counted_over(w.pool, &w.candidates).len()).unwrap();
        let c = self.capacity(w.pool, &w.candidates);
        match self.pools[index(w.pool.0)].policy.fair_share {
            FairShare::Off => false,
            FairShare::EqualSplit { threshold } => c > 0 && t * 100 >= c * u32::from(threshold),
            FairShare::MaxMin { headroom } => c > 0 && t >= c - headroom.slots(c),
        }
    }

    /// The floors of those who want something exceed what there is to share.
    pub(super) fn is_oversubscribed(&self, w: &Parked) -> bool {
        let FairShare::MaxMin { headroom } = self.pools[index(w.pool.0)].policy.fair_share else { return false };
        let c = self.capacity(w.pool, &w.candidates);
        let shared = c - headroom.slots(c);
        Filling::new(self, w, shared).floors > u64::from(shared)
    }
}

/// Who wants how much over the candidates of one request, and what they would all hold at its level.
struct Filling {
    /// Held by requests without a key: nobody's share.
    keyless: u32,
    own_weight: u64,
    own_floor: u32,
    /// Of everybody, as configured.
    floors: u64,
    /// (demand, weight, floor) of the others.
    others: Vec<(u32, u64, u32)>,
}

impl Filling {
    fn new(model: &Model, w: &Parked, shared: u32) -> Self {
        let mut wants: BTreeMap<Option<Unit>, u32> = BTreeMap::new();
        for lease in model.counted_over(w.pool, &w.candidates) {
            *wants.entry(model.unit_of(w, lease.who)).or_default() += 1;
        }
        let among = model.resolve(w.pool, &w.candidates);
        for other in model.wanting(w.pool) {
            if model.resolve(w.pool, &other.candidates).iter().any(|m| among.contains(m)) {
                *wants.entry(model.unit_of(w, other.who)).or_default() += 1;
            }
        }
        let keyless = wants.remove(&None).unwrap_or(0);
        for (unit, wants) in &mut wants {
            *wants = (*wants).min(model.usable_by(w, *unit));
        }
        wants.retain(|_, wants| *wants > 0);
        let own = model.unit(w);
        wants.entry(own).or_default();
        wants.remove(&None);
        let floors: u64 = wants.keys().flatten().map(|unit| u64::from(model.floor(*unit, false))).sum();
        let scaled = |floor: u32| {
            let part = u64::from(floor) * u64::from(shared);
            if floors > u64::from(shared) { u32::try_from(part / floors).unwrap() } else { floor }
        };
        let of = |unit: &Unit| (u64::from(model.weight(*unit, false)), scaled(model.floor(*unit, false)));
        let (own_weight, own_floor) = own.as_ref().map_or((1, 0), of);
        let others = wants.iter().filter(|(unit, _)| **unit != own);
        let others = others.filter_map(|(unit, wants)| unit.as_ref().map(|unit| (*wants, of(unit).0, of(unit).1)));
        Self { keyless, own_weight, own_floor, floors, others: others.collect() }
    }

    /// F at the level where the requester holds `own`: everybody else what it wants, but at most its part of that level
    /// or its floor.
    fn to(&self, own: u32) -> u32 {
        let held = |(wants, weight, floor): &(u32, u64, u32)| {
            let part = u32::try_from(u64::from(own) * weight / self.own_weight).unwrap();
            (*wants).min(part.max(*floor))
        };
        self.keyless + own + self.others.iter().map(held).sum::<u32>()
    }
}
