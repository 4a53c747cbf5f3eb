//! The same recordings given to the tuner: which situations ask for a longer backlog.

use super::recordings;
use governor_engine::time::{Duration, Instant};
use governor_health::Assessor;
use governor_health::backlog::tuner::{Input, Memory, Output, Tuner};
use governor_health::backlog::{AtExit, ListenerPolicy, TunerAction, TunerConfig, TunerMode};
use governor_user::config::OverloadConfig;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use support::recording::Recording;

const BURSTS: [&str; 2] = [
    "a-burst-that-drains-asks-for-a-longer-backlog-netlink",
    "a-burst-that-drains-asks-for-a-longer-backlog-tracepoint",
];

/// What the tuner would have done about the judged listeners. In observe mode, because the rows are what they were.
fn advised(Recording { header, moments }: &Recording, max_wait: Duration) -> BTreeSet<&'static str> {
    let global =
        ListenerPolicy { mode: TunerMode::Observe, target: 1024, max: 4096, max_wait, quiet: Duration::from_secs(600) };
    let config =
        TunerConfig { global, listeners: Vec::new(), memory_mib: 64, raise_somaxconn: false, at_exit: AtExit::Keep };
    let mut tuner = Tuner::new(config, Memory::default(), Vec::new());
    let overload = OverloadConfig { ports: header.ports.clone(), ..OverloadConfig::default() };
    let mut assessor = Assessor::new(overload, Vec::new());
    let mut actions = BTreeSet::new();
    for moment in moments {
        let now = Instant::ZERO.after(Duration::from_millis(moment.ms));
        let mut seen = moment.observation();
        seen.taken_ns = now.0;
        let report = Arc::new(assessor.assess(&seen, &moment.vitals(), &moment.loads(&header.proxies), now));
        tuner.handle_input(Input::Observed { seen: Arc::new(seen), report, started: BTreeMap::new() }, now);
        while let Some(output) = tuner.poll_output() {
            match output {
                Output::Record(record) => drop(actions.insert(record.action.as_str())),
                Output::Keep(_) => {}
                Output::Act(_) | Output::Retired(_) | Output::Outcomes(_) | Output::Resumed(_) | Output::Stopped => {
                    panic!("observing orders nothing: {output:?}")
                }
            }
        }
    }
    actions
}

/// Situations in which it would have raised a backlog.
fn asking(max_wait: Duration) -> Vec<String> {
    let all = recordings();
    let asks = |recording: &Recording| advised(recording, max_wait).contains(TunerAction::WouldRaise.as_str());
    all.into_iter().filter(|(_, recording)| asks(recording)).map(|(name, _)| name).collect()
}

#[test]
fn only_bursts_that_drain_within_the_longest_wait_ask_for_a_longer_backlog() {
    // The recorded bursts take a second to drain.
    assert_eq!(asking(Duration::from_millis(500)), [""; 0]);
    assert_eq!(asking(Duration::from_secs(2)), BURSTS);
}
