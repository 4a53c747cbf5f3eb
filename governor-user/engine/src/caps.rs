//! Caps of keys, orgs and classes: how many requests somebody may have on the node, in flight and parked. Over one of them
//! the answer is no, at once (B4). Who is asked for higher tiers, and what was answered.

use std::collections::BTreeMap;

use crate::admit::Refusal;
use crate::engine::Engine;
use crate::id::{ClassId, OrgId, SessionId};
use crate::io::{Origin, Output, Reason};
use crate::park::Ask;
use crate::party::{Holder, Name, Party};
use crate::policy::{Mode, TIER_PATIENCE};
use crate::time::{Duration, Instant};

/// Orgs whose tiers are remembered at most before those that hold no longer are forgotten.
const MANY_TIERS: usize = 1024;

/// What is known of orgs' tiers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tiers {
    of: BTreeMap<OrgId, Tier>,
    /// Forgets when there are more than this.
    bound: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tier {
    /// What was answered, and until when it holds.
    answer: Option<(Option<ClassId>, Instant)>,
    /// Until when it is not asked again, having been asked.
    asked: Option<Instant>,
}

impl Tier {
    fn is_over(&self, now: Instant) -> bool {
        self.asked.is_none_or(|until| until <= now) && self.answer.is_none_or(|(_, until)| until <= now)
    }
}

impl Tiers {
    /// The answer that holds.
    pub(crate) fn holding(&self, org: OrgId, now: Instant) -> Option<(Option<ClassId>, Instant)> {
        self.of.get(&org)?.answer.filter(|(_, until)| now < *until)
    }

    fn learn(&mut self, org: OrgId, class: Option<ClassId>, now: Instant, ttl: Duration) {
        self.entry(org, now).answer = Some((class, now.after(ttl)));
    }

    /// Whether to ask now; it then counts as asked.
    fn ask(&mut self, org: OrgId, now: Instant) -> bool {
        let due = self.of.get(&org).is_none_or(|tier| tier.is_over(now));
        if due {
            self.entry(org, now).asked = Some(now.after(TIER_PATIENCE));
        }
        due
    }

    fn entry(&mut self, org: OrgId, now: Instant) -> &mut Tier {
        if self.of.len() > self.bound.max(MANY_TIERS) {
            self.of.retain(|_, tier| !tier.is_over(now));
            self.bound = self.of.len() * 2;
        }
        self.of.entry(org).or_default()
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

    /// The refusal of a key that an operator suspended.
    pub(crate) fn suspended(&self, holder: Holder) -> Refusal {
        let over = self.parties.key_of(holder).and_then(|key| self.parties.settings.overrides.get(&key));
        Refusal { back: over.and_then(|over| over.until), ..Refusal::new(Reason::Suspended, Origin::Key, 429) }
    }

    /// The ceiling of a holder's class, raised by the org's tier. Asks for the tier when the base is reached; nobody waits
    /// for the answer, so a late or failed look-up means the base.
    fn ceiling(&mut self, session: SessionId, holder: Holder) -> u32 {
        let Some(party) = holder.classed().map(|party| self.parties.get(party)) else { return 0 };
        let base = party.entitled.ceiling;
        let Name::Org(org) = party.name() else { return base };
        if base > 0 && party.counted + 1 >= base && self.tiers.ask(org, self.now) {
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
            (None, Name::Key(_)) => 0,
        }
    }

    /// News of an org's tier.
    pub(crate) fn learn_tier(&mut self, org: OrgId, class: Option<ClassId>, ttl: Duration) {
        self.tiers.learn(org, class, self.now, ttl);
    }
}

/// A cap somebody has reached, and what was counted against it.
fn reached(party: &Party, cap: u32) -> Option<(u32, u32)> {
    (cap > 0 && party.counted >= cap).then_some((cap, party.counted))
}
