//! Caps of keys, orgs and classes: how many requests each may have on the node, in flight and parked. Over one of them
//! the answer is no, at once (B4). Who is asked for higher tiers, and what was answered.

use crate::engine::Engine;
use crate::engine::admission::Refusal;
use crate::id::{ClassId, OrgId, SessionId};
use crate::identity::party::{Holder, Name, Party};
use crate::io::{Origin, Output, Reason};
use crate::policy::{Mode, TIER_TTL_MAX};
use crate::time::Duration;
use crate::waiting::park::Ask;

impl Engine {
    /// Its key is suspended, or the key's own cap is reached.
    pub(in crate::engine) fn key_refusal(&mut self, ask: &Ask) -> Option<(Refusal, Mode)> {
        let key = self.parties.get(ask.holder.key?);
        if key.entitled.suspended {
            return Some((self.suspended(ask.holder), Mode::Enforce));
        }
        let limit = reached(key, key.entitled.cap().unwrap_or(0))?;
        Some((Refusal { limit, ..Refusal::new(Reason::KeyCap, Origin::Key, 429) }, self.node.caps_mode))
    }

    /// The org's cap is reached, or the ceiling of its class or of the key's.
    pub(in crate::engine) fn plan_refusal(&mut self, ask: &Ask) -> Option<(Refusal, Mode)> {
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
    pub(in crate::engine) fn suspended(&self, holder: Holder) -> Refusal {
        let over = self.parties.key_of(holder).and_then(|key| self.parties.settings.overrides.get(&key));
        Refusal { back: over.and_then(|over| over.until), ..Refusal::new(Reason::Suspended, Origin::Key, 403) }
    }

    /// The ceiling of a holder's class, raised by the org's tier. Asks for the tier when the base is reached; no
    /// request waits for the answer, so a late or failed look-up means the base.
    fn ceiling(&mut self, session: SessionId, holder: Holder) -> u32 {
        let Some(party) = holder.classed().map(|party| self.parties.get(party)) else { return 0 };
        let base = party.entitled.ceiling;
        let Name::Org(org) = party.name() else { return base };
        if base > 0 && party.counted + 1 >= base && self.tiers.ask(session, org, self.now) {
            self.totals.tier_asks += 1;
            self.announce(Output::TierAsk { session, org });
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
    pub(in crate::engine) fn cap_of(&self, party: &Party) -> u32 {
        match (party.entitled.cap(), party.name()) {
            (Some(cap), _) => cap,
            (None, Name::Org(org)) => self.raised(party.entitled.ceiling, org),
            (None, Name::Key(_) | Name::Anonymous(_)) => 0,
        }
    }

    /// An answer about an org's tier. One that this session was not asked for raises nothing and is counted: any local
    /// process could lift an org's ceiling otherwise.
    pub(in crate::engine) fn learn_tier(
        &mut self,
        session: SessionId,
        org: OrgId,
        class: Option<ClassId>,
        ttl: Duration,
    ) {
        let until = self.now.after(ttl.min(TIER_TTL_MAX));
        if !self.tiers.learn(session, org, (class, until)) {
            self.totals.tier_answers_ignored += 1;
        }
    }
}

/// A cap that is reached, and what was counted against it.
fn reached(party: &Party, cap: u32) -> Option<(u32, u32)> {
    (cap > 0 && party.counted >= cap).then_some((cap, party.counted))
}
