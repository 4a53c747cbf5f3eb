//! The steps before fair share: node cap, overload level, suspended keys, caps. Each refuses at once.

use super::Model;
use super::Parked;
use super::Who;
use governor_engine::id::{DecisionId, OrgId};
use governor_engine::io::{Decision, Level, Origin, Outcome, Output, Priority, Reason};
use governor_engine::policy::{Mode, TIER_PATIENCE};

impl Model {
    /// True if the request was refused. What is only observed is recorded, one decision a request.
    pub(super) fn refused_at_once(&mut self, w: &mut Parked) -> bool {
        if self.node.cap > 0 && self.counted() >= self.node.cap {
            self.shed(w, Reason::NodeCap, None, None);
            return true;
        }
        if self.level_sheds(w.priority) && self.limit(w, self.node.shed_mode, Reason::Overload, Origin::Node, (0, 0)) {
            return true;
        }
        if w.who.named().is_some_and(|key| self.overrides.get(&key).is_some_and(|over| over.suspend)) {
            self.shed(w, Reason::Suspended, None, None);
            return true;
        }
        self.over_cap(w)
    }

    fn level_sheds(&self, priority: Priority) -> bool {
        match self.level {
            Level::Normal | Level::Elevated => false,
            Level::High => priority == Priority::Sheddable,
            Level::Overloaded => priority != Priority::Critical,
        }
    }

    fn over_cap(&mut self, w: &mut Parked) -> bool {
        let Who { key, org } = w.who;
        let mode = self.node.caps_mode;
        let own = key.and_then(|key| self.key_cap(key));
        if let (Some(key), Some(cap)) = (key, own) {
            let counted = self.counted_where(|who| who.key == Some(key));
            if cap > 0 && counted >= cap && self.limit(w, mode, Reason::KeyCap, Origin::Key, (cap, counted)) {
                return true;
            }
        }
        let (reason, origin, cap, counted) = match (org, key) {
            (Some(org), _) => {
                let counted = self.counted_where(|who| who.org == Some(org));
                if let Some(cap) = self.org_cap(org) {
                    (Reason::OrgCap, Origin::Org, cap, counted)
                } else {
                    self.ask_tier(w, org, counted);
                    (Reason::ClassCap, Origin::Org, self.ceiling(w.who), counted)
                }
            }
            (None, Some(key)) if own.is_none() => {
                // The same key may be in an org in other requests: those are the org's.
                let counted = self.counted_where(|who| who.key == Some(key));
                (Reason::ClassCap, Origin::Key, self.base_ceiling(w.who), counted)
            }
            (None, _) => return false,
        };
        cap > 0 && counted >= cap && self.limit(w, mode, reason, origin, (cap, counted))
    }

    fn ask_tier(&mut self, w: &Parked, org: OrgId, counted: u32) {
        let base = self.base_ceiling(w.who);
        let tier = self.tiers.entry(org).or_default();
        let answered = tier.answer.is_some_and(|(_, until)| self.now < until);
        let asked = tier.asked.is_some_and(|at| self.now < at.after(TIER_PATIENCE));
        if base > 0 && counted + 1 >= base && !answered && !asked {
            (tier.asked, tier.pending) = (Some(self.now), Some(w.session));
            self.out.push(Output::TierAsk { session: w.session, org });
        }
    }

    /// Refuses, or records that it would; whether it refused.
    fn limit(&mut self, w: &mut Parked, mode: Mode, reason: Reason, by: Origin, limit: (u32, u32)) -> bool {
        if mode == Mode::Enforce {
            self.shed_for(w, reason, by, limit);
            return true;
        }
        if !w.recorded {
            let id = self.next_record_id();
            let status = if by == Origin::Node { 529 } else { 429 };
            let mut decision = self.decision(w, id, Outcome::WouldRefuse, reason, (by, status));
            (decision.numbers.limit, decision.numbers.limited) = limit;
            decision.retry_after = self.would_tell(w, reason, by, id);
            self.out.push(Output::WouldHave { decision: Box::new(decision) });
            w.recorded = true;
        }
        false
    }

    fn shed_for(&mut self, w: &Parked, reason: Reason, by: Origin, limit: (u32, u32)) {
        let id = self.next_decision_id();
        let status = if by == Origin::Node { 529 } else { 429 };
        let mut decision: Decision = self.decision(w, id, Outcome::Shed, reason, (by, status));
        (decision.numbers.limit, decision.numbers.limited) = limit;
        decision.retry_after = self.told(w, reason, by, None, id);
        debug_assert_eq!(decision.id, DecisionId(id));
        self.out.push(Output::Refused { request: w.request, decision: Box::new(decision) });
    }
}
