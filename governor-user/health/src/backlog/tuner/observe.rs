//! Takes observations: which rows say something new, what that asks for, and which listeners are gone.

use super::act::Task;
use super::entry::{Entry, Id, is_same, sample};
use super::{FORGET_AFTER, Tuner, forgotten_after};
use crate::backlog::plan::{Bounds, Hindrance};
use crate::backlog::{ListenerPolicy, TunerMode};
use crate::listeners::evidence::Evidence;
use crate::listeners::verdict::{Thresholds, Verdict};
use crate::report::{Judged, Report};
use governor_engine::time::Instant;
use governor_observation::{ListenerView, Observation, Tier};
use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Kernel memory that a queued connection is taken to need, in KiB: its socket and the request it has sent.
const KIB_EACH: u32 = 16;

/// What every row of one observation is looked at with.
struct Look<'a> {
    seen: &'a Observation,
    now: Instant,
    /// When the observation before was taken: a row that was not looked at was unchanged until then.
    before: Instant,
    /// What of the memory budget is taken, before this observation.
    reserved: u32,
}

impl Tuner {
    pub(super) fn observe(&mut self, seen: Arc<Observation>, now: Instant) {
        self.unavailable =
            (seen.tier == Tier::Procfs).then(|| "the procfs tier does not tell backlogs: nothing is tuned".to_owned());
        let begun = *self.begun.get_or_insert(now);
        self.retire_modes(&seen, begun, now);
        let before = std::mem::replace(&mut self.last, Arc::clone(&seen));
        let before_at = Instant(before.taken_ns);
        let mut due = std::mem::take(&mut self.due);
        due.clear();
        let is_aligned = changed_rows(&before.listeners, &seen.listeners, &mut due);
        if is_aligned && !self.is_stale {
            due.extend(self.awake.iter().filter_map(|id| Some(self.entries.get(id)?.row)));
            due.sort_unstable();
            due.dedup();
        } else {
            due.clear();
            due.extend(0..seen.listeners.len());
            self.note_missing(&seen, before_at);
        }
        self.forget(now);
        let look = Look { seen: &seen, now, before: before_at, reserved: self.reserved() };
        for row in &due {
            if let Some(task) = self.look_at(*row, &look) {
                self.tasks.push_back(task);
            }
        }
        self.due = due;
        self.is_stale = false;
        if now.since(begun) >= FORGET_AFTER && !self.inherited.is_empty() {
            self.inherited.clear();
            self.is_dirty = true;
        }
    }

    /// Looks at one row, and says what it asks for.
    fn look_at(&mut self, row: usize, look: &Look<'_>) -> Option<Task> {
        let listener = look.seen.listeners.get(row)?;
        let (cookie, backlog) = (listener.cookie?, listener.backlog?);
        let id = (listener.netns, cookie);
        let mut idle_until = look.before;
        let (mut is_changed, mut is_stale) = (true, self.is_stale);
        if let Some(entry) = self.entries.get_mut(&id) {
            (entry.row, entry.is_there) = (row, true);
            is_changed = !is_same(&entry.view, listener);
            let was_missing = self.missing.remove(&id);
            if was_missing {
                // The settings may be others by now.
                (idle_until, is_stale) = (entry.seen, true);
            }
            if entry.track.is_idle() && (is_changed || is_stale) {
                entry.track.idled(idle_until, &entry.policy);
            }
        }
        if is_changed || is_stale {
            let policy = self.policy(listener);
            let inherited = &mut self.inherited;
            let entry = match self.entries.entry(id) {
                Slot::Occupied(known) => known.into_mut(),
                Slot::Vacant(_) if policy.0.mode == TunerMode::Off => return None,
                Slot::Vacant(new) => {
                    let kept = inherited.remove(&id);
                    new.insert(Entry::new(listener, backlog, kept.as_ref(), look.now))
                }
            };
            entry.obey(policy);
            entry.row = row;
            if is_changed {
                entry.view.clone_from(listener);
            }
        }
        let entry = self.entries.get(&id)?;
        if entry.policy.mode == TunerMode::Off || (!is_changed && entry.track.is_idle()) {
            self.settle(id);
            return None;
        }
        let (policy, bounds) = (entry.policy, self.bounds(entry, look.reserved));
        let hindrance = || evidence(&self.report, listener).and_then(|evidence| hindrance(evidence, &policy));
        let youngest = || youngest(&self.started, &listener.pids);
        let track = &mut self.entries.get_mut(&id)?.track;
        let order = track.step(sample(listener, backlog, look.now), hindrance, &policy, &bounds, youngest);
        self.settle(id);
        Some(Task::Order { id, order: order?, shown: backlog })
    }

    /// What bounds a raise of a listener, where so many connections of the memory budget are taken, its own included.
    pub(super) fn bounds(&self, entry: &Entry, reserved: u32) -> Bounds {
        let others = reserved.saturating_sub(entry.track.added());
        let budget = self.config.memory_mib.saturating_mul(1024) / KIB_EACH;
        Bounds {
            somaxconn: self.somaxconn(entry.view.netns),
            raise_somaxconn: self.config.raise_somaxconn,
            room: budget.saturating_sub(others),
        }
    }

    /// What holds for a listener, and whether an operator set its mode at run time.
    pub(super) fn policy(&self, listener: &ListenerView) -> (ListenerPolicy, bool) {
        let configured = self.config.policy(listener.address, listener.port);
        match self.mode_of(listener) {
            Some(mode) => (ListenerPolicy { mode, ..configured }, true),
            None => (configured, false),
        }
    }

    /// Which known listeners are not in an observation; they were until `before`.
    fn note_missing(&mut self, seen: &Observation, before: Instant) {
        let ids = seen.listeners.iter().filter_map(|listener| Some((listener.netns, listener.cookie?)));
        let there: BTreeSet<Id> = ids.collect();
        for (id, entry) in &mut self.entries {
            if !there.contains(id) && self.missing.insert(*id) {
                entry.seen = before;
                self.awake.remove(id);
            }
        }
    }

    /// Takes listeners that closed off the books: their rows, and the memory of what they were raised by.
    pub(super) fn forget(&mut self, now: Instant) {
        if self.missing.is_empty() {
            return;
        }
        let last = Arc::clone(&self.last);
        let hidden = |listener: &&ListenerView| listener.cookie.is_none();
        let unread: BTreeSet<u64> =
            last.listeners.iter().filter(hidden).map(|listener| listener.netns).chain(last.unread.clone()).collect();
        for id in std::mem::take(&mut self.missing) {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            entry.is_there = unread.contains(&id.0);
            if now.since(entry.seen) < forgotten_after(entry) {
                self.missing.insert(id);
            } else {
                self.entries.remove(&id);
                self.awake.remove(&id);
                self.limited.remove(&id);
                self.is_dirty |= self.marked.remove(&id);
            }
        }
    }
}

/// Finds the rows that say something new; false where the listeners are not the same ones in the same order.
fn changed_rows(before: &[ListenerView], now: &[ListenerView], changed: &mut Vec<usize>) -> bool {
    let is_it = |one: &ListenerView, other: &ListenerView| {
        (one.cookie, one.netns, one.port) == (other.cookie, other.netns, other.port) && one.address == other.address
    };
    if before.len() != now.len() {
        return false;
    }
    for (row, (one, other)) in before.iter().zip(now).enumerate() {
        if !is_same(one, other) {
            if !is_it(one, other) {
                return false;
            }
            changed.push(row);
        }
    }
    true
}

/// What a report says of a listener. Its rows are in the order of the observation's.
fn evidence<'a>(report: &'a Report, listener: &ListenerView) -> Option<&'a Evidence> {
    let key = |row: &Judged| (row.netns, row.port, row.address, row.cookie);
    let wanted = (listener.netns, listener.port, listener.address, listener.cookie);
    let found = report.listeners.binary_search_by(|row| key(row).cmp(&wanted)).ok()?;
    report.listeners.get(found).map(|row| &row.evidence)
}

/// When the youngest of these processes started; `None` when all have ended.
pub(super) fn youngest(started: &BTreeMap<u32, u64>, pids: &[u32]) -> Option<u64> {
    pids.iter().filter_map(|pid| started.get(pid)).max().copied()
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
