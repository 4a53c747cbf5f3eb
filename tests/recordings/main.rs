//! Recorded situations of nodes, each replayed against the verdicts and records that are right for it. Those of listeners
//! were recorded on a kernel by `tests/kernel/verdicts.rs`, those of pools from the engine in virtual time by `pools.rs`;
//! both write again where `GOVERNOR_RECORD_SITUATIONS` names a folder. What is right was decided by people: a recording's
//! header is edited by hand and never written over.

mod backlogs;
mod pools;

use governor_engine::time::{Duration, Instant};
use governor_health::transitions::Entry;
use governor_health::{Assessor, LevelMachine, Transitions, Verdict};
use governor_user::config::OverloadConfig;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use support::recording::{FOLDER, Header, Recording};

/// The verdicts of each moment, and all records.
struct Replayed {
    verdicts: Vec<(u64, BTreeSet<Verdict>)>,
    records: Vec<Entry>,
}

fn replay(Recording { header, moments }: &Recording) -> Replayed {
    let config = OverloadConfig { ports: header.ports.clone(), ..OverloadConfig::default() };
    let level = || LevelMachine::new(config.hold, config.hysteresis);
    let (mut notified, mut shedding) = (level(), level());
    let mut transitions = Transitions::new(config.hold);
    let mut assessor = Assessor::new(config, Vec::new());
    let mut replayed = Replayed { verdicts: Vec::new(), records: Vec::new() };
    for moment in moments {
        let now = Instant::ZERO.after(Duration::from_millis(moment.ms));
        let loads = moment.loads(&header.proxies);
        let report = assessor.assess(&moment.observation(), &moment.vitals(), &loads, now);
        notified.update(report.pressure.permille, report.pressure.urgent, now);
        shedding.update(report.pressure.shedding, false, now);
        replayed.records.extend(transitions.absorb(&report, notified.level(), shedding.level(), now));
        let judged = report.listeners.iter().filter(|row| header.ports.contains(&row.port));
        replayed.verdicts.push((moment.ms, judged.map(|row| row.verdict).collect()));
    }
    replayed
}

/// Every recording with its name.
fn recordings() -> Vec<(String, Recording)> {
    let mut paths: Vec<PathBuf> = fs::read_dir(FOLDER)
        .expect("recordings are in the tree")
        .map(|entry| entry.expect("readable").path())
        .collect();
    paths.sort();
    let read = |path: &Path| Recording::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let name = |path: &Path| path.file_stem().expect("a file").to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), read(path))).collect()
}

/// The first moment whose verdicts are not right, and how the verdicts went.
fn wrong(header: &Header, verdicts: &[(u64, BTreeSet<Verdict>)]) -> Option<String> {
    let (ms, first) = verdicts.iter().find(|(ms, found)| {
        let span = header.verdicts.iter().find(|span| span.until_ms.is_none_or(|until| *ms < until));
        !span.is_some_and(|span| found.iter().all(|verdict| span.any_of.iter().any(|right| right == verdict.as_str())))
    })?;
    let mut course: Vec<&(u64, BTreeSet<Verdict>)> = verdicts.iter().collect();
    course.dedup_by_key(|(_, found)| found);
    Some(format!("wrong at {ms} ms: {first:?}; the verdicts went {course:?}"))
}

#[test]
fn every_recorded_situation_is_judged_and_recorded_right_at_each_moment() {
    let mut faults = Vec::new();
    for (name, recording) in recordings() {
        let Replayed { verdicts, records } = replay(&recording);
        faults.extend(wrong(&recording.header, &verdicts).map(|fault| format!("{name}: {fault}")));
        let of = |entry: &Entry| (entry.action.to_owned(), entry.before.to_owned(), entry.after.to_owned());
        let found: Vec<_> = records.iter().map(of).collect();
        if found != recording.header.records {
            faults.push(format!("{name}: records {found:#?}, right is {:#?}", recording.header.records));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_verdict_is_recorded_at_least_once() {
    let seen: BTreeSet<Verdict> = recordings()
        .iter()
        .flat_map(|(_, recording)| replay(recording).verdicts)
        .flat_map(|(_, found)| found)
        .collect();
    let missing: Vec<_> = Verdict::ALL.into_iter().filter(|verdict| !seen.contains(verdict)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn no_reason_of_a_record_contradicts_itself() {
    for (name, recording) in recordings() {
        for Entry { reason, .. } in replay(&recording).records {
            let reason = reason.unwrap_or_default();
            assert!(!reason.contains("up to 0 of"), "{name}: {reason}");
            assert!(!reason.contains("listen() asked"), "{name}: {reason}");
        }
    }
}
