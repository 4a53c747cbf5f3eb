//! The ladder: which tier works here, and for each better one the one-line reason why not. Tiers are proved by using
//! them, never guessed from a version.

use crate::foreign;
use crate::options::{Options, PlaneError};
use crate::proc::cgroup;
use crate::proc::preflight;
use crate::programs::ladder;
use crate::programs::tracepoint::{self, Tracepoint};
use crate::tables::procfs;
use crate::tables::sockdiag::{Diag, DiagError, Select};
use governor_observation::wording::chain;
use governor_observation::{HookCandidate, HookEvent, HookView, Tier};
use std::path::Path;

/// The outcome.
#[derive(Debug)]
pub(crate) struct Ladder {
    pub(crate) tier: Tier,
    /// Why it is less than was asked for, best first. What is asked for is the tier that is forced or required; where the
    /// configuration names none, the tracepoint tier, because many hosts allow no trampolines.
    pub(crate) reasons: Vec<String>,
    pub(crate) hooks: Vec<HookView>,
    /// The attached programs, on that tier.
    pub(crate) tracepoint: Option<Tracepoint>,
}

/// Climbs down from the tier asked for to the first that works.
///
/// # Errors
/// When that is less than required, or not even `/proc` works.
pub(crate) fn choose(options: &Options) -> Result<Ladder, PlaneError> {
    let from = options.forced_tier.unwrap_or(Tier::Trampoline);
    let asked = options.forced_tier.or(options.require).unwrap_or(Tier::Tracepoint);
    let mut reasons = Vec::new();
    let mut hooks = Vec::new();
    let mut tracepoint = None;
    let mut unusable = format!("not tried: the {from} tier is forced");
    if from >= Tier::Tracepoint {
        let foreign = foreign::tracing_programs();
        match attach(options, from) {
            Ok(attached) => {
                reasons.extend(short_of(asked.min(from), attached.hooks()));
                hooks.extend(attached.hooks().iter().cloned());
                hooks.extend(foreign);
                tracepoint = Some(attached);
            }
            Err(reason) => {
                if asked >= Tier::Trampoline {
                    reasons.push(format!("trampoline: {reason}"));
                }
                reasons.push(format!("tracepoint: {reason}"));
                unusable = reason;
            }
        }
    }
    if tracepoint.is_none() {
        let lost = ladder::ALL.iter().chain(&ladder::ONLY_BY_PROGRAMS);
        hooks.extend(lost.map(|ladder| ladder.unusable(&unusable)));
    }
    let mut tier = None;
    if from >= Tier::Netlink {
        match probe_diag() {
            Ok(()) => tier = Some(tracepoint.as_ref().map_or(Tier::Netlink, Tracepoint::tier)),
            Err(error) => {
                // Without the tables the programs know no present depth, so they are of no use alone.
                if tracepoint.take().is_some() {
                    reasons.push("tracepoint: socket diagnostics do not work".to_owned());
                }
                reasons.push(format!("netlink: {}", chain(&error)));
            }
        }
    }
    let tier = match tier {
        Some(tier) => tier,
        None => match procfs::listeners(Path::new("/proc/thread-self")) {
            Ok(_) => Tier::Procfs,
            Err(procfs::ProcfsError::Io(error)) => return Err(PlaneError::Proc(error)),
            Err(procfs::ProcfsError::Parse(error)) => return Err(PlaneError::Proc(std::io::Error::other(error))),
        },
    };
    hooks.push(table_hook(tier));
    match tier {
        Tier::Netlink => hooks.push(polled_connections()),
        Tier::Procfs => hooks.push(ladder::CONNECTIONS.unusable(reasons.last().map_or(&*unusable, String::as_str))),
        Tier::Tracepoint | Tier::Trampoline => {}
    }
    if let Some(required) = options.require
        && tier < required
    {
        let reason = if reasons.is_empty() { format!("{tier} is forced") } else { reasons.join("; ") };
        return Err(PlaneError::Tier { required, available: tier, reason });
    }
    Ok(Ladder { tier, reasons, hooks, tracepoint })
}

/// Attaches the programs, or says in one line why not.
fn attach(options: &Options, best: Tier) -> Result<Tracepoint, String> {
    if let Some(obstacle) = preflight::tracepoint_obstacle() {
        return Err(obstacle);
    }
    // The programs' own messages cost something in the kernel, so they are compiled in only where they will be shown.
    let log = tracing::enabled!(target: tracepoint::LOG_TARGET, tracing::Level::DEBUG);
    let cgroup_root = options.cgroup_root.clone().or_else(cgroup::find_root);
    let (max_listeners, pins) = (options.max_listeners, options.pins.clone());
    let options = tracepoint::Options { log, max_listeners, cgroup_root, pins, best, ..tracepoint::Options::default() };
    Tracepoint::attach(&options).map_err(|error| error.to_string())
}

fn probe_diag() -> Result<(), DiagError> {
    Diag::open()?.dump(Select::Listeners, &mut Vec::new())
}

/// The table that depth and backlog are read from on every tier.
fn table_hook(tier: Tier) -> HookView {
    let (purpose, hook, note) = match tier {
        Tier::Procfs => ("depth", "/proc/net/tcp", "backlog, drops and connections per cgroup are unknown"),
        Tier::Netlink => ("depth, backlog, drops", "sock_diag", "polled: what happens between ticks is lost"),
        Tier::Tracepoint | Tier::Trampoline => ("depth, backlog, drops", "sock_diag", "read every tick"),
    };
    // The tables belong to no tier of BPF, whichever reads them.
    let tier = tier.min(Tier::Netlink);
    HookView {
        event: Some(HookEvent::Table),
        purpose: purpose.to_owned(),
        hook: hook.to_owned(),
        active: true,
        note: note.to_owned(),
        candidates: vec![HookCandidate { hook: hook.to_owned(), tier, fires: true, reason: String::new() }],
        lost_without: "everything: depth and backlog now are read from it".to_owned(),
    }
}

/// Connections per cgroup where no program counts them.
fn polled_connections() -> HookView {
    let hook = "sock_diag".to_owned();
    HookView {
        event: Some(HookEvent::Connections),
        purpose: "connections".to_owned(),
        hook: hook.clone(),
        active: true,
        note: "polled, at most one part in twenty of the time".to_owned(),
        candidates: vec![HookCandidate { hook, tier: Tier::Netlink, fires: true, reason: String::new() }],
        lost_without: "connections per cgroup".to_owned(),
    }
}

/// Which events fall short of a tier: the reason of the best way to observe them, once for all events that share it. `None`
/// where every event is observed as well as that tier can.
fn short_of(tier: Tier, hooks: &[HookView]) -> Option<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for hook in hooks {
        let ways = || hook.candidates.iter().filter(|way| way.tier <= tier);
        let Some(best) = ways().max_by_key(|way| way.tier) else { continue };
        if ways().any(|way| way.tier == best.tier && way.fires) {
            continue;
        }
        match reasons.iter_mut().find(|(reason, _)| *reason == best.reason) {
            Some((_, events)) => events.push(&hook.purpose),
            None => reasons.push((&best.reason, vec![&hook.purpose])),
        }
    }
    let line = |(reason, events): &(&str, Vec<&str>)| format!("{}: {reason}", events.join("; "));
    (!reasons.is_empty()).then(|| format!("{tier}: {}", reasons.iter().map(line).collect::<Vec<_>>().join(" | ")))
}
