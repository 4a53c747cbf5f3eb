//! The thread that makes the reports: one for each observation, with what `/proc` says of the machine and of the
//! proxies. A thread of its own, because a host with thousands of listeners takes milliseconds to judge and a request
//! must not wait for that.

use crate::config::{CgroupCeiling, OverloadConfig};
use crate::process::clock;
use governor_engine::time::{Duration, Instant};
use governor_health::assessor::Assessor;
use governor_health::pressure::loads::Loads;
use governor_health::report::Report;
use governor_kernel::proc::vitals::VitalsReader;
use governor_observation::Observation;
use governor_observation::vitals::Vitals;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::thread;
use tokio::runtime::Builder;
use tokio::sync::watch;

/// `/proc` is read at most this often.
const READ_EVERY: Duration = Duration::from_millis(250);

/// The thread rests at least this many times as long as a report took, and observations in between are not looked at:
/// at most a fifth of one CPU.
const REST: u32 = 4;

/// Reports come this often when there are no observations any more: requests and the machine are still weighed.
const WITHOUT_PLANE: Duration = Duration::from_millis(250);

/// Processes whose descriptors are counted, besides proxies: of listeners where connections wait.
const MOST_HOLDERS: usize = 64;

/// Starts the thread; it ends when `loads` does, which the driver writes.
///
/// # Errors
/// The system refused the thread.
pub fn spawn(
    config: OverloadConfig,
    ceilings: Vec<CgroupCeiling>,
    seen: watch::Receiver<Arc<Observation>>,
    loads: watch::Receiver<Arc<Loads>>,
) -> io::Result<watch::Receiver<Arc<Report>>> {
    let (reports, receiver) = watch::channel(Arc::new(Report::default()));
    let watcher = Watcher {
        assessor: Assessor::new(config, ceilings),
        reader: VitalsReader::find(),
        vitals: Vitals::default(),
        read_at: None,
        seen,
        loads,
        reports,
    };
    // It only waits for channels, so it needs none of the daemon's runtime, which ends before it may.
    let runtime = Builder::new_current_thread().build()?;
    thread::Builder::new().name("assessment".to_owned()).spawn(move || runtime.block_on(watcher.run()))?;
    Ok(receiver)
}

struct Watcher {
    assessor: Assessor,
    reader: VitalsReader,
    vitals: Vitals,
    read_at: Option<Instant>,
    seen: watch::Receiver<Arc<Observation>>,
    loads: watch::Receiver<Arc<Loads>>,
    reports: watch::Sender<Arc<Report>>,
}

impl Watcher {
    async fn run(mut self) {
        while self.is_wanted() {
            let seen = Arc::clone(&self.seen.borrow_and_update());
            let begun = clock::now();
            self.report(&seen);
            thread::sleep(clock::now().since(begun) * REST);
            if self.seen.changed().await.is_err() {
                return self.run_without_plane();
            }
        }
    }

    /// The plane's last word is no evidence of anything; requests and the machine are still weighed.
    fn run_without_plane(mut self) {
        if self.is_wanted() {
            tracing::error!("the kernel plane ended: no listener is watched from now on");
        }
        while self.is_wanted() {
            self.report(&Observation::default());
            thread::sleep(WITHOUT_PLANE);
        }
    }

    /// The driver holds the other end for as long as it runs.
    fn is_wanted(&self) -> bool {
        self.loads.has_changed().is_ok()
    }

    fn report(&mut self, seen: &Observation) {
        let loads = Arc::clone(&self.loads.borrow_and_update());
        let now = clock::now();
        if self.read_at.is_none_or(|at| now.since(at) >= READ_EVERY) {
            let waiting = seen.listeners.iter().filter(|listener| listener.depth > 0);
            let holders: BTreeSet<u32> = waiting.flat_map(|listener| listener.pids.iter().copied()).collect();
            self.vitals = self.reader.read(&loads.proxies, holders.into_iter().take(MOST_HOLDERS));
            self.read_at = Some(now);
        }
        let report = self.assessor.assess(seen, &self.vitals, &loads, now);
        // Only while the daemon stops there is no receiver.
        self.reports.send_replace(Arc::new(report));
    }
}
