//! What the programs themselves take over a connection's life, by the kernel's own statistics. They read the clock twice
//! a run, which is part of what they show; an empty program on the same hook tells how much that is.

use crate::load::Load;
use crate::pairs::median;
use crate::report::{Bound, Row, Subject, Target};
use crate::{Scale, empty, place, progress};
use anyhow::{Context, Result};
use aya::programs::loaded_programs;
use aya::sys::{Stats, enable_stats};
use governor_user::kernel::{self, Options};
use std::collections::BTreeMap;
use std::fs;
use support::netns::Netns;

/// The busiest hook of the governor.
const HOOK: &str = "inet_sock_set_state";

/// The iterator of the audits.
const SCAN: &str = "scan_tcp";

/// Run time and runs of programs, by id.
type Runs = BTreeMap<u32, (String, u64, u64)>;

/// Measures. The notes tell each program's part.
pub(crate) fn measure(scale: &Scale, namespace: &Netns) -> Result<(Vec<Row>, Vec<String>)> {
    let _counting = enable_stats(Stats::RunTime).context("the kernel counts no run time")?;
    let plane = kernel::spawn(Options::default())?;
    let ours = own_programs()?;
    // After `own_programs`: this one is not the governor's.
    let empty = empty::attach(HOOK)?;
    let nothing: Vec<u32> = own_programs()?.into_iter().filter(|id| !ours.contains(id)).collect();
    let mut notes = Vec::new();
    let (mut net, mut floors) = (Vec::new(), Vec::new());
    place::inside(namespace, || {
        place::pin()?;
        let mut load = Load::new()?;
        load.connect(scale.connections)?;
        for round in 0..scale.rounds {
            progress(format_args!("programs, round {} of {}", round + 1, scale.rounds));
            let before = (runs(&ours)?, runs(&nothing)?);
            load.connect(scale.connections)?;
            let after = since(runs(&ours)?, &before.0);
            let floor = per_run(&since(runs(&nothing)?, &before.1));
            // The scan runs once a socket at each audit, which is no part of a connection's own life.
            let events = after.values().filter(|(name, ..)| name != SCAN);
            let all: f64 = events.map(|(_, time, count)| *time as f64 - floor * *count as f64).sum();
            net.push(all / f64::from(scale.connections));
            floors.push(floor);
            notes = after.values().map(|run| part(run, floor, scale.connections)).collect();
        }
        Ok(())
    })?;
    drop((empty, plane));
    notes.insert(
        0,
        format!("an empty program reads as {:.0} ns a run, and that is taken off every run", median(floors)),
    );
    let row = Row {
        what: "programs over a connection's life, both ends".to_owned(),
        unit: "ns".to_owned(),
        baseline: None,
        value: median(net),
        ratio: None,
        target: Some(Target { of: Subject::Value, bound: Bound::AtMost, limit: 900.0, aim: Some(500.0) }),
    };
    Ok((vec![row], notes))
}

fn part((name, time, count): &(String, u64, u64), floor: f64, connections: u32) -> String {
    let net = if *count == 0 { 0.0 } else { *time as f64 / *count as f64 - floor };
    format!("{name}: {:.2} runs a connection of {net:.0} ns each", *count as f64 / f64::from(connections))
}

fn per_run(runs: &Runs) -> f64 {
    let (time, count) = runs.values().fold((0, 0), |(time, count), run| (time + run.1, count + run.2));
    if count == 0 { 0.0 } else { time as f64 / count as f64 }
}

fn since(mut now: Runs, before: &Runs) -> Runs {
    for (id, (_, time, count)) in &mut now {
        if let Some((_, earlier, fewer)) = before.get(id) {
            *time = time.saturating_sub(*earlier);
            *count = count.saturating_sub(*fewer);
        }
    }
    now
}

fn runs(ids: &[u32]) -> Result<Runs> {
    let mut runs = Runs::new();
    for program in loaded_programs() {
        // One that was unloaded in between belongs to somebody else.
        let Ok(program) = program else { continue };
        if ids.contains(&program.id()) {
            let name = program.name_as_str().unwrap_or("?").to_owned();
            runs.insert(
                program.id(),
                (name, u64::try_from(program.run_time().as_nanos()).unwrap_or(u64::MAX), program.run_count()),
            );
        }
    }
    Ok(runs)
}

/// Ids of the programs whose links this process holds: other governors may run on the machine.
fn own_programs() -> Result<Vec<u32>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir("/proc/self/fdinfo").context("cannot read this process's descriptors")? {
        // The descriptor of this listing is gone by now.
        let Ok(text) = fs::read_to_string(entry?.path()) else { continue };
        let id = text.lines().find_map(|line| line.strip_prefix("prog_id:"));
        ids.extend(id.and_then(|id| id.trim().parse::<u32>().ok()));
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}
