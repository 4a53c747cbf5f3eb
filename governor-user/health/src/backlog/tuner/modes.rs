//! Modes that operators set at run time, over the configuration: which one holds where several fit, and when one means nothing
//! any more.

use super::io::Output;
use super::{FORGET_AFTER, Tuner};
use crate::backlog::TunerMode;
use governor_engine::time::Instant;
use governor_observation::{ListenerView, Observation};

impl Tuner {
    /// The mode that was set for a listener: by the most precise setting that fits, and of equally precise ones by the last.
    pub(super) fn mode_of(&self, listener: &ListenerView) -> Option<TunerMode> {
        let fitting = self.modes.iter().filter(|setting| setting.which.fits(listener));
        fitting.max_by_key(|setting| setting.which.precision()).map(|setting| setting.mode)
    }

    /// Takes away the settings of processes and namespaces that ended.
    pub(super) fn retire_modes(&mut self, seen: &Observation, begun: Instant, now: Instant) {
        let mut last = None;
        let rows = seen.listeners.iter().map(|listener| listener.netns).filter(|netns| {
            let is_other = last != Some(*netns);
            last = Some(*netns);
            is_other
        });
        let listed = seen.namespaces.iter().map(|namespace| namespace.netns);
        let met = listed.chain(seen.unread.iter().copied()).chain(rows);
        self.namespaces.extend(met.map(|netns| (netns, now)));
        self.namespaces.retain(|_, last| now.since(*last) < FORGET_AFTER);
        if now.since(begun) < FORGET_AFTER {
            // A namespace that was not met yet has not ended.
            let named = self.modes.iter().filter_map(|setting| setting.which.netns);
            self.namespaces.extend(named.map(|netns| (netns, now)));
        } else {
            let (known, before) = (&self.namespaces, self.caps.len());
            self.caps.retain(|netns, _| known.contains_key(netns));
            self.is_dirty |= self.caps.len() != before;
        }
        let (known, started) = (&self.namespaces, &self.started);
        let retired = self.modes.extract_if(.., |setting| {
            let lives = setting.which.pid.is_none_or(|pid| started.get(&pid).copied() == setting.started);
            !lives || !setting.which.netns.is_none_or(|netns| known.contains_key(&netns))
        });
        for setting in retired {
            self.is_stale = true;
            self.outputs.push_back(Output::Retired(setting.which));
        }
    }
}
