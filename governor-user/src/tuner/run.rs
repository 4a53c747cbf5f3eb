//! The tuner's loop: observations in, orders of the policy carried out, everything that was done written down (`record`).
//! The calls themselves are in `hands`, one after the other.

mod order;
mod record;

use self::record::{Note, clamp};
use super::Ask;
use super::entry::{Entry, sample, socket, unseen};
use super::hands::{Acted, act, on_blocking_thread, put_back};
use super::journal::Journal;
use super::memory::{Kept, RaisedCap, Store};
use super::relisten::{self, RelistenError};
use super::setting::{Selector, Settings};
use crate::config::{AtExit, ListenerPolicy, TunerConfig, TunerMode};
use crate::driver::messages::Message;
use crate::process::clock;
use crate::recorder::Recorder;
use crate::records::audit::ITSELF;
use crate::state::StateDir;
use governor_api::{ListenerName, TunerAction};
use governor_engine::time::{Duration, Instant};
use governor_health::Evidence;
use governor_health::Report;
use governor_health::Thresholds;
use governor_health::Verdict;
use governor_health::backlog::plan::{Bounds, Hindrance, Limit};
use governor_health::backlog::policy::{Foreign, Order, Stance};
use governor_observation::{ListenerView, Observation, Tier};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// Kernel memory that a queued connection is taken to need, in KiB: its socket and the request it has sent.
const KIB_EACH: u32 = 16;

/// A listener that is not seen for so long is forgotten where its namespace cannot be read: that may last for a while.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// The same where the namespace is read and the listener is not in it: a table can skip a socket once.
const CLOSED_AFTER: Duration = Duration::from_secs(2);

/// A listener by its namespace and cookie.
type Id = (u64, u64);

/// All state of the tuner.
#[derive(Debug)]
pub(super) struct Runner {
    config: TunerConfig,
    entries: BTreeMap<Id, Entry>,
    /// What an earlier life raised and this one has not seen yet.
    inherited: BTreeMap<Id, Kept>,
    /// The first observation.
    begun: Option<Instant>,
    /// Namespaces whose somaxconn was raised.
    caps: BTreeMap<u64, RaisedCap>,
    reports: watch::Receiver<Arc<Report>>,
    journal: Journal,
    store: Store,
    /// Modes that were set at run time.
    settings: Settings,
    /// The last observation.
    seen: Arc<Observation>,
    /// Network namespaces that were seen lately, and when.
    namespaces: BTreeMap<u64, Instant>,
    recorder: Recorder,
    driver: mpsc::WeakSender<Message>,
    counts: BTreeMap<TunerAction, u64>,
    unavailable: Option<String>,
}

impl Runner {
    pub(super) fn new(
        config: TunerConfig,
        state: &StateDir,
        reports: watch::Receiver<Arc<Report>>,
        recorder: Recorder,
        driver: mpsc::WeakSender<Message>,
    ) -> Self {
        let store = Store::open(state);
        let inherited = store.kept().listeners.iter().map(|kept| ((kept.netns, kept.cookie), kept.clone())).collect();
        let caps = store.kept().caps.iter().map(|cap| (cap.netns, cap.clone())).collect();
        Self {
            config,
            entries: BTreeMap::new(),
            inherited,
            begun: None,
            caps,
            reports,
            journal: Journal::open(state.path()),
            store,
            settings: Settings::open(state),
            seen: Arc::default(),
            namespaces: BTreeMap::new(),
            recorder,
            driver,
            counts: BTreeMap::new(),
            unavailable: None,
        }
    }

    /// Runs until told to stop, or until nobody can tell it any more.
    pub(super) async fn run(mut self, mut asks: mpsc::Receiver<Ask>, mut seen: watch::Receiver<Arc<Observation>>) {
        let mut is_over = false;
        loop {
            tokio::select! {
                ask = asks.recv() => match ask {
                    None => return,
                    Some(Ask::Stop { for_good, done }) => {
                        if for_good && self.config.at_exit == AtExit::Restore {
                            self.restore().await;
                        }
                        // The daemon waits for it, or has given up.
                        done.send(()).ok();
                        return;
                    }
                    Some(Ask::View(answer)) => drop(answer.send(self.view())),
                    Some(Ask::Resume { which, by, answer }) => drop(answer.send(self.resume(&which, &by).await)),
                    Some(Ask::SetMode { which, mode, by, answer }) => {
                        drop(answer.send(self.set_mode(which, mode, &by).await));
                    }
                    Some(Ask::Restore { which, by, answer }) => {
                        drop(answer.send(self.give_back(&which, &by).await));
                    }
                    Some(Ask::Obey(config)) => self.config = *config,
                },
                changed = seen.changed(), if !is_over => {
                    if changed.is_err() {
                        // The kernel plane is over: nothing is decided from now on.
                        self.unavailable = Some("the kernel plane ended".to_owned());
                        is_over = true;
                        continue;
                    }
                    self.seen = Arc::clone(&seen.borrow_and_update());
                    let observation = Arc::clone(&self.seen);
                    self.observe(&observation).await;
                }
            }
        }
    }

    async fn observe(&mut self, seen: &Observation) {
        self.unavailable =
            (seen.tier == Tier::Procfs).then(|| "the procfs tier does not tell backlogs: nothing is tuned".to_owned());
        let now = Instant(seen.taken_ns);
        let somaxconn: BTreeMap<u64, Option<u32>> =
            seen.namespaces.iter().map(|namespace| (namespace.netns, namespace.somaxconn)).collect();
        // Of this observation or the one before it: a hindrance lasts longer than that.
        let report = Arc::clone(&self.reports.borrow());
        let judged =
            report.listeners.iter().filter_map(|judged| Some(((judged.netns, judged.cookie?), &judged.evidence)));
        let evidence: BTreeMap<Id, &Evidence> = judged.collect();
        let budget = self.config.memory_mib.saturating_mul(1024) / KIB_EACH;
        self.retire_settings(seen, now).await;
        self.note_closed(seen, now);
        let added: u32 = self.present().map(|entry| entry.track.added()).fold(0, u32::saturating_add);
        let blind = seen.walk.blind();
        let mut orders = Vec::new();
        for listener in &seen.listeners {
            let (Some(cookie), Some(backlog)) = (listener.cookie, listener.backlog) else { continue };
            let (policy, mode_set) = self.policy(listener);
            let id = (listener.netns, cookie);
            if policy.mode == TunerMode::Off && !self.entries.contains_key(&id) {
                continue;
            }
            let inherited = &mut self.inherited;
            let entry = self.entries.entry(id).or_insert_with(|| {
                let known = inherited.remove(&id);
                Entry::new(listener, cookie, backlog, known.as_ref(), now)
            });
            (entry.seen, entry.is_there, entry.policy, entry.mode_set) = (now, true, policy, mode_set);
            entry.view.clone_from(listener);
            entry.unseen = unseen(listener, blind.as_ref());
            if policy.mode == TunerMode::Off {
                continue;
            }
            entry.somaxconn = somaxconn.get(&listener.netns).copied().flatten();
            entry.socket = socket(listener);
            let others = added.saturating_sub(entry.track.added());
            let bounds = Bounds {
                somaxconn: entry.somaxconn,
                raise_somaxconn: self.config.raise_somaxconn,
                room: budget.saturating_sub(others),
            };
            let pids = &entry.socket.pids;
            let sample = sample(listener, backlog, now);
            let hindrance = evidence.get(&id).and_then(|evidence| hindrance(evidence, &policy));
            let order = entry.track.step(sample, hindrance, &policy, &bounds, || relisten::youngest(pids));
            orders.extend(order.map(|order| (id, order, bounds, backlog)));
        }
        if now.since(*self.begun.get_or_insert(now)) >= FORGET_AFTER {
            self.inherited.clear();
        }
        for (id, order, bounds, shown) in orders {
            match self.entries.get(&id).map(|entry| entry.policy.mode) {
                Some(TunerMode::Enforce) => self.carry_out(id, order, &bounds).await,
                Some(TunerMode::Observe) => self.only_say(id, &order, shown, now).await,
                Some(TunerMode::Off) | None => {}
            }
        }
        self.keep();
        self.recorder.tuner(self.figures());
    }

    /// What holds for a listener, and whether an operator set its mode at run time.
    fn policy(&self, listener: &ListenerView) -> (ListenerPolicy, bool) {
        let configured = self.config.policy(listener.address, listener.port);
        match self.settings.mode(listener) {
            Some(mode) => (ListenerPolicy { mode, ..configured }, true),
            None => (configured, false),
        }
    }

    /// Entries of listeners that are there, as far as their namespaces can be read.
    pub(super) fn present(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().filter(|entry| entry.is_there)
    }

    /// Takes listeners that closed off the books: their rows, and the memory of what they were raised by.
    fn note_closed(&mut self, seen: &Observation, now: Instant) {
        let listening: BTreeSet<Id> =
            seen.listeners.iter().filter_map(|listener| Some((listener.netns, listener.cookie?))).collect();
        let without_cookie = seen.listeners.iter().filter(|listener| listener.cookie.is_none());
        let unread: BTreeSet<u64> =
            without_cookie.map(|listener| listener.netns).chain(seen.unread.iter().copied()).collect();
        self.entries.retain(|id, entry| {
            let unread = unread.contains(&id.0);
            entry.is_there = unread || listening.contains(id);
            now.since(entry.seen) < if unread { FORGET_AFTER } else { CLOSED_AFTER }
        });
    }

    /// Takes away run-time settings of processes and namespaces that ended.
    async fn retire_settings(&mut self, seen: &Observation, now: Instant) {
        self.namespaces.extend(seen.namespaces.iter().map(|namespace| (namespace.netns, now)));
        self.namespaces.extend(seen.listeners.iter().map(|listener| (listener.netns, now)));
        self.namespaces.extend(seen.unread.iter().map(|netns| (*netns, now)));
        self.namespaces.retain(|_, last| now.since(*last) < FORGET_AFTER);
        if now.since(*self.begun.get_or_insert(now)) < FORGET_AFTER {
            // A namespace that was not met yet has not ended.
            self.namespaces.extend(self.settings.namespaces().map(|netns| (netns, now)));
        }
        let known: BTreeSet<u64> = self.namespaces.keys().copied().collect();
        if now.since(*self.begun.get_or_insert(now)) >= FORGET_AFTER {
            self.caps.retain(|netns, _| known.contains(netns));
        }
        let retired = self.settings.retire(&known);
        if !retired.is_empty() {
            drop(self.settings.keep());
        }
        for setting in retired {
            self.record_mode(&setting.which, ITSELF, Some(&setting), None).await;
        }
    }

    /// Observe mode.
    async fn only_say(&mut self, id: Id, order: &Order, shown: u32, now: Instant) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let (held, plan) = (entry.track.held, entry.track.plan.clone());
        match order {
            Order::Raise(to) if *to > entry.would => {
                entry.would = *to;
                let (wanted, limit) = (plan.wanted, plan.limit);
                let note = Note { wanted, limit, ..Note::new(TunerAction::WouldRaise, held, *to, plan.reason) };
                self.write(id, ITSELF, note).await;
            }
            Order::Clamped => self.say_clamped(id).await,
            // What the table says is believed: nothing hangs on it.
            Order::Verify => drop(entry.track.verified(shown, now)),
            Order::Raise(_) | Order::Lower(_) | Order::Reapply(_) | Order::StandDown => {}
        }
    }

    async fn carry_out(&mut self, id: Id, order: Order, bounds: &Bounds) {
        match order {
            Order::Raise(to) => {
                // One of its group may have seen to it.
                if self.entries.get(&id).is_some_and(|entry| entry.track.held < to)
                    && self.relisten(id, &order, TunerAction::Raise).await
                {
                    self.raise_the_others(id, to, bounds).await;
                }
            }
            Order::Lower(_) => drop(self.relisten(id, &order, TunerAction::Lower).await),
            Order::Reapply(_) => drop(self.relisten(id, &order, TunerAction::Reapply).await),
            Order::Clamped => self.say_clamped(id).await,
            Order::Verify => self.verify(id).await,
            Order::StandDown => {
                let Some(entry) = self.entries.get(&id) else { return };
                let (set, held) = (entry.track.set.unwrap_or(entry.track.held), entry.track.held);
                let reason =
                    "the same process undid it again: it is left alone until governorctl tune resume".to_owned();
                self.write(id, ITSELF, Note::new(TunerAction::StandDown, set, held, reason)).await;
            }
        }
    }

    /// Every member of an SO_REUSEPORT group gets what one of them needs: the hash that picks one does not look at queues.
    async fn raise_the_others(&mut self, id: Id, to: u32, bounds: &Bounds) {
        let Some(first) = self.entries.get(&id).map(|entry| entry.name.clone()) else { return };
        let same = |name: &ListenerName| {
            (name.netns, name.address, name.port) == (first.netns, first.address, first.port) && *name != first
        };
        let others: Vec<(Id, u32)> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.is_there && same(&entry.name) && entry.policy.mode == TunerMode::Enforce)
            .filter_map(|(other, entry)| Some((*other, entry.track.follows(to, bounds)?)))
            .collect();
        for (other, to) in others {
            if let Some(entry) = self.entries.get_mut(&other) {
                entry.track.plan.reason = "another socket of the same address and port needs it".to_owned();
            }
            self.relisten(other, &Order::Raise(to), TunerAction::Raise).await;
        }
    }

    /// Calls `listen()` and tells everybody; whether it could be done.
    async fn relisten(&mut self, id: Id, order: &Order, action: TunerAction) -> bool {
        let (Order::Raise(to) | Order::Lower(to) | Order::Reapply(to)) = *order else { return false };
        let Some(entry) = self.entries.get(&id) else { return false };
        let cap = self.config.raise_somaxconn && entry.somaxconn.is_some_and(|most| most < to);
        let (socket, held) = (entry.socket.clone(), entry.track.held);
        let pids = socket.pids.clone();
        let acted = on_blocking_thread(move || act(&socket, to, cap)).await;
        let now = clock::now();
        let Some(entry) = self.entries.get_mut(&id) else { return false };
        let Acted { cap, namespace, done } = acted;
        let done = match done {
            Ok(done) => done,
            Err(error) => {
                let again = entry.track.failed(now);
                self.note_cap(id, namespace, cap).await;
                // Who holds a new listener is known a little after it.
                if again || !matches!(error, RelistenError::NoHolder | RelistenError::HolderUnseen(_)) {
                    self.say_failed(id, held, to, &error).await;
                }
                return false;
            }
        };
        let youngest = matches!(order, Order::Reapply(_)).then(|| relisten::youngest(&pids)).flatten();
        entry.track.done(order, done.after, now, youngest);
        entry.failure.clear();
        let mut note = Note::new(action, done.before, done.after, reason(order, entry));
        (note.wanted, note.limit, note.pid) = (entry.track.plan.wanted, entry.track.plan.limit, Some(done.pid));
        if done.after < to {
            note.limit = Some(Limit::Somaxconn);
            note.reason = format!("{}; {}", clamp(done.after, id.0), note.reason);
        }
        self.note_cap(id, namespace, cap).await;
        self.write(id, ITSELF, note).await;
        true
    }

    /// Asks the kernel whether somebody else has called `listen()`, and draws the conclusion.
    async fn verify(&mut self, id: Id) {
        let Some(entry) = self.entries.get(&id) else { return };
        let (socket, before) = (entry.socket.clone(), entry.track.held);
        let found = on_blocking_thread(move || relisten::backlog_of(&socket)).await;
        let now = clock::now();
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let after = match found {
            Ok(after) => after,
            Err(error) => {
                tracing::debug!(listener = %entry.name, %error, "a backlog could not be verified");
                entry.track.failed(now);
                return;
            }
        };
        let note = match entry.track.verified(after, now) {
            Foreign::Nobody => return,
            Foreign::Reload => {
                let reason = "the application called listen() with its first value again".to_owned();
                Note::new(TunerAction::Reverted, before, after, reason)
            }
            Foreign::Operator => {
                let reason = "somebody set a new value: it is left alone until governorctl tune resume".to_owned();
                Note::new(TunerAction::StandDown, before, after, reason)
            }
        };
        self.write(id, ITSELF, note).await;
    }

    /// Gives back what was raised, where nobody else has changed it since.
    async fn restore(&mut self) {
        let raised: Vec<Id> =
            self.entries.iter().filter(|(_, entry)| entry.track.set.is_some()).map(|(id, _)| *id).collect();
        for id in raised {
            let Some(entry) = self.entries.get(&id) else { continue };
            let (socket, set, original) = (entry.socket.clone(), entry.track.set, entry.track.original);
            let cap = self.caps.get(&id.0).cloned();
            let (done, cap) = on_blocking_thread(move || put_back(&socket, set, original, cap)).await;
            if let Some((before, after)) = cap {
                self.caps.remove(&id.0);
                let reason = format!("the daemon stops; net.core.somaxconn of network namespace {}", id.0);
                self.write(id, ITSELF, Note::new(TunerAction::Somaxconn, before, after, reason)).await;
            }
            match done {
                Ok(Some(done)) => {
                    if let Some(entry) = self.entries.get_mut(&id) {
                        entry.track.done(&Order::Lower(original), done.after, clock::now(), None);
                    }
                    let note = Note::new(TunerAction::Restore, done.before, done.after, "the daemon stops".to_owned());
                    self.write(id, ITSELF, Note { pid: Some(done.pid), ..note }).await;
                }
                Ok(None) => tracing::info!(listener = ?id, "not restored: somebody else has set its backlog since"),
                Err(error) => self.say_failed(id, set.unwrap_or(0), original, &error).await,
            }
        }
        self.keep();
    }

    async fn resume(&mut self, which: &Selector, by: &str) -> Vec<ListenerName> {
        let now = clock::now();
        let left_alone = |entry: &Entry| entry.track.stance != Stance::Free && which.fits(&entry.view);
        let resumed: Vec<Id> = self.entries.iter().filter(|(_, entry)| left_alone(entry)).map(|(id, _)| *id).collect();
        let mut names = Vec::new();
        for id in resumed {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            entry.track.resume(now);
            names.push(entry.name.clone());
            let held = entry.track.held;
            self.write(id, by, Note::new(TunerAction::Resume, held, held, "an operator asked for it".to_owned())).await;
        }
        self.keep();
        names
    }
}

/// What a verdict says against a longer queue.
fn hindrance(evidence: &Evidence, policy: &ListenerPolicy) -> Option<Hindrance> {
    let thresholds = Thresholds { max_wait: policy.max_wait, ..Thresholds::default() };
    // What requests wait for says nothing about the accept queue and must not hide what is wrong with it.
    let queue = Evidence { work: None, ..evidence.clone() };
    match Verdict::of(&queue, &thresholds) {
        Verdict::FdExhausted => Some(Hindrance::DescriptorsExhausted),
        Verdict::AcceptorStalled => Some(Hindrance::AcceptorStalled),
        Verdict::AcceptStarved => Some(Hindrance::StandingQueue),
        Verdict::HalfOpenPressure => Some(Hindrance::HalfOpenPressure),
        Verdict::Ok
        | Verdict::Burst
        | Verdict::Misconfigured
        | Verdict::UpstreamDown
        | Verdict::UpstreamSlow
        | Verdict::InflightSaturated => None,
    }
}

fn reason(order: &Order, entry: &Entry) -> String {
    match order {
        Order::Raise(_) => entry.track.plan.reason.clone(),
        Order::Lower(_) => "it was quiet for long enough".to_owned(),
        Order::Reapply(_) => "a reload had undone it".to_owned(),
        Order::Clamped | Order::Verify | Order::StandDown => String::new(),
    }
}
