//! When the BPF counts are held against the kernel's sockets, and what came of it. Counts that only ever move by one
//! drift when an event is missed; an audit visits every socket of every namespace and repairs the difference.
//!
//! ```text
//!   Resting ─due─▶ Walking ─walk─▶ (scan every namespace that it found, compare) Resting
//! ```
//!
//! Counts are kept for each network namespace apart, and only those are judged whose sockets were all visited. One that
//! cannot be entered, because it is being torn down or its last task left, has open sockets that no scan sees; its
//! counts stay as they are and fall when those close.

use crate::proc::netns::Namespaces;
use crate::proc::privileged::EnterError;
use crate::programs::tracepoint::{Drift, ScanError, Tracepoint};
use governor_observation::Health;
use governor_observation::wording::chain;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    time::{Duration, Instant},
};

/// Intervals after which an audit whose walks have not come is begun anew. Until then it is waited for: on a machine
/// so busy that walks take longer than an interval, no audit would ever end.
const PATIENCE: u32 = 30;

/// Where an audit stands.
#[derive(Debug)]
enum State {
    Resting,
    /// Namespaces are being looked up.
    Walking,
}

/// The audits' cadence and state.
#[derive(Debug)]
pub(crate) struct Reconciler {
    every: Duration,
    due: Instant,
    /// When the audit under way is given up.
    abandon: Instant,
    state: State,
    /// Namespaces whose first scan, which seeds, is done.
    seeded: BTreeSet<u64>,
    /// Namespaces with counts that no walk found any more by the last audit.
    missing: BTreeSet<u64>,
    /// Namespaces that could not be scanned when they last should have been, and why.
    unscanned: BTreeMap<u64, String>,
}

/// A namespace could not be left again.
#[derive(Debug)]
pub(crate) struct Stranded(pub(crate) io::Error);

impl Reconciler {
    /// The first audit is due one interval from now.
    pub(crate) fn new(every: Duration, now: Instant) -> Self {
        Self {
            every,
            due: now + every,
            abandon: now,
            state: State::Resting,
            seeded: BTreeSet::new(),
            missing: BTreeSet::new(),
            unscanned: BTreeMap::new(),
        }
    }

    /// Whether an audit begins now; it then wants a walk.
    pub(crate) fn begin(&mut self, now: Instant) -> bool {
        if now < self.due {
            return false;
        }
        self.due = now + self.every;
        if !matches!(self.state, State::Resting) && now < self.abandon {
            return false;
        }
        self.abandon = now + self.every.saturating_mul(PATIENCE);
        self.state = State::Walking;
        true
    }

    /// Seeds the namespaces that have not been scanned yet. A failure is retried by the next audit.
    pub(crate) fn seed(&mut self, tracepoint: &mut Tracepoint, namespaces: &mut Namespaces) -> Result<(), Stranded> {
        for netns in namespaces.all() {
            if !self.seeded.contains(&netns)
                && let Err(error) = scan(netns, tracepoint, namespaces)
            {
                self.note(netns, error)?;
                continue;
            }
            if self.seeded.insert(netns) {
                self.unscanned.remove(&netns);
            }
        }
        self.seeded.retain(|netns| namespaces.knows(*netns));
        Ok(())
    }

    /// Goes on with the audit now that `namespaces` are fresh. Returns the namespaces that could not be scanned, and
    /// why.
    pub(crate) fn advance(
        &mut self,
        tracepoint: Option<&mut Tracepoint>,
        namespaces: &mut Namespaces,
        health: &mut Health,
    ) -> Result<&BTreeMap<u64, String>, Stranded> {
        let audits = matches!(std::mem::replace(&mut self.state, State::Resting), State::Walking);
        match (tracepoint, audits) {
            // Polled counts are taken from the sockets themselves each time and cannot drift.
            (None, audits) => health.audits += u64::from(audits),
            // A walk for another purpose.
            (Some(tracepoint), false) => self.seed(tracepoint, namespaces)?,
            (Some(tracepoint), true) => {
                match self.audit(tracepoint, namespaces, health)? {
                    Some(drift) => {
                        health.audits += 1;
                        health.drift += drift.total;
                        if drift.total > 0 {
                            tracing::warn!(drift = drift.total, "connection counts drifted and were repaired");
                        }
                    }
                    None => health.audits_failed += 1,
                }
                self.seed(tracepoint, namespaces)?;
            }
        }
        self.unscanned.retain(|netns, _| namespaces.knows(*netns));
        Ok(&self.unscanned)
    }

    /// Scans every known namespace and compares; `None` when one could not be scanned, or the counters not be read. The
    /// others are judged all the same.
    fn audit(
        &mut self,
        tracepoint: &mut Tracepoint,
        namespaces: &mut Namespaces,
        health: &mut Health,
    ) -> Result<Option<Drift>, Stranded> {
        let Ok(mut audit) = tracepoint.begin_audit() else { return Ok(None) };
        let mut whole = true;
        for netns in namespaces.all() {
            match scan(netns, tracepoint, namespaces) {
                Ok(scan) => {
                    self.unscanned.remove(&netns);
                    // What an earlier scan or the hooks should have counted and did not.
                    if !self.seeded.insert(netns) {
                        health.drift += scan.seeded;
                    }
                    audit.add(netns, &scan);
                }
                // It ended, and its connections with it.
                Err(Unscanned::Enter(EnterError::Gone)) => {}
                Err(error) => {
                    self.note(netns, error)?;
                    whole = false;
                }
            }
        }
        let drift = tracepoint.finish_audit(audit).ok();
        if let (Some(drift), false) = (&drift, whole) {
            health.drift += drift.total;
        }
        self.forget_missing(tracepoint, namespaces);
        Ok(drift.filter(|_| whole))
    }

    /// Forgets counts of namespaces that two audits in a row did not find.
    fn forget_missing(&mut self, tracepoint: &mut Tracepoint, namespaces: &Namespaces) {
        let mut missing = BTreeSet::new();
        let forgotten = tracepoint.forget_namespaces(|netns| {
            !namespaces.knows(netns) && {
                missing.insert(netns);
                self.missing.contains(&netns)
            }
        });
        if let Err(error) = forgotten {
            tracing::debug!(%error, "counts of namespaces that are gone stay");
        }
        self.missing = missing;
    }

    fn note(&mut self, netns: u64, error: Unscanned) -> Result<(), Stranded> {
        match error {
            Unscanned::Enter(EnterError::Stranded(error)) => Err(Stranded(error)),
            // Missing rights are one line for all namespaces.
            Unscanned::Enter(error @ (EnterError::Gone | EnterError::Denied)) => {
                tracing::debug!(netns, %error, "namespace not scanned");
                Ok(())
            }
            Unscanned::Enter(error) => {
                self.unscanned.insert(netns, chain(&error));
                Ok(())
            }
            // The hook says why, from the start.
            Unscanned::Scan(ScanError::Unavailable) => Ok(()),
            Unscanned::Scan(error) => {
                self.unscanned.insert(netns, chain(&error));
                Ok(())
            }
        }
    }
}

/// Why a namespace was not scanned.
#[derive(Debug)]
enum Unscanned {
    Enter(EnterError),
    Scan(ScanError),
}

fn scan(
    netns: u64,
    tracepoint: &mut Tracepoint,
    namespaces: &mut Namespaces,
) -> Result<crate::programs::tracepoint::Scan, Unscanned> {
    namespaces.visit(netns, || tracepoint.scan(netns)).map_err(Unscanned::Enter)?.map_err(Unscanned::Scan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::privileged::Home;

    #[test]
    fn audits_are_an_interval_apart_and_complete_without_bpf() {
        let start = Instant::now();
        let mut reconciler = Reconciler::new(Duration::from_secs(10), start);
        let mut namespaces = Namespaces::new(Home::of_this_thread().unwrap());
        let mut health = Health::default();
        assert!(!reconciler.begin(start + Duration::from_secs(9)));
        assert!(reconciler.begin(start + Duration::from_secs(10)));
        assert!(!reconciler.begin(start + Duration::from_secs(19)));
        for _ in 0..2 {
            reconciler.advance(None, &mut namespaces, &mut health).unwrap();
        }
        assert_eq!((health.audits, health.audits_failed), (1, 0));
    }

    #[test]
    fn an_audit_is_waited_for_and_not_forever() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut reconciler = Reconciler::new(second, start);
        assert!(reconciler.begin(start + second));
        assert!(!reconciler.begin(start + 2 * second));
        assert!(!reconciler.begin(start + 30 * second));
        assert!(reconciler.begin(start + 31 * second));
    }
}
