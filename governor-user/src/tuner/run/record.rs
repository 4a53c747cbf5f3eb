//! What the tuner tells: the journal, the counters, the events, the notes for the next life, and what operators are shown.
//! Decides nothing and touches no socket.

use super::Id;
use super::Runner;
use crate::config::AtExit;
use crate::driver::messages::{Ask as DriverAsk, Message};
use crate::process::clock;
use crate::recorder::TunerFigures;
use crate::records::audit::{ITSELF, event};
use crate::tuner::entry::Entry;
use crate::tuner::memory::{Kept, RaisedCap};
use crate::tuner::relisten::{self, RelistenError};
use governor_api::{self as api, TunerAction, TunerRecord};
use governor_health::backlog::plan::Limit;
use governor_health::backlog::policy::Stance;

/// What goes into the journal beside the listener.
pub(super) struct Note {
    pub(super) action: TunerAction,
    pub(super) before: u32,
    pub(super) after: u32,
    pub(super) wanted: Option<u32>,
    pub(super) limit: Option<Limit>,
    pub(super) pid: Option<u32>,
    pub(super) reason: String,
}

impl Note {
    pub(super) fn new(action: TunerAction, before: u32, after: u32, reason: String) -> Self {
        Self { action, before, after, wanted: None, limit: None, pid: None, reason }
    }
}

impl Runner {
    pub(super) async fn say_clamped(&mut self, id: Id) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let wanted = entry.track.plan.wanted;
        if entry.clamped == wanted {
            return;
        }
        entry.clamped = wanted;
        let held = entry.track.held;
        let reason = format!("{}; {}", clamp(entry.somaxconn.unwrap_or(held), id.0), entry.track.plan.reason);
        let note =
            Note { wanted, limit: Some(Limit::Somaxconn), ..Note::new(TunerAction::Clamped, held, held, reason) };
        self.write(id, ITSELF, note).await;
    }

    pub(super) async fn say_failed(&mut self, id: Id, held: u32, to: u32, error: &RelistenError) {
        let said = relisten::chain(error);
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if entry.failure == said {
            return;
        }
        entry.failure.clone_from(&said);
        let note = Note { wanted: Some(to), ..Note::new(TunerAction::Failed, held, held, said) };
        self.write(id, ITSELF, note).await;
    }

    /// Remembers and records that the cap of a listener's namespace was set.
    pub(super) async fn note_cap(
        &mut self,
        id: Id,
        cookie: Option<u64>,
        cap: Option<Result<(u32, u32), RelistenError>>,
    ) {
        match cap {
            None => {}
            Some(Err(error)) => self.say_failed(id, 0, 0, &error).await,
            Some(Ok((before, after))) => {
                let raised = self.caps.entry(id.0).or_insert(RaisedCap { netns: id.0, cookie, before, after });
                if raised.cookie != cookie {
                    *raised = RaisedCap { netns: id.0, cookie, before, after };
                }
                raised.after = after;
                let reason = format!("net.core.somaxconn of network namespace {}", id.0);
                self.write(id, ITSELF, Note::new(TunerAction::Somaxconn, before, after, reason)).await;
            }
        }
    }

    /// Into the journal, the counters, and, if the system changed, the events.
    pub(super) async fn write(&mut self, id: Id, by: &str, note: Note) {
        let Some(entry) = self.entries.get(&id) else { return };
        *self.counts.entry(note.action).or_default() += 1;
        let record = TunerRecord {
            at: clock::wall_time(),
            at_seconds: clock::wall_seconds(),
            listener: entry.name.clone(),
            action: note.action,
            by: by.to_owned(),
            before: note.before,
            after: note.after,
            wanted: note.wanted,
            limit: note.limit.map(|limit| limit.as_str().to_owned()),
            pid: note.pid,
            reason: note.reason,
        };
        self.journal.add(&record);
        let notable = matches!(record.action, TunerAction::StandDown | TunerAction::Resume);
        if (record.action.acts() || notable)
            && let Some(driver) = self.driver.upgrade()
        {
            let action = format!("tune {}", record.action.as_str());
            let subject = record.listener.to_string();
            let event = event(by, &action, &subject, &record.before, &record.after, Some(record.reason));
            // A driver that is gone keeps no record; the journal has it.
            drop(driver.send(Message::Ask(DriverAsk::Record(Box::new(event)))).await);
        }
    }

    pub(super) fn keep(&mut self) {
        let now = self.entries.iter().filter_map(|((netns, cookie), entry)| {
            let stood_down = entry.track.stance == Stance::StoodDown;
            let kept = Kept {
                netns: *netns,
                cookie: *cookie,
                original: entry.track.original,
                set: entry.track.set,
                stood_down,
            };
            (entry.track.set.is_some() || stood_down).then_some(kept)
        });
        let listeners = now.chain(self.inherited.values().cloned()).collect();
        self.store.keep(listeners, self.caps.values().cloned().collect());
    }

    pub(super) fn figures(&self) -> TunerFigures {
        let count = |of: &dyn Fn(&Entry) -> bool| self.present().filter(|entry| of(entry)).count();
        TunerFigures {
            actions: self.counts.clone(),
            raised: count(&|entry| entry.track.set.is_some()),
            stood_down: count(&|entry| entry.track.stance == Stance::StoodDown),
            clamped: count(&|entry| entry.track.plan.limit == Some(Limit::Somaxconn)),
            added: self.present().map(|entry| u64::from(entry.track.added())).sum(),
            journal: self.journal.health(),
        }
    }

    fn holders_unknown(&self) -> Option<api::HoldersUnknown> {
        let mut reasons = self.present().filter_map(|entry| entry.unseen.as_ref());
        let reason = reasons.next()?.clone();
        Some(api::HoldersUnknown { listeners: 1 + reasons.count(), reason })
    }

    pub(super) fn view(&self) -> api::Tuner {
        let mut listeners: Vec<api::TunedListener> = self.present().map(Entry::view).collect();
        listeners.sort_by(|a, b| {
            let key = |one: &api::TunedListener| {
                (one.listener.netns, one.listener.port, one.listener.address, one.listener.cookie)
            };
            key(a).cmp(&key(b))
        });
        api::Tuner {
            mode: self.config.global.mode.as_str().to_owned(),
            at_exit: match self.config.at_exit {
                AtExit::Keep => "keep".to_owned(),
                AtExit::Restore => "restore".to_owned(),
            },
            unavailable: self.unavailable.clone(),
            holders_unknown: self.holders_unknown(),
            settings: self.settings.views(),
            listeners,
        }
    }
}

/// Why a raise ends below what was wanted, and what would help.
pub(super) fn clamp(most: u32, netns: u64) -> String {
    format!("clamped: {most}, needs net.core.somaxconn raised in network namespace {netns}, then listen again")
}
