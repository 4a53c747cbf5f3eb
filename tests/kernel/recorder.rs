//! Records what the observer shows while a test brings a situation about, where `GOVERNOR_RECORD_SITUATIONS` names a folder.
//! The right verdicts and records are then written into the file's first line by hand.

use governor_health::Report;
use governor_observation::vitals::Descriptors;
use governor_observation::{ListenerView, Observation};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use support::recording::{FORMAT, Header, Moment, Recording, WRITE_TO};
use tokio::sync::watch::Receiver;

/// Milliseconds between two moments at least while nothing changes.
const PAUSE: u64 = 100;

/// Records until it is dropped.
pub(crate) struct Recorder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Moment>>>,
    path: PathBuf,
    port: u16,
}

impl Recorder {
    /// `None` where no recording is wanted.
    pub(crate) fn start(
        seen: Receiver<Arc<Observation>>,
        reports: Receiver<Arc<Report>>,
        (netns, port): (u64, u16),
    ) -> Option<Self> {
        let folder = PathBuf::from(std::env::var_os(WRITE_TO)?);
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let tier = seen.borrow().tier;
        let record = move || record(seen, &reports, netns, &is_over);
        let test = thread::current().name().unwrap_or("situation").replace("verdicts::", "").replace('_', "-");
        let path = folder.join(format!("{test}-{tier}.jsonl"));
        Some(Self { stop, thread: Some(thread::spawn(record)), path, port })
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let Some(Ok(moments)) = self.thread.take().map(JoinHandle::join) else { return };
        let header = Header {
            format: FORMAT,
            situation: String::new(),
            ports: vec![self.port],
            proxies: Vec::new(),
            verdicts: Vec::new(),
            records: Vec::new(),
        };
        Recording { header, moments }.write(&self.path).expect("the folder can be written");
    }
}

fn record(
    mut seen: Receiver<Arc<Observation>>,
    reports: &Receiver<Arc<Report>>,
    netns: u64,
    is_over: &AtomicBool,
) -> Vec<Moment> {
    let begun = Instant::now();
    let mut moments = Vec::new();
    seen.mark_changed();
    while !is_over.load(Ordering::Relaxed) {
        if !seen.has_changed().unwrap_or(false) {
            thread::sleep(Duration::from_millis(2));
            continue;
        }
        let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let observation = Arc::clone(&seen.borrow_and_update());
        let of_namespace = || observation.listeners.iter().filter(|row| row.netns == netns);
        let counts = |row: &ListenerView| (row.cookie, row.depth, row.accepted_total, row.overflows_total);
        let is_unchanged = |last: &Moment| last.listeners.iter().map(counts).eq(of_namespace().map(counts));
        if moments.last().is_some_and(|last: &Moment| ms < last.ms + PAUSE && is_unchanged(last)) {
            continue;
        }
        let descriptors: BTreeMap<u32, Descriptors> = reports
            .borrow()
            .listeners
            .iter()
            .filter(|row| row.netns == netns)
            .filter_map(|row| row.evidence.descriptors.map(|one| (one.pid, one)))
            .collect();
        moments.push(Moment {
            ms,
            tier: observation.tier,
            listeners: of_namespace().cloned().collect(),
            namespaces: observation.namespaces.iter().filter(|row| row.netns == netns).cloned().collect(),
            descriptors: descriptors.into_values().collect(),
            counted: 0,
            cap: 0,
            pools: Vec::new(),
        });
    }
    moments
}
