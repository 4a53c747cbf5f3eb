//! One pool: its members, what is in flight on them, its candidate sets. Answers "where could this go" and keeps every
//! count in one place. Knows no sessions, no leases and no time but the `now` it is given.

use std::collections::BTreeMap;

use crate::demand::Demand;
use crate::id::{KeyId, MemberId, PoolId};
use crate::io::{Kind, MemberNews, Reason};
use crate::load::{Holder, Load};
use crate::member::Member;
use crate::park::{Ask, Class};
use crate::policy::{FairShare, Mode, PoolPolicy};
use crate::retry::{self, DrainMeter, TypicalService, VirtualQueue};
use crate::set::{CandidateSet, SetId, Sets};
use crate::share::{self, Standing};
use crate::time::{Duration, Instant};
use crate::traffic::Traffic;

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
    /// Leases on no member.
    pub(crate) unplaced: Load,
    pub(crate) sets: Sets,
    /// Parked requests, those that move included.
    pub(crate) parked: u32,
    pub(crate) parked_by_key: BTreeMap<KeyId, u32>,
    pub(crate) drain: DrainMeter,
    pub(crate) queue: VirtualQueue,
    pub(crate) service: TypicalService,
    pub(crate) counters: Counters,
}

/// What happened in a pool since the engine was made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) granted: u64,
    pub(crate) parked: u64,
    pub(crate) shed: BTreeMap<Reason, u64>,
    /// (would park, would refuse).
    pub(crate) would_have: BTreeMap<Reason, (u64, u64)>,
}

/// What keeps a request from going ahead now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// It is over its fair share.
    OverShare,
    /// No candidate has a slot.
    Exhausted,
    /// Every candidate cools after a 429; the first is back then.
    AllCooling(Instant),
}

impl Pool {
    pub(crate) fn new(id: PoolId, policy: PoolPolicy, now: Instant) -> Self {
        let mut pool = Self {
            id,
            policy: PoolPolicy { members: Vec::new(), ..policy.clone() },
            present: false,
            members: Vec::new(),
            order: Vec::new(),
            traffic: Traffic::default(),
            unplaced: Load::default(),
            sets: Sets::new(),
            parked: 0,
            parked_by_key: BTreeMap::new(),
            drain: DrainMeter::default(),
            queue: VirtualQueue::default(),
            service: TypicalService::default(),
            counters: Counters::default(),
        };
        pool.obey(policy, now);
        pool
    }

    /// Takes a new policy. Members keep their index by name, their leases and their cool-downs.
    pub(crate) fn obey(&mut self, policy: PoolPolicy, now: Instant) {
        self.present = true;
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
        self.policy = policy;
        let mut everybody = self.order.clone();
        everybody.sort_unstable();
        self.sets.set_everybody(everybody);
        self.open_members(now);
        self.sets.recount_all(&self.members, &self.unplaced);
    }

    pub(crate) fn member(&self, id: MemberId) -> Option<&Member> {
        self.members.get(id.index())
    }

    /// The member, if it is in the policy now.
    pub(crate) fn present_member(&self, id: MemberId) -> Option<&Member> {
        self.member(id).filter(|member| member.present)
    }

    /// No member has a slot: there is no gate (A2).
    pub(crate) fn is_unlimited(&self) -> bool {
        self.order.iter().all(|id| self.members[id.index()].policy.slots == 0)
    }

    /// Requests that may be parked here: as many as the ordinary slots of its members, cooling ones too, because that
    /// is when waiting pays; in a pool smaller than one key's own bound, as many as that.
    pub(crate) fn park_limit(&self) -> u32 {
        let usable = self.members.iter().filter(|member| member.usable());
        usable.map(Member::ordinary_slots).fold(0, u32::saturating_add).max(self.policy.max_parked_per_key)
    }

    /// Interns the candidates of a request; empty means every member.
    pub(crate) fn intern(&mut self, candidates: Vec<MemberId>) -> SetId {
        if candidates.is_empty() {
            self.sets.retain(SetId::EVERYBODY);
            return SetId::EVERYBODY;
        }
        self.sets.intern(candidates, &self.members, &self.unplaced)
    }

    /// The same candidates without one.
    pub(crate) fn intern_without(&mut self, set: SetId, member: Option<MemberId>) -> SetId {
        let others = self.sets.get(set).members.iter().copied().filter(|id| Some(*id) != member).collect();
        self.sets.intern(others, &self.members, &self.unplaced)
    }

    /// Counts a lease in.
    pub(crate) fn add(&mut self, member: Option<MemberId>, holder: Holder, kind: Kind) {
        self.change(member, |load| load.add(holder, kind), holder, Demand::add);
    }

    /// Counts a lease out.
    pub(crate) fn remove(&mut self, member: Option<MemberId>, holder: Holder, kind: Kind) {
        self.change(member, |load| load.remove(holder, kind), holder, Demand::remove);
    }

    fn change(
        &mut self,
        member: Option<MemberId>,
        change: impl Fn(&mut Load) -> u32,
        holder: Holder,
        wanted: fn(&mut Demand, KeyId),
    ) {
        let open = match member {
            Some(id) => {
                let member = &mut self.members[id.index()];
                change(&mut member.load);
                member.open
            }
            None => {
                change(&mut self.unplaced);
                true
            }
        };
        if open {
            self.sets.change(member, holder, change, wanted);
        }
    }

    /// News about a member. Those who wait may be able to go afterwards.
    pub(crate) fn hear(&mut self, member: MemberId, news: MemberNews, now: Instant) {
        let Some(member) = self.members.get_mut(member.index()) else { return };
        match news {
            MemberNews::RateLimited { until } => member.rate_limit(until, now, &self.policy),
            MemberNews::Overloaded => member.overload(now, &self.policy),
            MemberNews::Up => member.recover(),
        }
        self.refresh(now);
    }

    /// Brings cool-downs up to `now` and recounts what they changed.
    pub(crate) fn refresh(&mut self, now: Instant) {
        let changed = self.open_members(now);
        if !changed.is_empty() {
            self.sets.recount(&changed, &self.members, &self.unplaced);
        }
    }

    /// The next moment a cool-down ends.
    pub(crate) fn next_change(&self) -> Option<Instant> {
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

    /// How a request stands with the fair-share rule.
    pub(crate) fn standing(&self, set: SetId, holder: Holder) -> Standing {
        self.standing_in(self.sets.get(set), holder)
    }

    fn standing_in(&self, set: &CandidateSet, holder: Holder) -> Standing {
        let (rule, least) = (self.policy.fair_share, self.policy.min_guarantee);
        share::judge(rule, least, set.capacity, &set.load, &set.demand, holder)
    }

    /// `max-min` acts.
    fn is_max_min(&self) -> bool {
        matches!(self.policy.fair_share, FairShare::MaxMin { .. }) && self.policy.mode == Mode::Enforce
    }

    /// What a request refused by its share has to wait at least, when leases end `interval` apart (A23).
    pub(crate) fn least_wait(&self, ask: &Ask, reason: Reason, interval: Option<Duration>) -> Duration {
        match interval {
            Some(interval) if reason == Reason::FairShare => {
                let set = self.sets.get(ask.set);
                let standing = self.standing_in(set, ask.holder);
                let until_below = (standing.key_in_flight + 1).saturating_sub(standing.share);
                let own = (standing.key_in_flight, set.load.total());
                retry::until_fair(interval, until_below, own, standing.until_loose)
            }
            _ => Duration::ZERO,
        }
    }

    /// The fair-share rule stands in the way of this holder, and acts.
    fn is_over_share(&self, set: &CandidateSet, class: Class, holder: Holder) -> bool {
        class == Class::Keyed && self.policy.mode == Mode::Enforce && !self.standing_in(set, holder).admitted
    }

    /// Judges a request by the fair share and then by its members' slots: the member it may have (none in a pool without
    /// a gate), or what is in its way.
    pub(crate) fn judge(&self, ask: &Ask) -> Result<Option<MemberId>, Obstacle> {
        let set = self.sets.get(ask.set);
        if self.is_over_share(set, ask.class, ask.holder) {
            return Err(Obstacle::OverShare);
        }
        self.place(set, ask.class, ask.sticky)
            .ok_or_else(|| self.all_cooling(set).map_or(Obstacle::Exhausted, Obstacle::AllCooling))
    }

    /// Whether the head of a lane could go ahead; where is not yet said.
    pub(crate) fn lane_can_go(&self, set: &CandidateSet, class: Class, holder: Holder) -> bool {
        !self.is_over_share(set, class, holder) && self.place(set, class, None).is_some()
    }

    /// A member with a slot for this kind of work: the sticky one, else the least loaded by fraction of its ordinary
    /// slots, ties to the lower index.
    ///
    /// Ordinary work needs room twice: on the member (all its leases count, so the reserve stays free), and in the set
    /// (ordinary leases below C; under `max-min`, all leases). The second matters after a shrink or a re-registration only: then nothing is granted
    /// until it fits. A move is no new lease and needs room on the member alone. Re-attached work has one candidate and
    /// may fill it.
    fn place(&self, set: &CandidateSet, class: Class, sticky: Option<MemberId>) -> Option<Option<MemberId>> {
        if self.is_unlimited() {
            return Some(None);
        }
        let has_room = |id: &MemberId| {
            let member = &self.members[id.index()];
            let slots = if class == Class::Reattach { member.policy.slots } else { member.ordinary_slots() };
            member.open && member.load.total() < slots
        };
        if matches!(class, Class::Keyless | Class::Keyed) && set.load.ordinary() >= set.capacity {
            return None;
        }
        if class == Class::Keyed && self.is_max_min() && set.load.total() >= set.capacity {
            return None;
        }
        sticky
            .filter(|id| set.contains(*id) && has_room(id))
            .or_else(|| self.least_loaded(set.members.iter().copied().filter(has_room)))
            .map(Some)
    }

    /// Where a request goes while bypass is on: like [`Self::place`], but somebody always takes it.
    pub(crate) fn place_anyhow(&self, ask: &Ask) -> Option<MemberId> {
        let set = self.sets.get(ask.set);
        self.place(set, ask.class, ask.sticky).unwrap_or_else(|| {
            let present = set.members.iter().copied().filter(|id| self.members[id.index()].present);
            let open = present.clone().filter(|id| self.members[id.index()].open);
            self.least_loaded(open).or_else(|| self.least_loaded(present))
        })
    }

    fn least_loaded(&self, candidates: impl Iterator<Item = MemberId>) -> Option<MemberId> {
        let fraction = |id: &MemberId| {
            let member = &self.members[id.index()];
            (u64::from(member.load.total()), u64::from(member.ordinary_slots().max(1)))
        };
        candidates.min_by(|a, b| {
            let ((a_held, a_slots), (b_held, b_slots)) = (fraction(a), fraction(b));
            (a_held * b_slots).cmp(&(b_held * a_slots)).then(a.cmp(b))
        })
    }

    /// When the first candidate is back, if all that could take requests cool after a 429.
    fn all_cooling(&self, set: &CandidateSet) -> Option<Instant> {
        let mut earliest: Option<Instant> = None;
        for member in set.members.iter().map(|id| &self.members[id.index()]).filter(|member| member.usable()) {
            member.rate_limited_until().filter(|_| !member.open)?;
            let back = member.cooling_until()?;
            earliest = Some(earliest.map_or(back, |earliest| earliest.min(back)));
        }
        earliest
    }
}
