//! Who goes when a slot is free: of those who can, the most deserving.

use super::Answer;
use super::Id;
use super::Model;
use super::Parked;
use super::Task;
use super::Unit;
use super::index;
use governor_engine::id::PoolId;
use governor_engine::io::{Kind, Reason, WaitEnd};
use governor_engine::policy::FairShare;
use std::cmp::Ordering;

/// in flight / weight.
#[derive(Clone, Copy)]
struct Ratio(u32, u32);

impl Ratio {
    fn cmp(self, other: Self) -> Ordering {
        (u64::from(self.0) * u64::from(other.1)).cmp(&(u64::from(other.0) * u64::from(self.1)))
    }
}

/// What somebody deserves: below its floor first, then by what it holds for its weight.
#[derive(Clone, Copy)]
struct Claim {
    served: bool,
    ratio: Ratio,
}

impl Claim {
    const NONE: Self = Self { served: true, ratio: Ratio(0, 1) };

    fn cmp(self, other: Self) -> Ordering {
        self.served.cmp(&other.served).then(self.ratio.cmp(other.ratio))
    }
}

impl Model {
    /// Grants while anybody who waits can go; pools in order of their index.
    pub(super) fn serve_all(&mut self) {
        for p in 0..self.pools.len() {
            let id = PoolId(u32::try_from(p).unwrap());
            while let Some(order) = self.most_deserving(id) {
                let at = self.parked.iter().position(|w| w.order == order).unwrap();
                let w = self.parked.remove(at);
                if self.bypass {
                    let member = self.bypass_member(&w);
                    self.say_unparked(&w, WaitEnd::Granted);
                    self.grant(&w, member);
                } else if self.deadline_is_hopeless(&w) {
                    self.say_unparked(&w, WaitEnd::Refused);
                    self.shed(&w, Reason::PoolExhausted, None, None);
                } else if let Answer::Go(member) = self.judge(&w) {
                    if !w.recorded {
                        self.observe(&w);
                    }
                    self.say_unparked(&w, WaitEnd::Granted);
                    self.grant(&w, member);
                }
            }
        }
    }

    fn most_deserving(&self, pool: PoolId) -> Option<u64> {
        let able = |w: &&Parked| w.pool == pool && (self.bypass || matches!(self.judge(w), Answer::Go(_)));
        let able: Vec<&Parked> = self.parked.iter().filter(able).collect();
        let moves = able.iter().filter(|w| matches!(w.task, Task::Move(_)));
        if let Some(first) = moves.map(|w| w.order).min() {
            return Some(first);
        }
        let mut queues: Vec<Vec<&Parked>> = vec![];
        for w in able {
            match queues.iter_mut().find(|queue| self.waits_alike(queue[0], w)) {
                Some(queue) => queue.push(w),
                None => queues.push(vec![w]),
            }
        }
        let mut heads: Vec<(Claim, u64)> = queues.iter().map(|queue| self.head(queue)).collect();
        heads.sort_by(|(a, a_order), (b, b_order)| a.cmp(*b).then(a_order.cmp(b_order)));
        heads.first().map(|(_, order)| *order)
    }

    /// Nothing but what they hold decides between these two: they wait for the same members, under the same rules and on
    /// the same terms.
    fn waits_alike(&self, a: &Parked, b: &Parked) -> bool {
        let terms = |w: &Parked| {
            let in_org = w.who.org.is_some();
            self.unit(w).map(|unit| (self.weight(unit, in_org), self.floor(unit, in_org)))
        };
        let door = |w: &Parked| match w.kind {
            Kind::Reattach => (w.kind, false, None),
            Kind::Ordinary | Kind::Exempt => (w.kind, w.who.key.is_some(), w.traffic),
        };
        a.candidates == b.candidates && door(a) == door(b) && terms(a) == terms(b)
    }

    /// Of those who wait alike: whom the most deserving unit sends. Each of those that deserve it equally sends one; of
    /// these the longest waiting goes.
    fn head(&self, queue: &[&Parked]) -> (Claim, u64) {
        let ranked: Vec<(&Parked, Claim)> = queue.iter().map(|w| (*w, self.unit_claim(w))).collect();
        let best = ranked.iter().map(|(_, claim)| *claim).min_by(|a, b| a.cmp(*b)).unwrap();
        let equal: Vec<&Parked> = ranked.iter().filter(|(_, c)| c.cmp(best).is_eq()).map(|(w, _)| *w).collect();
        let mut units: Vec<Option<Unit>> = equal.iter().map(|w| self.unit(w)).collect();
        units.sort();
        units.dedup();
        let sends = |unit: &Option<Unit>| {
            let own: Vec<&Parked> = equal.iter().copied().filter(|w| self.unit(w) == *unit).collect();
            self.next_within(&own)
        };
        (best, units.iter().filter_map(sends).min().unwrap())
    }

    /// Whom a unit sends of these: of the key that is worst off, the oldest, or the newest under overload.
    fn next_within(&self, own: &[&Parked]) -> Option<u64> {
        let mut keys: Vec<Option<Id>> = own.iter().map(|w| w.who.key).collect();
        keys.sort();
        keys.dedup();
        let next = |key: &Option<Id>| {
            let of_key = own.iter().copied().filter(|w| w.who.key == *key);
            if self.newest_first() { of_key.max_by_key(|w| w.order) } else { of_key.min_by_key(|w| w.order) }
        };
        let firsts = keys.iter().filter_map(next);
        let first = firsts.min_by(|a, b| self.key_claim(a).cmp(self.key_claim(b)).then(a.order.cmp(&b.order)));
        first.map(|w| w.order)
    }

    fn unit_claim(&self, w: &Parked) -> Claim {
        let Some(unit) = self.unit(w) else {
            let counted = self.counted_over(w.pool, &w.candidates);
            let keyless = counted.iter().filter(|l| l.who.key.is_none()).count();
            return Claim { served: true, ratio: Ratio(u32::try_from(keyless).unwrap(), 1) };
        };
        let held = self.standing(w).unit_in_flight;
        let in_org = w.who.org.is_some();
        let floor = if self.is_max_min(w) { self.floor(unit, in_org) } else { 0 };
        Claim { served: held >= floor, ratio: Ratio(held, self.weight(unit, in_org)) }
    }

    fn is_max_min(&self, w: &Parked) -> bool {
        matches!(self.pools[index(w.pool.0)].policy.fair_share, FairShare::MaxMin { .. })
    }

    /// What a key deserves within its org.
    fn key_claim(&self, w: &Parked) -> Claim {
        let (Some(Unit::Org(_)), Some(key)) = (self.unit(w), w.who.key) else { return Claim::NONE };
        let held = self.standing(w).key_in_flight;
        let (weight, floor) = (self.weight(Unit::Key(key), true), self.floor(Unit::Key(key), true));
        Claim { served: held >= floor, ratio: Ratio(held, weight) }
    }
}
