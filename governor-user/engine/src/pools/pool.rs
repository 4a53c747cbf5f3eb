//! One pool: its members, what is in flight on them, its candidate sets and kinds of traffic. Keeps every count of the
//! pool in one place. Knows no sessions, makes no decision, and no time but the `now` it is given.

use crate::collections::slots::Slot;
use crate::collections::table::Table;
use crate::fairness::sets::{Ledger, PoolLedger, Sets, wants};
use crate::id::SetId;
use crate::id::{MemberId, PoolId};
use crate::identity::party::{Holder, Parties, PartyId};
use crate::io::{MemberNews, MemberOrder, Reason};
use crate::leases::lease::{Claims, Seat};
use crate::members::member::{Member, Shown};
use crate::members::traffic::Traffic;
use crate::policy::{FairShare, PoolPolicy};
use crate::pools::retry::{DrainMeter, TypicalService, VirtualQueue};
use crate::time::{Duration, Instant};
use crate::waiting::park::{Ask, ParkId};
use std::collections::BTreeMap;

/// One pool.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) id: PoolId,
    /// `members` in it is as given; the members by index are below.
    pub(crate) policy: PoolPolicy,
    /// In the policy now.
    pub(crate) present: bool,
    pub(crate) members: Vec<Member>,
    /// Members in policy order.
    pub(crate) order: Vec<MemberId>,
    pub(crate) traffic: Traffic,
    pub(crate) sets: Sets,
    /// Parked requests, those that move included.
    pub(crate) parked: u32,
    /// Live leases that were entered on the word of a proxy alone.
    pub(crate) claims: Claims,
    pub(crate) parked_by_key: Table<PartyId, u32>,
    pub(crate) drain: DrainMeter,
    pub(crate) queue: VirtualQueue,
    pub(crate) service: TypicalService,
    /// When a cool-down ends next.
    next_change: Option<Instant>,
    pub(crate) counters: Counters,
    /// As it was announced last; `None` after a new policy.
    announced_capacity: Option<u32>,
}

/// What happened in a pool since the engine was made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) granted: u64,
    pub(crate) parked: u64,
    pub(crate) shed: BTreeMap<Reason, u64>,
    /// (would park, would refuse).
    pub(crate) would_have: BTreeMap<Reason, (u64, u64)>,
    /// Leases released by their holder, and the sum of the times they had held their slot.
    pub(crate) ended: u64,
    pub(crate) held: Duration,
    /// Reports that a member failed, and that one is up.
    pub(crate) failures: u64,
    pub(crate) recoveries: u64,
}

impl Counters {
    fn hear(&mut self, news: &MemberNews) {
        match news {
            MemberNews::RateLimited { .. } | MemberNews::Overloaded => self.failures += 1,
            MemberNews::Up => self.recoveries += 1,
        }
    }

    /// A holder released its lease after this time.
    pub(crate) fn release(&mut self, length: Duration) {
        self.ended += 1;
        self.held = self.held.saturating_add(length);
    }

    /// Refusals for want of a slot.
    pub(crate) fn refused(&self) -> u64 {
        self.shed.iter().filter(|(reason, _)| reason.is_for_want_of_a_slot()).map(|(_, count)| count).sum()
    }
}

impl Pool {
    /// A pool without members; [`Self::obey`] gives it some.
    pub(crate) fn new(id: PoolId, name: &str) -> Self {
        Self {
            id,
            policy: PoolPolicy { name: name.to_owned(), ..PoolPolicy::default() },
            present: false,
            members: Vec::new(),
            order: Vec::new(),
            traffic: Traffic::default(),
            sets: Sets::new(),
            parked: 0,
            claims: Claims::default(),
            parked_by_key: Table::default(),
            drain: DrainMeter::default(),
            queue: VirtualQueue::default(),
            service: TypicalService::default(),
            next_change: None,
            counters: Counters::default(),
            announced_capacity: None,
        }
    }

    /// Takes a new policy. Members keep their index by name, their leases and their cool-downs.
    pub(crate) fn obey(&mut self, policy: PoolPolicy, now: Instant, ledger: Ledger<'_>) {
        (self.present, self.announced_capacity) = (true, None);
        for member in &mut self.members {
            member.present = false;
        }
        self.order.clear();
        for wanted in &policy.members {
            let known = self.members.iter().position(|member| member.policy.name == wanted.name);
            let index = known.unwrap_or(self.members.len());
            match self.members.get_mut(index) {
                Some(member) => (member.policy, member.present) = (wanted.clone(), true),
                None => self.members.push(Member::new(wanted.clone())),
            }
            self.order.push(MemberId(u32::try_from(index).expect("members are fewer than slots")));
        }
        self.traffic.obey(&policy.traffic);
        self.members.iter_mut().for_each(|member| member.bound(now, &policy));
        self.policy = policy;
        let mut everybody = self.order.clone();
        everybody.sort_unstable();
        self.sets.set_everybody(everybody);
        self.open_members(now);
        self.rebuild(ledger);
    }

    /// Recounts everything: the policy or an entitlement changed.
    pub(crate) fn rebuild(&mut self, ledger: Ledger<'_>) {
        let by_org = matches!(self.policy.fair_share, FairShare::MaxMin { .. });
        let (pool, members, traffic) = (self.id, &self.members, &self.traffic);
        self.sets.rebuild(by_org, PoolLedger { ledger, pool, members, traffic });
    }

    pub(crate) fn member(&self, id: MemberId) -> Option<&Member> {
        self.members.get(id.index())
    }

    /// The member, if it is in the policy now.
    pub(crate) fn present_member(&self, id: MemberId) -> Option<&Member> {
        self.member(id).filter(|member| member.present)
    }

    /// There is no gate (A2).
    pub(crate) fn is_unlimited(&self) -> bool {
        self.policy.unlimited
    }

    /// Slots of all its members, reserves included, whatever their state.
    pub(crate) fn all_slots(&self) -> u32 {
        self.order.iter().map(|id| self.members[id.index()].policy.slots).fold(0, u32::saturating_add)
    }

    /// Requests that may be parked here (A24). Unless set: as many as the ordinary slots of its members, cooling ones
    /// too, because that is when waiting pays; in a pool smaller than one key's own bound, as many as that.
    pub(crate) fn park_limit(&self) -> u32 {
        if let Some(set) = self.policy.max_waiting {
            return set;
        }
        let usable = self.members.iter().filter(|member| member.usable());
        usable.map(Member::ordinary_slots).fold(0, u32::saturating_add).max(self.policy.max_parked_per_key)
    }

    /// Interns the candidates of a request; empty means every member.
    pub(crate) fn intern(&mut self, candidates: Vec<MemberId>, ledger: Ledger<'_>) -> SetId {
        if candidates.is_empty() {
            self.sets.retain(SetId::EVERYBODY);
            return SetId::EVERYBODY;
        }
        self.intern_named(candidates, ledger)
    }

    /// The same candidates without one.
    pub(crate) fn intern_without(&mut self, set: SetId, member: Option<MemberId>, ledger: Ledger<'_>) -> SetId {
        let others = self.sets.get(set).members.iter().copied().filter(|id| Some(*id) != member).collect();
        self.intern_named(others, ledger)
    }

    fn intern_named(&mut self, candidates: Vec<MemberId>, ledger: Ledger<'_>) -> SetId {
        let (pool, members, traffic) = (self.id, &self.members, &self.traffic);
        self.sets.intern(candidates, PoolLedger { ledger, pool, members, traffic })
    }

    /// Counts a lease in.
    pub(crate) fn enter(&mut self, seat: Seat, parties: &Parties) {
        self.traffic.change(seat.traffic, |leases| *leases += 1);
        if let Some(member) = seat.member {
            self.members[member.index()].in_flight += 1;
        }
        if self.counts(seat.member) {
            self.sets.enter(seat.member, seat.holder, seat.ordinary, parties);
        }
        self.sets.begin_use(seat.holder, seat.set, &self.members, parties);
    }

    /// Counts a lease out.
    pub(crate) fn leave(&mut self, seat: Seat, parties: &Parties) {
        self.traffic.change(seat.traffic, |leases| *leases -= 1);
        if let Some(member) = seat.member {
            self.members[member.index()].in_flight -= 1;
        }
        if self.counts(seat.member) {
            self.sets.leave(seat.member, seat.holder, seat.ordinary, parties);
        }
        self.sets.end_use(seat.holder, seat.set, &self.members, parties);
    }

    /// Leases on a member that takes requests count in T, and those on no member.
    fn counts(&self, member: Option<MemberId>) -> bool {
        member.is_none_or(|member| self.members[member.index()].open)
    }

    /// A request begins to wait.
    pub(crate) fn park(&mut self, slot: Slot, park: ParkId, ask: &Ask, parties: &Parties) {
        self.parked += 1;
        self.counters.parked += 1;
        self.count_parked_in(ask.holder);
        self.sets.park(slot, park, ask, &self.traffic, parties);
        if wants(ask, &self.traffic) {
            self.sets.begin_use(ask.holder, ask.set, &self.members, parties);
        }
    }

    /// One more request of its key waits.
    pub(crate) fn count_parked_in(&mut self, holder: Holder) {
        if let Some(key) = holder.key {
            *self.parked_by_key.entry(key) += 1;
        }
    }

    /// One less.
    pub(crate) fn count_parked_out(&mut self, holder: Holder) {
        if let Some(key) = holder.key
            && let Some(count) = self.parked_by_key.get_mut(&key)
        {
            *count -= 1;
            if *count == 0 {
                self.parked_by_key.remove(&key);
            }
        }
    }

    /// A request waits no longer.
    pub(crate) fn unpark(&mut self, slot: Slot, ask: &Ask, parties: &Parties) {
        self.parked -= 1;
        self.count_parked_out(ask.holder);
        self.sets.unpark(slot, ask, &self.traffic, parties);
        if wants(ask, &self.traffic) {
            self.sets.end_use(ask.holder, ask.set, &self.members, parties);
        }
    }

    /// News about a member. Those who wait may be able to go afterwards. The time to a reset that was cut.
    pub(crate) fn hear(
        &mut self,
        member: MemberId,
        news: MemberNews,
        now: Instant,
        ledger: Ledger<'_>,
    ) -> Option<Duration> {
        let member = self.members.get_mut(member.index())?;
        self.counters.hear(&news);
        let cut = match news {
            MemberNews::RateLimited { until } => member.rate_limit(until, now, &self.policy),
            MemberNews::Overloaded => {
                member.overload(now, &self.policy);
                None
            }
            MemberNews::Up => {
                member.recover();
                None
            }
        };
        self.refresh(now, ledger);
        cut
    }

    /// An operator's order for a member.
    pub(crate) fn order_member(&mut self, member: MemberId, order: MemberOrder, now: Instant, ledger: Ledger<'_>) {
        let Some(member) = self.members.get_mut(member.index()) else { return };
        member.order(order);
        self.refresh(now, ledger);
    }

    /// Brings cool-downs up to `now` and recounts what they changed.
    pub(crate) fn refresh(&mut self, now: Instant, ledger: Ledger<'_>) {
        let changed = self.open_members(now);
        if !changed.is_empty() {
            let (pool, members, traffic) = (self.id, &self.members, &self.traffic);
            self.sets.recount_members(&changed, PoolLedger { ledger, pool, members, traffic });
        }
    }

    /// Members whose state is to be announced, by index.
    pub(crate) fn changed_members(&mut self) -> impl Iterator<Item = (MemberId, Shown)> + '_ {
        let members = (0..).map(MemberId).zip(&mut self.members);
        members.filter_map(|(id, member)| Some((id, member.changed()?)))
    }

    /// The capacity, if it is to be announced: it changed, or a new policy did not say that nothing else did.
    pub(crate) fn changed_capacity(&mut self) -> Option<u32> {
        let capacity = if self.present { self.sets.get(SetId::EVERYBODY).capacity } else { 0 };
        (self.announced_capacity.replace(capacity) != Some(capacity)).then_some(capacity)
    }

    /// The next moment a cool-down ends: asked for with every slot that comes back.
    pub(crate) fn next_change(&self) -> Option<Instant> {
        self.next_change
    }

    /// The same from the members. For checks, and to be kept.
    pub(crate) fn changes_at(&self) -> Option<Instant> {
        self.members.iter().filter_map(Member::next_change).min()
    }

    /// Decides which members are open; those for which that changed.
    ///
    /// If every usable member cools, one that only failed (529, transport) stays open: the one whose cool-down ends
    /// first, then the lowest index. A member that answered 429 is never kept open: it said no.
    fn open_members(&mut self, now: Instant) -> Vec<MemberId> {
        for member in &mut self.members {
            member.advance(now);
        }
        self.next_change = self.changes_at();
        let well = |member: &Member| member.usable() && member.cooling_until().is_none();
        let kept = if self.members.iter().any(well) {
            None
        } else {
            let failing = self.members.iter().enumerate().filter(|(_, member)| member.usable());
            failing.filter_map(|(index, member)| Some((member.overloaded_until()?, index))).min()
        };
        let mut changed = Vec::new();
        for (index, member) in self.members.iter_mut().enumerate() {
            let open = well(member) || kept.is_some_and(|(_, kept)| kept == index);
            if open != member.open {
                member.open = open;
                changed.push(MemberId(u32::try_from(index).expect("members are fewer than slots")));
            }
        }
        changed
    }
}
