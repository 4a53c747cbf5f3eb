//! What is known of the tiers of orgs: who was asked, and what was answered.

use crate::id::{ClassId, OrgId, SessionId};
use crate::policy::TIER_PATIENCE;
use crate::time::{Duration, Instant};
use std::collections::BTreeMap;

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
    pub(crate) fn learn(&mut self, session: SessionId, org: OrgId, answer: (Option<ClassId>, Instant)) -> bool {
        let asked = |tier: &&mut Tier| tier.pending && tier.asked.is_some_and(|(asked, _)| asked == session);
        let Some(tier) = self.of.get_mut(&org).filter(asked) else { return false };
        (tier.answer, tier.pending) = (Some(answer), false);
        true
    }

    /// Whether to ask this session now; it then counts as asked.
    pub(crate) fn ask(&mut self, session: SessionId, org: OrgId, now: Instant) -> bool {
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
