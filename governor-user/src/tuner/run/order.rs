//! What operators order for single listeners at run time: a mode, or the backlog that the owner asked for.

use super::Id;
use super::Runner;
use super::record::Note;
use crate::config::TunerMode;
use crate::driver::messages::{Ask as DriverAsk, Message};
use crate::records::audit::event;
use crate::tuner::Ordered;
use crate::tuner::entry::unseen;
use crate::tuner::hands::{on_blocking_thread, put_back};
use crate::tuner::relisten;
use crate::tuner::setting::Selector;
use governor_api::{TunerAction, TunerOrdered, TunerOutcome, TunerSetting, TunerWhich};
use std::sync::Arc;

impl Runner {
    /// Sets a mode for the listeners that are meant, or takes away what was set for exactly them.
    ///
    /// # Errors
    /// One line: the selector is wrong, too many settings, or there is none to take away.
    pub(super) async fn set_mode(&mut self, which: TunerWhich, mode: Option<TunerMode>, by: &str) -> Ordered {
        let selector = Selector::parse(&which)?;
        let before = match mode {
            Some(mode) => self.settings.set(which.clone(), mode, by)?,
            None => {
                let none = || format!("no run-time setting is there for {which}");
                Some(self.settings.clear(&selector).ok_or_else(none)?)
            }
        };
        let stored = self.settings.keep();
        self.record_mode(&which, by, before.as_ref(), mode).await;
        let seen = Arc::clone(&self.seen);
        let blind = seen.walk.blind();
        let mut listeners = Vec::new();
        for listener in seen.listeners.iter().filter(|listener| selector.fits(listener)) {
            let Some(id) = listener.cookie.map(|cookie| (listener.netns, cookie)) else { continue };
            let (policy, mode_set) = self.policy(listener);
            let now = policy.mode.as_str();
            let mut obstacle = unseen(listener, blind.as_ref());
            if let Some(entry) = self.entries.get_mut(&id) {
                (entry.policy, entry.mode_set) = (policy, mode_set);
                obstacle = entry.obstacle().or(obstacle);
                let held = entry.track.held;
                let reason = match mode {
                    Some(mode) => format!("an operator set {} for {which}: the mode is {now}", mode.as_str()),
                    None => format!("an operator cleared the setting for {which}: the mode is {now}"),
                };
                self.write(id, by, Note::new(TunerAction::SetMode, held, held, reason)).await;
            }
            listeners.push(TunerOutcome {
                listener: name(listener, id),
                mode: now.to_owned(),
                before: listener.backlog.unwrap_or(0),
                after: listener.backlog.unwrap_or(0),
                failure: obstacle.filter(|_| policy.mode == TunerMode::Enforce),
            });
        }
        Ok((TunerOrdered { before, listeners, unavailable: self.unavailable.clone(), warning: None }, stored))
    }

    /// Gives the listeners that are meant the backlog back that their owner asked for, where the tuner raised it, and leaves
    /// them alone until they are resumed.
    pub(super) async fn give_back(&mut self, which: &Selector, by: &str) -> TunerOrdered {
        let is_meant = |id: &&Id| self.entries.get(id).is_some_and(|entry| entry.is_there && which.fits(&entry.view));
        let meant: Vec<Id> = self.entries.keys().filter(is_meant).copied().collect();
        let mut listeners = Vec::new();
        for id in meant {
            let Some(entry) = self.entries.get(&id) else { continue };
            let (socket, set, original, held) =
                (entry.socket.clone(), entry.track.set, entry.track.original, entry.track.held);
            let mut outcome = TunerOutcome {
                listener: entry.name.clone(),
                mode: entry.policy.mode.as_str().to_owned(),
                before: held,
                after: held,
                failure: None,
            };
            if set.is_none() {
                // It is as its owner wants it, and stays so.
                self.leave_alone(id, held, by, Note::new(TunerAction::StandDown, held, held, ASKED.to_owned())).await;
                listeners.push(outcome);
                continue;
            }
            let (done, _) = on_blocking_thread(move || put_back(&socket, set, original, None)).await;
            match done {
                Ok(Some(done)) => {
                    outcome.after = done.after;
                    let note = Note::new(TunerAction::Restore, done.before, done.after, ASKED.to_owned());
                    self.leave_alone(id, done.after, by, Note { pid: Some(done.pid), ..note }).await;
                }
                Ok(None) => outcome.failure = Some("its backlog was set by another hand since: it stays".to_owned()),
                Err(error) => {
                    outcome.failure = Some(relisten::chain(&error));
                    self.say_failed(id, held, original, &error).await;
                }
            }
            listeners.push(outcome);
        }
        self.keep();
        TunerOrdered { before: None, listeners, unavailable: self.unavailable.clone(), warning: None }
    }

    async fn leave_alone(&mut self, id: Id, backlog: u32, by: &str, note: Note) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.track.restored(backlog);
            entry.failure.clear();
        }
        self.write(id, by, note).await;
    }

    /// Records a run-time setting that came or went among the events.
    pub(super) async fn record_mode(
        &self,
        which: &TunerWhich,
        by: &str,
        before: Option<&TunerSetting>,
        after: Option<TunerMode>,
    ) {
        let before = before.map(|setting| setting.mode.clone());
        let after = after.map(|mode| mode.as_str().to_owned());
        let event = event(by, "tune mode", &which.to_string(), &before, &after, None);
        // A driver that is gone keeps no record; the log has it.
        if let Some(driver) = self.driver.upgrade() {
            drop(driver.send(Message::Ask(DriverAsk::Record(Box::new(event)))).await);
        }
    }
}

const ASKED: &str = "an operator asked for it: it is left alone until governorctl tune resume";

fn name(listener: &governor_observation::ListenerView, (netns, cookie): Id) -> governor_api::ListenerName {
    governor_api::ListenerName { netns, address: listener.address, port: listener.port, cookie }
}
