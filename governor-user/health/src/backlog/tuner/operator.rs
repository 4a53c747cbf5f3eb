//! What operators order for single listeners: a mode, the backlog that the owner asked for, or to be tuned again; and the stop.

use super::Tuner;
use super::act::Task;
use super::entry::{Id, name, unseen};
use super::io::{Outcome, Output};
use crate::backlog::policy::Stance;
use crate::backlog::{AtExit, Selector, TunerAction, TunerMode};
use governor_engine::time::Instant;
use std::sync::Arc;

impl Tuner {
    /// An operator set a mode for some listeners, or cleared it.
    pub(super) fn modes_set(&mut self, which: &Selector, named: &str, mode: Option<TunerMode>, by: &str) {
        let last = Arc::clone(&self.last);
        let blind = last.walk.blind();
        let mut outcomes = Vec::new();
        for listener in last.listeners.iter().filter(|listener| which.fits(listener)) {
            let Some(id) = listener.cookie.map(|cookie| (listener.netns, cookie)) else { continue };
            let policy = self.policy(listener);
            let now = policy.0.mode.as_str();
            let mut obstacle = unseen(listener, blind.as_ref());
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.obey(policy);
                obstacle = entry.obstacle(blind.as_ref());
                let held = entry.track.held;
                let reason = match mode {
                    Some(mode) => format!("an operator set {} for {named}: the mode is {now}", mode.as_str()),
                    None => format!("an operator cleared the setting for {named}: the mode is {now}"),
                };
                self.record(id, Some(by), TunerAction::SetMode, (held, held), reason);
                self.settle(id);
            }
            let backlog = listener.backlog.unwrap_or(0);
            outcomes.push(Outcome {
                listener: name(listener),
                mode: policy.0.mode,
                before: backlog,
                after: backlog,
                failure: obstacle.filter(|_| policy.0.mode == TunerMode::Enforce),
            });
        }
        self.outputs.push_back(Output::Outcomes(outcomes));
    }

    /// Gives the listeners that are meant the backlog back that their owner asked for, where it was raised, and leaves them
    /// alone until they are resumed.
    pub(super) fn restore(&mut self, which: &Selector, by: &str) {
        let is_meant = |entry: &super::Entry| entry.is_there && which.fits(&entry.view);
        let meant: Vec<Id> = self.entries.iter().filter(|(_, entry)| is_meant(entry)).map(|(id, _)| *id).collect();
        self.tasks.extend(meant.into_iter().map(|id| Task::PutBack { id, by: Some(by.to_owned()) }));
        self.tasks.push_back(Task::Answer);
    }

    /// Gives listeners that are left alone back to the tuner.
    pub(super) fn resume(&mut self, which: &Selector, by: &str, now: Instant) {
        let is_meant = |entry: &super::Entry| entry.track.stance != Stance::Free && which.fits(&entry.view);
        let meant: Vec<Id> = self.entries.iter().filter(|(_, entry)| is_meant(entry)).map(|(id, _)| *id).collect();
        let mut names = Vec::new();
        for id in meant {
            self.catch_up(id);
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            entry.track.resume(now);
            names.push(entry.name());
            let held = entry.track.held;
            self.record(id, Some(by), TunerAction::Resume, (held, held), "an operator asked for it".to_owned());
            self.settle(id);
        }
        self.outputs.push_back(Output::Resumed(names));
    }

    /// Gives back what was raised, if the configuration says so.
    pub(super) fn stop(&mut self) {
        if self.config.at_exit == AtExit::Restore {
            let raised = self.marked.iter().filter(|id| self.entries.get(id).is_some_and(|it| it.track.set.is_some()));
            self.tasks.extend(raised.map(|id| Task::PutBack { id: *id, by: None }));
        }
        self.tasks.push_back(Task::Stopped);
    }
}
