//! Counting: members, capacity and leases, each time anew from the lists.

use super::Candidates;
use super::Lease;
use super::Member;
use super::Model;
use super::Parked;
use super::Pool;
use super::Task;
use super::Who;
use super::index;
use governor_engine::id::{MemberId, PoolId};
use governor_engine::io::Kind;

impl Model {
    pub(super) fn pool(&self, id: PoolId) -> Option<&Pool> {
        self.pools.get(index(id.0)).filter(|p| p.present)
    }

    pub(super) fn member(&self, pool: PoolId, id: MemberId) -> Option<&Member> {
        self.pool(pool)?.members.get(index(id.0)).filter(|m| m.present)
    }

    /// There is no gate. (A member without slots is off, and a pool with no other grants nothing.)
    pub(super) fn is_unlimited(&self, pool: PoolId) -> bool {
        self.pools[index(pool.0)].policy.unlimited
    }

    pub(super) fn usable(member: &Member) -> bool {
        member.present && !member.policy.draining && !member.drained && member.policy.slots > 0
    }

    /// It said no, or an operator did.
    pub(super) fn refuses(member: &Member) -> bool {
        member.rate_limited.is_some() || member.ordered.is_some()
    }

    pub(super) fn ordinary_slots(member: &Member) -> u32 {
        if member.policy.slots == 0 { 0 } else { (member.policy.slots.saturating_sub(member.policy.reserve)).max(1) }
    }

    /// Takes requests and counts in C and T.
    pub(super) fn open(&self, pool: PoolId, id: MemberId) -> bool {
        let members = &self.pools[index(pool.0)].members;
        let well = |m: &Member| Self::usable(m) && !Self::refuses(m) && m.overloaded.is_none();
        let member = &members[index(id.0)];
        if well(member) {
            return true;
        }
        if members.iter().any(well) {
            return false;
        }
        // One that failed without saying 429 stays selectable: the one that is back first.
        let spare = (0..members.len())
            .filter(|m| Self::usable(&members[*m]) && !Self::refuses(&members[*m]))
            .filter_map(|m| Some((members[m].overloaded?, m)))
            .min();
        spare.is_some_and(|(_, m)| m == index(id.0))
    }

    pub(super) fn resolve(&self, pool: PoolId, candidates: &Candidates) -> Vec<MemberId> {
        match candidates {
            Some(named) => named.clone(),
            None => {
                let members = &self.pools[index(pool.0)].members;
                let ids = (0..members.len()).filter(|m| members[*m].present);
                ids.map(|m| MemberId(u32::try_from(m).unwrap())).collect()
            }
        }
    }

    /// Leases that hold a slot.
    pub(super) fn running(&self) -> impl Iterator<Item = &Lease> {
        self.leases.iter().filter(|l| !l.suspended)
    }

    /// Requests in flight and waiting, of whom that is said; a lease that waits to move counts once.
    pub(super) fn counted_where(&self, who: impl Fn(&Who) -> bool) -> u32 {
        let running = self.running().filter(|l| who(&l.who)).count();
        let waiting = self.parked.iter().filter(|w| !matches!(w.task, Task::Move(_)) && who(&w.who)).count();
        u32::try_from(running + waiting).unwrap()
    }

    /// Leases that count over these candidates: on an open one of them, or on no member.
    pub(super) fn counted_over(&self, pool: PoolId, candidates: &Candidates) -> Vec<&Lease> {
        let among = self.resolve(pool, candidates);
        let counts = |l: &&Lease| match l.member {
            None => true,
            Some(m) => among.contains(&m) && self.open(pool, m),
        };
        self.running().filter(|l| l.pool == pool).filter(counts).collect()
    }

    pub(super) fn capacity(&self, pool: PoolId, candidates: &Candidates) -> u32 {
        let open = self.resolve(pool, candidates).into_iter().filter(|m| self.open(pool, *m));
        open.map(|m| Self::ordinary_slots(&self.pools[index(pool.0)].members[index(m.0)])).sum()
    }

    pub(super) fn on_member(&self, pool: PoolId, member: MemberId) -> u32 {
        let on = self.running().filter(|l| l.pool == pool && l.member == Some(member)).count();
        u32::try_from(on).unwrap()
    }

    /// (in flight of its kind of traffic, sub-capacity), if it has one.
    pub(super) fn sub_capacity(&self, w: &Parked) -> Option<(u32, u32)> {
        let pool = &self.pools[index(w.pool.0)];
        let name = &pool.traffic[index(w.traffic?.0)];
        let slots = pool.policy.traffic.iter().find(|kind| kind.name == *name)?.slots;
        let alike = self.running().filter(|l| l.pool == w.pool && l.traffic == w.traffic).count();
        (slots > 0).then_some((u32::try_from(alike).unwrap(), slots))
    }

    /// Judged by share and held to slots − reserve.
    pub(super) fn is_ordinary(w: &Parked) -> bool {
        w.kind == Kind::Ordinary && !w.child && !matches!(w.task, Task::Move(_))
    }
}
