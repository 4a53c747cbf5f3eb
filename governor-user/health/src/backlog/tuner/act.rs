//! Carries orders out: one action at a time, its result, what that leads to, and what is recorded of it.

use super::Tuner;
use super::entry::{Id, RaisedCap};
use super::io::{Action, Called, Done, Failure, Outcome, Output, Record};
use super::observe::youngest;
use crate::backlog::plan::Limit;
use crate::backlog::policy::{Foreign, Order};
use crate::backlog::{TunerAction, TunerMode};
use governor_engine::time::Instant;
use governor_observation::ListenerName;

const LEFT_ALONE: &str = "an operator asked for it: it is left alone until governorctl tune resume";

/// A somaxconn before and after, if it was to be raised.
type RaisedSomaxconn = Option<Result<(u32, u32), Failure>>;

/// What is to be done next, in order.
#[derive(Clone, Debug)]
pub(super) enum Task {
    /// An order of the policy. `shown` is the backlog as the table shows it.
    Order { id: Id, order: Order, shown: u32 },
    /// A member of a group gets what another one needs.
    Follow { id: Id, to: u32 },
    /// Give a listener its first backlog back: for an operator, or because the daemon stops.
    PutBack { id: Id, by: Option<String> },
    /// An operator's order is carried out.
    Answer,
    /// The stop is.
    Stopped,
}

/// The action under way.
#[derive(Clone, Debug)]
pub(super) enum Flight {
    /// `leads`: a raise that its group follows.
    Listen {
        id: Id,
        order: Order,
        action: TunerAction,
        leads: bool,
    },
    Read {
        id: Id,
    },
    PutBack {
        id: Id,
        by: Option<String>,
    },
}

impl Tuner {
    /// Begins tasks until one needs an action.
    pub(super) fn advance(&mut self, now: Instant) {
        while self.flight.is_none() {
            // Before the next action: what the last one changed is known to the next run whatever happens to this one.
            self.keep();
            let Some(task) = self.tasks.pop_front() else { break };
            match task {
                Task::Order { id, order, shown } => match self.entries.get(&id).map(|entry| entry.policy.mode) {
                    Some(TunerMode::Enforce) => self.carry_out(id, order),
                    Some(TunerMode::Observe) => self.only_record(id, &order, shown, now),
                    Some(TunerMode::Off) | None => {}
                },
                Task::Follow { id, to } => self.follow(id, to),
                Task::PutBack { id, by } => self.put_back(id, by),
                Task::Answer => {
                    let outcomes = std::mem::take(&mut self.outcomes);
                    self.outputs.push_back(Output::Outcomes(outcomes));
                }
                Task::Stopped => self.outputs.push_back(Output::Stopped),
            }
        }
    }

    /// The result of the action under way.
    pub(super) fn done(&mut self, done: Done, now: Instant) {
        let flight = self.flight.take();
        if let Some(Flight::Listen { id, .. } | Flight::Read { id } | Flight::PutBack { id, .. }) = &flight {
            self.catch_up(*id);
        }
        match (flight, done) {
            (Some(Flight::Listen { id, order, action, leads }), Done::Listened { cap, namespace, done }) => {
                let is_done = self.listened(id, (&order, action), (cap, namespace), done, now);
                self.settle(id);
                if let (true, true, Order::Raise(to)) = (is_done, leads, order) {
                    self.raise_the_others(id, to);
                }
            }
            (Some(Flight::Read { id }), Done::Read(found)) => {
                self.verified(id, found, now);
                self.settle(id);
            }
            (Some(Flight::PutBack { id, by }), Done::PutBack { done, cap }) => {
                match by {
                    Some(by) => self.restored(id, &by, done),
                    None => self.restored_at_stop(id, done, cap, now),
                }
                self.settle(id);
            }
            // A result of another kind, or of nothing: there is nothing to draw from it.
            (Some(Flight::Listen { .. } | Flight::Read { .. } | Flight::PutBack { .. }) | None, _) => {}
        }
    }

    /// Observe mode.
    fn only_record(&mut self, id: Id, order: &Order, shown: u32, now: Instant) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let (held, plan) = (entry.track.held, entry.track.plan.clone());
        match order {
            Order::Raise(to) if *to > entry.would => {
                entry.would = *to;
                let (wanted, limit) = (plan.wanted, plan.limit);
                let record = self.new_record(id, None, TunerAction::WouldRaise, (held, *to), plan.reason);
                self.outputs.extend(record.map(|record| Output::Record(Record { wanted, limit, ..record })));
            }
            Order::Clamped => self.record_clamped(id),
            // What the table shows is believed: nothing hangs on it.
            Order::Verify => {
                entry.track.verified(shown, now);
                self.settle(id);
            }
            Order::Raise(_) | Order::Lower(_) | Order::Reapply(_) | Order::StandDown => {}
        }
    }

    fn carry_out(&mut self, id: Id, order: Order) {
        match order {
            Order::Raise(to) => {
                // Another listener may have taken of the budget since it was planned, and one of its group may have led.
                if let Some(to) = self.affordable(id, to) {
                    self.relisten(id, Order::Raise(to), TunerAction::Raise, true);
                }
            }
            Order::Lower(_) => self.relisten(id, order, TunerAction::Lower, false),
            Order::Reapply(_) => self.relisten(id, order, TunerAction::Reapply, false),
            Order::Clamped => self.record_clamped(id),
            Order::Verify => {
                let Some(entry) = self.entries.get(&id) else { return };
                self.outputs.push_back(Output::Act(Action::Read { socket: entry.socket() }));
                self.flight = Some(Flight::Read { id });
            }
            Order::StandDown => {
                let Some(entry) = self.entries.get(&id) else { return };
                let (set, held) = (entry.track.set.unwrap_or(entry.track.held), entry.track.held);
                let reason =
                    "the same process undid it again: it is left alone until governorctl tune resume".to_owned();
                self.record(id, None, TunerAction::StandDown, (set, held), reason);
            }
        }
    }

    /// As much of a raise as the memory budget leaves now; `None`: it has as much already, or is not to be tuned.
    fn affordable(&self, id: Id, to: u32) -> Option<u32> {
        let entry = self.entries.get(&id)?;
        entry.track.follows(to, &self.bounds(entry, self.reserved()))
    }

    /// A member of a group gets what another one needs.
    fn follow(&mut self, id: Id, to: u32) {
        let Some(to) = self.affordable(id, to) else { return };
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.track.plan.reason = "another socket of the same address and port needs it".to_owned();
        }
        self.relisten(id, Order::Raise(to), TunerAction::Raise, false);
    }

    fn relisten(&mut self, id: Id, order: Order, action: TunerAction, leads: bool) {
        let (Order::Raise(to) | Order::Lower(to) | Order::Reapply(to)) = order else { return };
        let Some(entry) = self.entries.get(&id) else { return };
        let raise_cap = self.config.raise_somaxconn && self.somaxconn(id.0).is_some_and(|most| most < to);
        self.outputs.push_back(Output::Act(Action::Listen { socket: entry.socket(), to, raise_cap }));
        self.flight = Some(Flight::Listen { id, order, action, leads });
    }

    /// Every member of an SO_REUSEPORT group gets what one of them needs: the hash that picks one does not look at queues.
    fn raise_the_others(&mut self, id: Id, to: u32) {
        let Some(first) = self.entries.get(&id).map(super::Entry::name) else { return };
        let same = |name: &ListenerName| {
            (name.netns, name.address, name.port) == (first.netns, first.address, first.port) && *name != first
        };
        let is_follower =
            |entry: &super::Entry| entry.is_there && entry.policy.mode == TunerMode::Enforce && same(&entry.name());
        let followers = self.entries.iter().filter(|(_, entry)| is_follower(entry));
        // In their order, before what is still to be done.
        for task in followers.map(|(other, _)| Task::Follow { id: *other, to }).rev().collect::<Vec<_>>() {
            self.tasks.push_front(task);
        }
    }

    fn listened(
        &mut self,
        id: Id,
        (order, action): (&Order, TunerAction),
        (cap, namespace): (RaisedSomaxconn, Option<u64>),
        done: Result<Called, Failure>,
        now: Instant,
    ) -> bool {
        let (Order::Raise(to) | Order::Lower(to) | Order::Reapply(to)) = *order else { return false };
        let Some(entry) = self.entries.get_mut(&id) else { return false };
        let done = match done {
            Ok(done) => done,
            Err(failure) => {
                let again = entry.track.failed(now);
                let held = entry.track.held;
                self.note_cap(id, namespace, cap);
                // Which process holds a new listener is known a little after it.
                if again || !failure.is_holder_unknown {
                    self.record_failed(id, held, to, &failure);
                }
                return false;
            }
        };
        let started = match order {
            Order::Reapply(_) => youngest(&self.started, &entry.view.pids),
            Order::Raise(_) | Order::Clamped | Order::Lower(_) | Order::Verify | Order::StandDown => None,
        };
        entry.track.done(order, done.after, now, started);
        entry.failure.clear();
        let (wanted, mut limit) = (entry.track.plan.wanted, entry.track.plan.limit);
        let mut reason = match order {
            Order::Raise(_) => entry.track.plan.reason.clone(),
            Order::Lower(_) => "it was quiet for long enough".to_owned(),
            Order::Reapply(_) => "a reload had undone it".to_owned(),
            Order::Clamped | Order::Verify | Order::StandDown => String::new(),
        };
        if done.after < to {
            limit = Some(Limit::Somaxconn);
            reason = format!("{}; {reason}", clamp(done.after, id.0));
        }
        self.note_cap(id, namespace, cap);
        let record = self.new_record(id, None, action, (done.before, done.after), reason);
        let whole = |record| Record { wanted, limit, pid: Some(done.pid), ..record };
        self.outputs.extend(record.map(|record| Output::Record(whole(record))));
        true
    }

    /// The kernel was asked whether another hand has called `listen()`; the conclusion.
    fn verified(&mut self, id: Id, found: Result<u32, Failure>, now: Instant) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let before = entry.track.held;
        let Ok(after) = found else {
            entry.track.failed(now);
            return;
        };
        match entry.track.verified(after, now) {
            Foreign::Unchanged => {}
            Foreign::Reload => {
                let reason = "the application called listen() with its first value again".to_owned();
                self.record(id, None, TunerAction::Reverted, (before, after), reason);
            }
            Foreign::Operator => {
                let reason =
                    "another process set a new value: it is left alone until governorctl tune resume".to_owned();
                self.record(id, None, TunerAction::StandDown, (before, after), reason);
            }
        }
    }

    fn put_back(&mut self, id: Id, by: Option<String>) {
        let Some(entry) = self.entries.get(&id) else { return };
        let (set, original, held) = (entry.track.set, entry.track.original, entry.track.held);
        if let (None, Some(by)) = (set, &by) {
            // It is as its owner wants it, and stays so.
            let outcome = outcome(entry);
            self.catch_up(id);
            self.leave_alone(id, held, by, (TunerAction::StandDown, held), None);
            self.outcomes.push(outcome);
            return;
        }
        let cap = if by.is_none() { self.caps.get(&id.0).cloned() } else { None };
        self.outputs.push_back(Output::Act(Action::PutBack { socket: entry.socket(), set, original, cap }));
        self.flight = Some(Flight::PutBack { id, by });
    }

    /// What an operator's restore came to.
    fn restored(&mut self, id: Id, by: &str, done: Result<Option<Called>, Failure>) {
        let Some(entry) = self.entries.get(&id) else { return };
        let (held, original) = (entry.track.held, entry.track.original);
        let mut outcome = outcome(entry);
        match done {
            Ok(Some(done)) => {
                outcome.after = done.after;
                self.leave_alone(id, done.after, by, (TunerAction::Restore, done.before), Some(done.pid));
            }
            Ok(None) => outcome.failure = Some("its backlog was set by another hand since: it stays".to_owned()),
            Err(failure) => {
                self.record_failed(id, held, original, &failure);
                outcome.failure = Some(failure.reason);
            }
        }
        self.outcomes.push(outcome);
    }

    fn restored_at_stop(
        &mut self,
        id: Id,
        done: Result<Option<Called>, Failure>,
        cap: Option<(u32, u32)>,
        now: Instant,
    ) {
        if let Some(change) = cap {
            self.caps.remove(&id.0);
            self.is_dirty = true;
            let reason = format!("the daemon stops; net.core.somaxconn of network namespace {}", id.0);
            self.record(id, None, TunerAction::Somaxconn, change, reason);
        }
        let Some(entry) = self.entries.get_mut(&id) else { return };
        match done {
            Ok(Some(done)) => {
                entry.track.done(&Order::Lower(entry.track.original), done.after, now, None);
                let change = (done.before, done.after);
                let record = self.new_record(id, None, TunerAction::Restore, change, "the daemon stops".to_owned());
                let pid = Some(done.pid);
                self.outputs.extend(record.map(|record| Output::Record(Record { pid, ..record })));
            }
            // Another hand has set it since: it stays.
            Ok(None) => {}
            Err(failure) => {
                let (set, original) = (entry.track.set.unwrap_or(0), entry.track.original);
                self.record_failed(id, set, original, &failure);
            }
        }
    }

    fn leave_alone(&mut self, id: Id, backlog: u32, by: &str, (action, before): (TunerAction, u32), pid: Option<u32>) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.track.restored(backlog);
            entry.failure.clear();
        }
        let record = self.new_record(id, Some(by), action, (before, backlog), LEFT_ALONE.to_owned());
        self.outputs.extend(record.map(|record| Output::Record(Record { pid, ..record })));
        self.settle(id);
    }

    /// Remembers and records that the somaxconn of a listener's namespace was set.
    fn note_cap(&mut self, id: Id, cookie: Option<u64>, cap: RaisedSomaxconn) {
        match cap {
            None => {}
            Some(Err(failure)) => self.record_failed(id, 0, 0, &failure),
            Some(Ok((before, after))) => {
                let raised = self.caps.entry(id.0).or_insert(RaisedCap { netns: id.0, cookie, before, after });
                if raised.cookie != cookie {
                    *raised = RaisedCap { netns: id.0, cookie, before, after };
                }
                raised.after = after;
                self.is_dirty = true;
                let reason = format!("net.core.somaxconn of network namespace {}", id.0);
                self.record(id, None, TunerAction::Somaxconn, (before, after), reason);
            }
        }
    }

    fn record_clamped(&mut self, id: Id) {
        let somaxconn = self.somaxconn(id.0);
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let wanted = entry.track.plan.wanted;
        if entry.clamped == wanted {
            return;
        }
        entry.clamped = wanted;
        let held = entry.track.held;
        let reason = format!("{}; {}", clamp(somaxconn.unwrap_or(held), id.0), entry.track.plan.reason);
        let record = self.new_record(id, None, TunerAction::Clamped, (held, held), reason);
        let limit = Some(Limit::Somaxconn);
        self.outputs.extend(record.map(|record| Output::Record(Record { wanted, limit, ..record })));
    }

    /// Records a failure, once for each reason.
    fn record_failed(&mut self, id: Id, held: u32, to: u32, failure: &Failure) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if entry.failure == failure.reason {
            return;
        }
        entry.failure.clone_from(&failure.reason);
        let record = self.new_record(id, None, TunerAction::Failed, (held, held), failure.reason.clone());
        let wanted = Some(to);
        self.outputs.extend(record.map(|record| Output::Record(Record { wanted, ..record })));
    }

    pub(super) fn record(&mut self, id: Id, by: Option<&str>, action: TunerAction, change: (u32, u32), reason: String) {
        let record = self.new_record(id, by, action, change, reason);
        self.outputs.extend(record.map(Output::Record));
    }

    fn new_record(
        &self,
        id: Id,
        by: Option<&str>,
        action: TunerAction,
        (before, after): (u32, u32),
        reason: String,
    ) -> Option<Record> {
        let listener = self.entries.get(&id)?.name();
        let by = by.map(str::to_owned);
        Some(Record { listener, action, by, before, after, wanted: None, limit: None, pid: None, reason })
    }
}

fn outcome(entry: &super::Entry) -> Outcome {
    let held = entry.track.held;
    Outcome { listener: entry.name(), mode: entry.policy.mode, before: held, after: held, failure: None }
}

/// Why a raise ends below what was wanted, and what would help.
fn clamp(most: u32, netns: u64) -> String {
    format!("clamped: {most}, needs net.core.somaxconn raised in network namespace {netns}, then listen again")
}
