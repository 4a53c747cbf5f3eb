//! Caps of keys, orgs and classes: how many requests somebody may have on the node, in flight and parked. Over one of them
//! the answer is no, at once (B4). Who is asked for higher tiers, and what was answered.

use std::collections::BTreeMap;

use crate::admission::admit::Refusal;
use crate::engine::Engine;
use crate::id::{ClassId, OrgId, SessionId};
use crate::identity::party::{Holder, Name, Party};
use crate::io::{Origin, Output, Reason};
use crate::policy::{Mode, TIER_PATIENCE, TIER_TTL_MAX};
use crate::time::{Duration, Instant};
use crate::waiting::park::Ask;

/// Orgs whose tiers are remembered at most, some 5 MB. While so many are pending or hold, no other org's tier is asked for,
/// and its base ceiling holds.
pub(crate) const TIERS_REMEMBERED: usize = 65_536;

/// Expired entries are looked for at most this often: looking visits all of them.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// What is known of orgs' tiers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tiers {
    of: BTreeMap<OrgId, Tier>,
    /// When expired entries were last looked for.
    swept: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tier {
    /// What was answered, and until when it holds.
    answer: Option<(Option<ClassId>, Instant)>,
    /// The session that was asked, and until when it is not asked again.
    asked: Option<(SessionId, Instant)>,
    /// The question has no answer yet.
    pending: bool,
}

impl Tier {
    fn is_over(&self, now: Instant) -> bool {
        self.asked.is_none_or(|(_, until)| until <= now) && self.answer.is_none_or(|(_, until)| until <= now)
    }
}

impl Tiers {
    /// The answer that holds.
    pub(crate) fn holding(&self, org: OrgId, now: Instant) -> Option<(Option<ClassId>, Instant)> {
        self.of.get(&org)?.answer.filter(|(_, until)| now < *until)
    }

    /// Takes the answer to a pending question that this session was asked; whether it was one.
    fn learn(&mut self, session: SessionId, org: OrgId, answer: (Option<ClassId>, Instant)) -> bool {
        let asked = |tier: &&mut Tier| tier.pending && tier.asked.is_some_and(|(asked, _)| asked == session);
        let Some(tier) = self.of.get_mut(&org).filter(asked) else { return false };
        (tier.answer, tier.pending) = (Some(answer), false);
        true
    }

    /// Whether to ask this session now; it then counts as asked.
    fn ask(&mut self, session: SessionId, org: OrgId, now: Instant) -> bool {
        let due = self.of.get(&org).map(|tier| tier.is_over(now));
        if due.unwrap_or_else(|| self.has_room(now)) {
            let tier = self.of.entry(org).or_default();
            (tier.asked, tier.pending) = (Some((session, now.after(TIER_PATIENCE))), true);
            return true;
        }
        false
    }

    fn has_room(&mut self, now: Instant) -> bool {
        let may_sweep = self.swept.is_none_or(|at| at.after(SWEEP_EVERY) <= now);
        if self.of.len() >= TIERS_REMEMBERED && may_sweep {
            self.swept = Some(now);
            self.of.retain(|_, tier| !tier.is_over(now));
        }
        self.of.len() < TIERS_REMEMBERED
    }
}

impl Engine {
    /// Its key is suspended, or the key's own cap is reached.
    pub(crate) fn key_refusal(&mut self, ask: &Ask) -> Option<(Refusal, Mode)> {
        let key = self.parties.get(ask.holder.key?);
        if key.entitled.suspended {
            return Some((self.suspended(ask.holder), Mode::Enforce));
        }
        let limit = reached(key, key.entitled.cap().unwrap_or(0))?;
        Some((Refusal { limit, ..Refusal::new(Reason::KeyCap, Origin::Key, 429) }, self.node.caps_mode))
    }

    /// The org's cap is reached, or the ceiling of its class or of the key's.
    pub(crate) fn plan_refusal(&mut self, ask: &Ask) -> Option<(Refusal, Mode)> {
        let org = ask.holder.org;
        let party = self.parties.get(org.or(ask.holder.key)?);
        let (reason, cap) = match (party.entitled.cap(), org) {
            (Some(cap), Some(_)) => (Reason::OrgCap, cap),
            // A cap of the key's own was judged before.
            (Some(_), None) => return None,
            (None, _) => (Reason::ClassCap, self.ceiling(ask.session, ask.holder)),
        };
        let origin = if org.is_some() { Origin::Org } else { Origin::Key };
        let limit = reached(self.parties.get(org.or(ask.holder.key)?), cap)?;
        Some((Refusal { limit, ..Refusal::new(reason, origin, 429) }, self.node.caps_mode))
    }

    /// The refusal of a key that an operator suspended: 403, because API clients retry a 429 by themselves.
    pub(crate) fn suspended(&self, holder: Holder) -> Refusal {
        let over = self.parties.key_of(holder).and_then(|key| self.parties.settings.overrides.get(&key));
        Refusal { back: over.and_then(|over| over.until), ..Refusal::new(Reason::Suspended, Origin::Key, 403) }
    }

    /// The ceiling of a holder's class, raised by the org's tier. Asks for the tier when the base is reached; nobody waits
    /// for the answer, so a late or failed look-up means the base.
    fn ceiling(&mut self, session: SessionId, holder: Holder) -> u32 {
        let Some(party) = holder.classed().map(|party| self.parties.get(party)) else { return 0 };
        let base = party.entitled.ceiling;
        let Name::Org(org) = party.name() else { return base };
        if base > 0 && party.counted + 1 >= base && self.tiers.ask(session, org, self.now) {
            self.totals.tier_asks += 1;
            self.outputs.push_back(Output::TierAsk { session, org });
        }
        self.raised(base, org)
    }

    fn raised(&self, base: u32, org: OrgId) -> u32 {
        let tier = self.tiers.holding(org, self.now).and_then(|(class, _)| class);
        let raised = tier.and_then(|class| self.parties.classes.entitlement(Some(class)).cap);
        match (base, raised) {
            (0, _) | (_, Some(0)) => 0,
            (base, raised) => base.max(raised.unwrap_or(0)),
        }
    }

    /// What an org or key may have counted; 0 is no limit. For display.
    pub(crate) fn cap_of(&self, party: &Party) -> u32 {
        match (party.entitled.cap(), party.name()) {
            (Some(cap), _) => cap,
            (None, Name::Org(org)) => self.raised(party.entitled.ceiling, org),
            (None, Name::Key(_) | Name::Anonymous(_)) => 0,
        }
    }

    /// An answer about an org's tier. One that this session was not asked for raises nothing and is counted: any local
    /// process could lift an org's ceiling otherwise.
    pub(crate) fn learn_tier(&mut self, session: SessionId, org: OrgId, class: Option<ClassId>, ttl: Duration) {
        let until = self.now.after(ttl.min(TIER_TTL_MAX));
        if !self.tiers.learn(session, org, (class, until)) {
            self.totals.tier_answers_ignored += 1;
        }
    }
}

/// A cap somebody has reached, and what was counted against it.
fn reached(party: &Party, cap: u32) -> Option<(u32, u32)> {
    (cap > 0 && party.counted >= cap).then_some((cap, party.counted))
}
