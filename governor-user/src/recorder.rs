//! What no view shows and is counted as it happens, for the metrics. Cheap to clone; all clones count together.

use crate::records::ring::RingHealth;
use governor_api::TunerAction;
use governor_engine::io::Output;
use governor_engine::time::Duration;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bounds of the wait histogram in seconds: powers of 2 from 1 ms to 65 s, cut so that they are also bounds of a native
/// histogram.
fn wait_bounds() -> impl Iterator<Item = f64> {
    (-10..=6).map(f64::from).map(f64::exp2)
}

/// Counts what no view shows. Cheap to clone; all clones count together.
#[derive(Clone, Debug)]
pub struct Recorder {
    pub(crate) waits: Histogram,
    pub(crate) rejected: Counter,
    pub(crate) reload_failures: Counter,
    /// The last reload failed.
    pub(crate) is_stale: Arc<AtomicBool>,
    tuner: Arc<Mutex<TunerFigures>>,
    /// By pool and reason; both are bounded by the configuration.
    light_refusals: Arc<Mutex<BTreeMap<(String, &'static str), u64>>>,
}

/// What the tuner did and holds.
#[derive(Clone, Debug, Default)]
pub struct TunerFigures {
    /// Lines of its journal since the start, by what was done.
    pub actions: BTreeMap<TunerAction, u64>,
    /// Listeners whose backlog is raised.
    pub raised: usize,
    /// Listeners left to an operator.
    pub stood_down: usize,
    /// Listeners whose namespace allows less than would help.
    pub clamped: usize,
    /// Connections that all raised queues together hold more than their owners asked for.
    pub added: u64,
    /// How the disk of the journal fares.
    pub journal: RingHealth,
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            waits: Histogram::new(wait_bounds()),
            rejected: Counter::default(),
            reload_failures: Counter::default(),
            is_stale: Arc::default(),
            tuner: Arc::default(),
            light_refusals: Arc::default(),
        }
    }
}

impl Recorder {
    /// Takes an order: the wait of each grant with a slot of its own.
    pub fn take(&self, order: &Output) {
        if let Output::Began(grant) | Output::Resumed(grant) = order {
            self.waited(grant.waited);
        }
    }

    /// A grant with a slot of its own after this time parked, zero for at once.
    pub fn waited(&self, time: Duration) {
        self.waits.observe(time.as_secs_f64());
    }

    /// A request named a pool or member that is not configured.
    pub fn rejected(&self) {
        self.rejected.inc();
    }

    /// A key that held less than its share was refused.
    pub fn refused_light(&self, pool: &str, reason: &'static str) {
        let mut counts = self.light_refusals.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((pool.to_owned(), reason)).or_default() += 1;
    }

    /// Those refusals by pool and reason.
    pub(crate) fn light_refusals(&self) -> BTreeMap<(String, &'static str), u64> {
        self.light_refusals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A configuration was to be reloaded and is not valid.
    pub fn reload_failed(&self) {
        self.reload_failures.inc();
        self.is_stale.store(true, Ordering::Relaxed);
    }

    /// A configuration was reloaded.
    pub fn reloaded(&self) {
        self.is_stale.store(false, Ordering::Relaxed);
    }

    /// The tuner shows what it did.
    pub fn tuner(&self, figures: TunerFigures) {
        *self.tuner.lock().unwrap_or_else(PoisonError::into_inner) = figures;
    }

    pub(crate) fn tuner_figures(&self) -> TunerFigures {
        self.tuner.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
