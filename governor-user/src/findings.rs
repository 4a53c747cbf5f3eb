//! What is wrong with the node, as a list for people and scripts: each finding names its subject, says with numbers what is
//! wrong, and gives the next command. Pure: from views of the daemon to findings; reads no clock and no file. Verdicts of
//! single listeners are made in [`governor_health`]; what is shown and with which exit code is the surfaces' part.

mod listeners;
mod pools;

use crate::driver::view::View;
use crate::node::settings::ReloadFailure;
use governor_api::{HealthFinding, Severity, StateHealth};
use governor_common::wire::reply::Level;
use governor_engine::policy::Mode;
use governor_engine::time::Duration;
use governor_health::Report;
use governor_observation::Observation;
use governor_observation::wording::counted;

/// Findings of one kind at most; one more then says how many there are.
const MOST_OF_A_KIND: usize = 20;

/// What findings are made from: views of one moment.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// Of the driver.
    pub view: &'a View,
    /// The newest observation of the kernel.
    pub seen: &'a Observation,
    /// The newest verdicts, monitors and pools.
    pub report: &'a Report,
    /// What holds for less than this is a moment and no finding: `overload.hold`.
    pub hold: Duration,
    /// The last reload, if it failed.
    pub failed_reload: Option<&'a ReloadFailure>,
    /// The state folder.
    pub state: &'a StateHealth,
}

/// Everything that needs attention, problems first.
#[must_use]
pub fn findings(facts: Facts<'_>) -> Vec<HealthFinding> {
    let mut found = Vec::new();
    found.extend(bypass(facts.view));
    found.extend(drain(facts.view));
    found.extend(bounded(pools::findings(facts.report, facts.hold), "pools", "governorctl pools"));
    found.extend(bounded(listeners::findings(facts.report), "listeners", "governorctl listeners"));
    found.extend(level(facts.view));
    found.extend(disk(facts.view));
    found.extend(state(facts.state));
    found.extend(facts.failed_reload.map(reload));
    found.extend(kernel(facts.seen));
    found.extend(counts(facts.seen));
    found.extend(proxies(facts.view));
    // Stable: of one severity the order above stays.
    found.sort_by_key(|finding| finding.severity);
    found
}

/// The worst of one kind, and one line for the rest.
fn bounded(mut found: Vec<HealthFinding>, subject: &str, next_command: &str) -> Vec<HealthFinding> {
    found.sort_by_key(|finding| finding.severity);
    let more = found.len().saturating_sub(MOST_OF_A_KIND);
    if more > 0 {
        let severity = found.get(MOST_OF_A_KIND).map_or(Severity::Watch, |finding| finding.severity);
        found.truncate(MOST_OF_A_KIND);
        let sentence = counted(more, "more finding is not listed", "more findings are not listed").to_string();
        found.push(HealthFinding::new(severity, subject, sentence, next_command));
    }
    found
}

/// While the bypass is on, no request is refused and no limit holds.
fn bypass(view: &View) -> Option<HealthFinding> {
    let until = view.bypass_remaining.map_or_else(
        || "until it is switched off".to_owned(),
        |seconds| format!("for {seconds} s more unless it is switched off"),
    );
    view.snapshot.bypass.then(|| {
        HealthFinding::problem(
            "bypass",
            format!("every request passes without a limit {until}"),
            "governorctl bypass off",
        )
    })
}

/// While the node is drained, every new request is refused. An operator wants that, and may have forgotten it.
fn drain(view: &View) -> Option<HealthFinding> {
    let (order, _) = view.drain.as_ref()?;
    let left = counted(view.held.0, "lease is left", "leases are left");
    let sentence = format!("{} drains the node: new requests are refused, {left}", order.by);
    Some(HealthFinding::problem("drain", sentence, "governorctl drain --undo"))
}

/// The level that refuses work. The level that proxies are notified of has its causes in other findings.
fn level(view: &View) -> Option<HealthFinding> {
    let who = match view.snapshot.level {
        governor_engine::io::Level::Overloaded => "all requests but critical ones",
        governor_engine::io::Level::High => "sheddable requests",
        governor_engine::io::Level::Normal | governor_engine::io::Level::Elevated => {
            return (view.overload.level >= Level::High).then(|| {
                let sentence = format!(
                    "the level is {} at a pressure of {} ‰ ({}); no request is refused for it",
                    view.overload.level.as_str(),
                    view.overload.pressure,
                    governor_health::pressure::monitors::cause_names(view.overload.causes).join(", ")
                );
                HealthFinding::watch("overload", sentence, "governorctl status")
            });
        }
    };
    Some(match view.node.shed_mode {
        Mode::Enforce => HealthFinding::problem(
            "overload",
            format!("the node is overloaded: {who} are refused with 529"),
            "governorctl events --last 10m",
        ),
        Mode::Observe => HealthFinding::watch(
            "overload",
            format!("the node is overloaded: {who} would be refused, but overload.mode is observe"),
            "governorctl events --last 10m",
        ),
    })
}

/// Records that the disk refuses are lost.
fn disk(view: &View) -> Vec<HealthFinding> {
    let failing = view.records.iter().filter_map(|(what, health)| Some((what, health.failing.as_ref()?, health.lost)));
    failing
        .map(|(what, why, lost)| {
            HealthFinding::problem(
                format!("disk ({what})"),
                format!("records cannot be written: {why}; {lost} were lost since the start"),
                "governorctl doctor",
            )
        })
        .collect()
}

/// State that a restart would undo, and state that was lost.
fn state(state: &StateHealth) -> Vec<HealthFinding> {
    let unstored = state.unstored.iter().map(|file| {
        let sentence = format!("{} is in force and not stored: {}; a restart undoes it", file.file, file.error);
        HealthFinding::problem("state", sentence, "governorctl doctor")
    });
    let damaged = state.damaged.iter().map(|file| {
        let sentence = format!("{} was damaged and is not used: {}", file.file, file.why);
        HealthFinding::watch("state", sentence, "governorctl doctor")
    });
    unstored.chain(damaged).collect()
}

fn reload(failure: &ReloadFailure) -> HealthFinding {
    let sentence = format!(
        "the reload at {} failed and the configuration before it is in force, but a restart would fail: {}",
        failure.at, failure.error
    );
    HealthFinding::watch("reload", sentence, "governord --check")
}

/// What is observed with less than was asked for, one finding for all of it.
fn kernel(seen: &Observation) -> Option<HealthFinding> {
    let first = seen.degraded.first()?;
    let more = match seen.degraded.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Some(HealthFinding::watch(
        "kernel",
        format!("the {} tier shows less than was asked for: {first}{more}", seen.tier),
        "governorctl doctor",
    ))
}

/// Counts that the kernel's truth contradicted.
fn counts(seen: &Observation) -> Option<HealthFinding> {
    let health = &seen.health;
    (health.drift > 0 || health.lost_events > 0 || health.untracked > 0).then(|| {
        let sentence = format!(
            "counts were repaired since the start: drift {}, lost events {}, untracked {}",
            health.drift, health.lost_events, health.untracked
        );
        HealthFinding::watch("counts", sentence, "governorctl doctor")
    })
}

/// Without a proxy nothing is admitted through the daemon.
fn proxies(view: &View) -> Option<HealthFinding> {
    (view.sessions.is_empty() && !view.snapshot.pools.is_empty())
        .then(|| HealthFinding::watch("proxies", "no proxy is connected: no request is admitted", "governorctl doctor"))
}

#[cfg(test)]
mod tests;
