//! What the programs themselves take over a connection's life, by the kernel's own statistics. They read the clock twice
//! a run, which is part of what they show; an empty program on the same hook tells how much that is.

use crate::Scale;
use crate::empty;
use crate::load::Load;
use crate::pairs::median;
use crate::place;
use crate::progress;
use crate::report::{Bound, Row, Subject, Target};
use anyhow::{Context, Result, anyhow};
use aya::programs::loaded_programs;
use aya::sys::{Stats, enable_stats};
use governor_kernel::programs::tracepoint::{Options, Tracepoint};
use std::collections::BTreeMap;
use std::fs;
use support::cores;
use support::machine::cgroup;
use support::machine::netns::Netns;

/// The busiest hook of the governor.
const HOOK: &str = "inet_sock_set_state";

/// What looks for refused SYNs.
const INGRESS: &str = "syn_ingress";

/// Run time and runs of programs, by id.
type Runs = BTreeMap<u32, (String, u64, u64)>;

/// Measures. The notes tell each program's part.
pub(crate) fn measure(scale: &Scale, namespace: &Netns) -> Result<(Vec<Row>, Vec<String>)> {
    let _counting = enable_stats(Stats::RunTime).context("the kernel counts no run time")?;
    let usual = || Options { cgroup_root: cgroup::root().ok(), ..Options::default() };
    let mut programs = Tracepoint::attach(&usual())?;
    let rounds = rounds(scale, namespace)?;
    programs.watch_syns().map_err(|reason| anyhow!(reason))?;
    let watching = self::rounds(scale, namespace)?;
    drop(programs);
    let programs = Tracepoint::attach(&Options { quick_marks: Some(1), ..usual() })?;
    let stored = self::rounds(scale, namespace)?;
    drop(programs);

    let over = |rounds: &[Round], figure: &dyn Fn(&Round) -> f64| median(rounds.iter().map(figure).collect());
    let life = |rounds: &[Round]| over(rounds, &|round| round.net() / f64::from(scale.connections));
    let row = |what: &str, value, target| Row {
        what: what.to_owned(),
        unit: "ns".to_owned(),
        baseline: None,
        value,
        ratio: None,
        target,
    };
    let target = Some(Target { of: Subject::Value, bound: Bound::AtMost, limit: 900.0, aim: Some(500.0) });
    let both = life(&rounds);
    let rows = vec![
        row("programs over a connection's life, each end", both / 2.0, target),
        row("programs over a connection's life, both ends", both, target),
        row("the same, where no end finds a place for a quick mark", life(&stored), None),
        row("a packet that the host drops: kfree_skb", over(&rounds, &|round| round.an_event("kfree_skb")), None),
        row(
            "a packet received while refused SYNs are looked for",
            over(&watching, &|round| round.an_event(INGRESS)),
            None,
        ),
    ];
    let floor = over(&rounds, &|round| round.floor);
    let mut notes = vec![format!("an empty program reads as {floor:.0} ns a run, and that is taken off every run")];
    notes.extend(rounds.last().into_iter().flat_map(|round| round.parts(scale.connections)));
    Ok((rows, notes))
}

/// What the programs did while a round of connections came and went.
struct Round {
    runs: Runs,
    /// What one run of an empty program reads as, in nanoseconds.
    floor: f64,
}

impl Round {
    /// Time of all programs, in nanoseconds.
    fn net(&self) -> f64 {
        self.runs.values().map(|(_, time, count)| *time as f64 - self.floor * *count as f64).sum()
    }

    /// Time of one event in a program and its twin, in nanoseconds; 0 when neither ran.
    fn an_event(&self, name: &str) -> f64 {
        self.runs.values().filter(|(of, ..)| of.starts_with(name)).map(|run| self.a_run(run)).sum()
    }

    fn a_run(&self, (_, time, count): &(String, u64, u64)) -> f64 {
        if *count == 0 { 0.0 } else { *time as f64 / *count as f64 - self.floor }
    }

    /// A line on each program that ran.
    fn parts(&self, connections: u32) -> impl Iterator<Item = String> {
        self.runs.values().filter(|(.., count)| *count > 0).map(move |run| {
            let runs = run.2 as f64 / f64::from(connections);
            format!("{}: {runs:.2} runs a connection of {:.0} ns each", run.0, self.a_run(run))
        })
    }
}

/// Rounds of connections under the programs that this process has attached.
fn rounds(scale: &Scale, namespace: &Netns) -> Result<Vec<Round>> {
    let ours = own_programs()?;
    // After `own_programs`: this one is not the governor's.
    let _empty = empty::attach(HOOK)?;
    let nothing: Vec<u32> = own_programs()?.into_iter().filter(|id| !ours.contains(id)).collect();
    place::inside(namespace, || {
        cores::beside_clients()?;
        let mut load = Load::new()?;
        load.connect(scale.connections)?;
        let round = |number| {
            progress(format_args!("programs, round {number} of {}", scale.rounds));
            let before = (runs(&ours)?, runs(&nothing)?);
            load.connect(scale.connections)?;
            let floor = per_run(&since(runs(&nothing)?, &before.1));
            Ok(Round { runs: since(runs(&ours)?, &before.0), floor })
        };
        (1..=scale.rounds).map(round).collect()
    })
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
