//! Whether a request may go ahead in its pool now, by its share and then by its members' slots, and where to. Changes
//! nothing.

use crate::fairness::set::CandidateSet;
use crate::fairness::share::{Facts, Requester, Standing};
use crate::id::SetId;
use crate::id::{MemberId, TrafficId};
use crate::identity::party::{Holder, Parties, PartyId};
use crate::io::Reason;
use crate::members::member::Member;
use crate::policy::{FairShare, Mode};
use crate::pools::pool::Pool;
use crate::pools::retry;
use crate::time::{Duration, Instant};
use crate::waiting::park::{Ask, Door};
use crate::waiting::stand::{Head, LaneKey};

/// What keeps a request from going ahead now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// It is over its fair share.
    OverShare,
    /// Its kind of traffic fills its sub-capacity.
    SubCapacity,
    /// No candidate has a slot.
    Exhausted,
    /// Every candidate cools after a 429 or by order; the first is back then.
    AllCooling(Instant),
}

impl Pool {
    /// How a request stands with the fair-share rule.
    pub(crate) fn standing(&self, set: SetId, holder: Holder, parties: &Parties) -> Standing {
        let set = self.sets.get(set);
        self.facts(set, holder.key, holder.unit(self.sets.by_org), parties).standing()
    }

    /// The rule lets a request in, whether it acts or not.
    pub(crate) fn would_admit(&self, set: SetId, holder: Holder, parties: &Parties) -> bool {
        let set = self.sets.get(set);
        self.facts(set, holder.key, holder.unit(self.sets.by_org), parties).admitted()
    }

    fn facts<'a>(
        &self,
        set: &'a CandidateSet,
        key: Option<PartyId>,
        unit: Option<PartyId>,
        parties: &Parties,
    ) -> Facts<'a> {
        let of_key = key.map(|key| set.counts(key));
        let requester = unit.zip(of_key).map(|(unit, of_key)| {
            let of_unit = if key == Some(unit) { of_key } else { set.counts(unit) };
            Requester {
                key_in_flight: of_key.in_flight,
                in_flight: if self.sets.by_org { of_unit.held } else { of_unit.in_flight },
                wanted: of_unit.demand(),
                terms: parties.get(unit).entitled.terms,
            }
        });
        Facts {
            rule: self.policy.fair_share,
            min_guarantee: self.policy.min_guarantee,
            capacity: set.capacity,
            total: set.total,
            keyless: set.keyless,
            active_keys: set.active_keys + u32::from(of_key.is_some_and(|of| of.in_flight == 0)),
            demand: &set.demand,
            requester,
        }
    }

    /// Keys in flight over a set, the requester counted exactly once.
    pub(crate) fn active_keys(&self, set: SetId, holder: Holder) -> u32 {
        let set = self.sets.get(set);
        set.active_keys + u32::from(holder.key.is_some_and(|key| set.counts(key).in_flight == 0))
    }

    /// What a request refused by its share has to wait at least, when leases end `interval` apart (A23).
    pub(crate) fn least_wait(
        &self,
        ask: &Ask,
        reason: Reason,
        interval: Option<Duration>,
        parties: &Parties,
    ) -> Duration {
        let Some(interval) = interval.filter(|_| reason == Reason::FairShare) else { return Duration::ZERO };
        let set = self.sets.get(ask.set);
        let standing = self.standing(ask.set, ask.holder, parties);
        let unit = ask.holder.unit(self.sets.by_org);
        let own = if unit.is_some() { set.held(unit, self.sets.by_org) } else { 0 };
        let until_below = (own + 1).saturating_sub(standing.share);
        retry::until_fair(interval, until_below, (own, set.total), standing.until_loose)
    }

    /// Judges a request by the fair share and then by slots: the member it may have (none in a pool without a gate), or
    /// what is in its way.
    pub(crate) fn judge(&self, ask: &Ask, parties: &Parties) -> Result<Option<MemberId>, Obstacle> {
        let set = self.sets.get(ask.set);
        let enforced = ask.door == Door::Keyed && self.policy.mode == Mode::Enforce;
        if enforced && !self.facts(set, ask.holder.key, ask.holder.unit(self.sets.by_org), parties).admitted() {
            return Err(Obstacle::OverShare);
        }
        if self.is_full_of(ask.door, ask.traffic) {
            return Err(Obstacle::SubCapacity);
        }
        self.place(set, ask.door, ask.sticky)
            .ok_or_else(|| self.all_cooling(set).map_or(Obstacle::Exhausted, Obstacle::AllCooling))
    }

    /// Whether the first of a lane could go ahead; where is not yet said.
    pub(crate) fn lane_can_go(&self, set: &CandidateSet, lane: LaneKey, head: &Head, parties: &Parties) -> bool {
        let enforced = lane.door == Door::Keyed && self.policy.mode == Mode::Enforce;
        if enforced && !self.facts(set, head.key, head.unit, parties).admitted() {
            return false;
        }
        !self.is_full_of(lane.door, lane.traffic) && self.place(set, lane.door, None).is_some()
    }

    /// Its kind of traffic stands in a request's way.
    fn is_full_of(&self, door: Door, traffic: Option<TrafficId>) -> bool {
        matches!(door, Door::Keyless | Door::Keyed | Door::Child) && self.traffic.is_full(traffic)
    }

    /// A member with a slot for this kind of work: the sticky one, else the least loaded by fraction of its ordinary
    /// slots, ties to the lower index.
    ///
    /// Ordinary work needs room twice: on the member (all its leases count, so the reserve stays free), and in the set
    /// (ordinary leases below C; under `max-min`, all leases). The second matters after a shrink or a re-registration
    /// only: then nothing is granted until it fits. A move is no new lease and needs room on the member alone.
    /// Re-attached work has one candidate and may fill it, a child may fill any.
    fn place(&self, set: &CandidateSet, door: Door, sticky: Option<MemberId>) -> Option<Option<MemberId>> {
        if self.is_unlimited() {
            return Some(None);
        }
        if matches!(door, Door::Keyless | Door::Keyed) && set.ordinary >= set.capacity {
            return None;
        }
        let max_min = matches!(self.policy.fair_share, FairShare::MaxMin { .. }) && self.policy.mode == Mode::Enforce;
        if door == Door::Keyed && max_min && set.total >= set.capacity {
            return None;
        }
        let may_use_reserve = matches!(door, Door::Reattach | Door::Child);
        let has_room = |member: &Member, ordinary: u32| {
            member.open && member.in_flight < if may_use_reserve { member.policy.slots } else { ordinary }
        };
        let takes = |id: &MemberId| {
            let member = &self.members[id.index()];
            set.contains(*id) && has_room(member, member.ordinary_slots())
        };
        sticky.filter(takes).or_else(|| self.least_loaded(set, has_room)).map(Some)
    }

    /// Where a request goes while bypass is on: like [`Self::place`], but some member always takes it.
    pub(crate) fn place_anyhow(&self, ask: &Ask) -> Option<MemberId> {
        let set = self.sets.get(ask.set);
        self.place(set, ask.door, ask.sticky).unwrap_or_else(|| {
            let open = self.least_loaded(set, |member, _| member.present && member.open);
            open.or_else(|| self.least_loaded(set, |member, _| member.present))
        })
    }

    /// Of the members of a set that fit, by themselves and their ordinary slots, the least loaded.
    fn least_loaded(&self, set: &CandidateSet, fits: impl Fn(&Member, u32) -> bool) -> Option<MemberId> {
        let mut least = None;
        // Loads are fractions, compared by their cross products; 1/0 is more than any.
        let (mut least_held, mut least_slots) = (1, 0);
        for id in &set.members {
            let member = &self.members[id.index()];
            let ordinary = member.ordinary_slots();
            let (held, slots) = (u64::from(member.in_flight), u64::from(ordinary.max(1)));
            // They are in order of their ids, so that a tie stays with the lower one.
            if fits(member, ordinary) && held * least_slots < least_held * slots {
                (least, least_held, least_slots) = (Some(*id), held, slots);
            }
        }
        least
    }

    /// When the first candidate is back, if all that could take requests cool after a 429 or by order.
    fn all_cooling(&self, set: &CandidateSet) -> Option<Instant> {
        let mut earliest: Option<Instant> = None;
        for member in set.members.iter().map(|id| &self.members[id.index()]).filter(|member| member.usable()) {
            member.refusing_until().filter(|_| !member.open)?;
            let back = member.cooling_until()?;
            earliest = Some(earliest.map_or(back, |earliest| earliest.min(back)));
        }
        earliest
    }
}
