//! The tuner as the control API and the metrics show it.

use super::Runner;
use crate::config::AtExit;
use crate::recorder::TunerFigures;
use governor_api::{HoldersUnknown, TunedListener, Tuner, TunerPlan, TunerState};
use governor_health::backlog::policy::Stance;
use governor_health::backlog::tuner::{Entry, Figures};

impl Runner {
    pub(super) fn figures(&self) -> TunerFigures {
        let Figures { raised, stood_down, clamped, added } = self.tuner.figures();
        let (actions, journal) = (self.counts.clone(), self.journal.health());
        TunerFigures { actions, raised, stood_down, clamped, added, journal }
    }

    pub(super) fn view(&self) -> Tuner {
        let blind = self.tuner.blind();
        let row = |entry| row(entry, self.tuner.somaxconn(Entry::name(entry).netns), blind.as_ref());
        let mut listeners: Vec<TunedListener> = self.tuner.listeners().map(row).collect();
        listeners.sort_by(|a, b| {
            let key = |one: &TunedListener| {
                (one.listener.netns, one.listener.port, one.listener.address, one.listener.cookie)
            };
            key(a).cmp(&key(b))
        });
        let mut unknown = self.tuner.listeners().filter_map(|entry| entry.unseen(blind.as_ref()));
        let holders_unknown = unknown.next().map(|reason| HoldersUnknown { listeners: 1 + unknown.count(), reason });
        let config = self.tuner.config();
        Tuner {
            mode: config.global.mode.as_str().to_owned(),
            at_exit: match config.at_exit {
                AtExit::Keep => "keep".to_owned(),
                AtExit::Restore => "restore".to_owned(),
            },
            unavailable: self.tuner.unavailable().map(str::to_owned),
            holders_unknown,
            settings: self.settings.views(),
            listeners,
        }
    }
}

fn row(entry: &Entry, somaxconn: Option<u32>, blind: Option<&String>) -> TunedListener {
    let (mode, mode_set) = entry.mode();
    let (original, backlog) = entry.backlogs();
    let plan = entry.plan();
    TunedListener {
        listener: entry.name(),
        mode: mode.as_str().to_owned(),
        mode_set,
        obstacle: entry.obstacle(blind),
        state: match entry.stance() {
            (Stance::StoodDown, _) => TunerState::StoodDown,
            (Stance::Reverted(_), _) => TunerState::Reverted,
            (Stance::Free, true) => TunerState::Raised,
            (Stance::Free, false) => TunerState::Untouched,
        },
        original,
        backlog,
        somaxconn,
        plan: TunerPlan {
            to: plan.to,
            wanted: plan.wanted,
            limit: plan.limit.map(|limit| limit.as_str().to_owned()),
            reason: plan.reason.clone(),
        },
    }
}
