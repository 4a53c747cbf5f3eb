//! `GET /v1/doctor`: what the running daemon knows of itself, one finding each. Pure; the machine is looked at by
//! `governorctl`, which can do that without a daemon.

use crate::driver::view::View;
use crate::node::settings::Settings;
use governor_api::{Check, CheckStatus, StateHealth, Tuner, TunerState};
use governor_kernel::proc::own_namespaces::proc_is_ours;
use governor_observation::wording::counted;
use governor_observation::{Health, HookEvent, HookView, Observation, PinState, PinsView, SourceView};
use std::path::PathBuf;

/// Everything, the kernel's part first.
#[must_use]
pub fn checks(
    view: &View,
    seen: &Observation,
    tuner: Option<&Tuner>,
    state: &StateHealth,
    settings: &Settings,
) -> Vec<Check> {
    let mut checks = vec![tier(seen)];
    checks.extend(seen.hooks.iter().map(hook));
    checks.extend(seen.failing.iter().map(source));
    checks.push(holders(seen));
    checks.push(pins(&seen.pins));
    for namespace in &seen.namespaces {
        for finding in &namespace.findings {
            checks.push(Check {
                name: format!("namespace {}", namespace.netns),
                status: ok(!finding.kind.is_trouble()),
                detail: finding.text.clone(),
                fix: finding.kind.remedy().map(str::to_owned),
                hook: None,
            });
        }
    }
    checks.push(counts(&seen.health));
    checks.extend(overflows(seen));
    checks.extend(tuner.map(backlogs));
    let bypass = view.snapshot.bypass;
    checks.push(check(
        "bypass",
        ok(!bypass),
        if bypass { "on: every request passes" } else { "off" },
        bypass.then_some("governorctl bypass off"),
    ));
    checks.push(check(
        "proxies",
        ok(!view.sessions.is_empty()),
        format!("{} connected", view.sessions.len()),
        view.sessions.is_empty().then_some("point the proxy's governor client at daemon.socket"),
    ));
    checks.extend(stored(state));
    checks.extend(unseen_processes(view));
    checks.extend(foreign_proc());
    checks.extend(configuration(settings));
    checks.extend(
        settings.loaded().warnings.iter().map(|warning| check("configuration", CheckStatus::Warn, warning, None)),
    );
    checks
}

/// A reload that failed, and what waits for a restart.
fn configuration(settings: &Settings) -> Vec<Check> {
    let failed = settings.reload_failure().map(|failure| {
        let detail = format!("the reload of {} changed nothing: {}", failure.at, failure.error);
        check("configuration", CheckStatus::Fail, detail, Some("correct it, then governorctl reload"))
    });
    let keys: Vec<String> =
        settings.shown().filter(|shown| shown.pending.is_some()).map(|shown| shown.path.join(".")).collect();
    let pending = (!keys.is_empty()).then(|| {
        let detail = format!("changed and not in force until a restart: {}", keys.join(", "));
        check("configuration", CheckStatus::Warn, detail, Some("restart governord; proxies keep their leases"))
    });
    failed.into_iter().chain(pending).collect()
}

/// What a restart loses, and what the last one lost.
fn stored(state: &StateHealth) -> Vec<Check> {
    let unstored = state.unstored.iter().map(|one| {
        let detail = format!("cannot be stored: {}; a restart undoes what changed", one.error);
        let fix = "make room, or make the folder writable: it is stored as soon as that is possible";
        check(&format!("state {}", one.file), CheckStatus::Fail, detail, Some(fix))
    });
    let damaged = state.damaged.iter().map(|one| {
        let place =
            one.aside.as_ref().map_or_else(|| "is still there".to_owned(), |aside| format!("is kept as {aside}"));
        let detail = format!("was not used: {}; the file {place}", one.why);
        check(&format!("state {}", one.file), CheckStatus::Warn, detail, Some("see what is in it, then remove it"))
    });
    unstored.chain(damaged).collect()
}

/// Sockets whose file is gone or another's.
#[must_use]
pub fn sockets(missing: &[(&str, PathBuf)]) -> Vec<Check> {
    let gone = missing.iter().map(|(key, path)| {
        let detail =
            format!("{} is gone, or it is not governord's any more: nothing can connect to it", path.display());
        check(key, CheckStatus::Fail, detail, Some("governorctl reload, or SIGHUP, makes it again"))
    });
    gone.collect()
}

/// Proxies without a pid here: their end is seen by their connection only.
fn unseen_processes(view: &View) -> Option<Check> {
    let unseen = view.sessions.iter().filter(|session| session.peer.pid.is_none()).count();
    let detail = format!(
        "{} of {} proxies run in a pid namespace that governord cannot see: the end of their process is not seen, their \
         leases end {:?} (node.session_grace) after their connection, and their descriptors and cgroups are unknown",
        unseen,
        view.sessions.len(),
        view.node.session_grace,
    );
    let fix = "run governord in the pid namespace of the host or of its proxies (hostPID or shareProcessNamespace)";
    (unseen > 0).then(|| check("pid namespaces", CheckStatus::Warn, detail, Some(fix)))
}

fn foreign_proc() -> Option<Check> {
    let detail = "/proc shows another pid namespace than governord's: processes that hold a listener cannot be reached, \
                  so no backlog is raised, and descriptors and cgroups of proxies are unknown";
    let fix = "mount a proc of governord's own pid namespace on /proc";
    (!proc_is_ours()).then(|| check("/proc", CheckStatus::Warn, detail, Some(fix)))
}

/// Raising a cap alone changes no listener that is there: it has to listen again.
fn backlogs(tuner: &Tuner) -> Check {
    let clamped = tuner.listeners.iter().filter(|one| one.plan.limit.as_deref() == Some("somaxconn"));
    let clamped: Vec<String> = clamped
        .map(|one| {
            let wanted = one.plan.wanted.unwrap_or(one.backlog);
            let (name, netns) = (&one.listener, one.listener.netns);
            format!("{name} would get {wanted} and network namespace {netns} allows {}", one.backlog)
        })
        .collect();
    let stood_down = tuner.listeners.iter().filter(|one| one.state == TunerState::StoodDown).count();
    match (clamped.is_empty(), stood_down) {
        (false, _) => check(
            "backlogs",
            CheckStatus::Warn,
            clamped.join("; "),
            Some(
                "raise net.core.somaxconn in that namespace, then restart the listener's owner or let the tuner listen again",
            ),
        ),
        (true, 0) => check("backlogs", CheckStatus::Ok, format!("the tuner is set to {}", tuner.mode), None),
        (true, _) => check(
            "backlogs",
            CheckStatus::Ok,
            format!("{stood_down} left to whoever set them"),
            Some("governorctl tune shows which; governorctl tune resume tunes them again"),
        ),
    }
}

fn check(name: &str, status: CheckStatus, detail: impl Into<String>, fix: Option<&str>) -> Check {
    Check { name: name.to_owned(), status, detail: detail.into(), fix: fix.map(str::to_owned), hook: None }
}

fn ok(good: bool) -> CheckStatus {
    if good { CheckStatus::Ok } else { CheckStatus::Warn }
}

fn tier(seen: &Observation) -> Check {
    let mut detail = format!("the kernel is observed by the {} tier", seen.tier);
    if !seen.degraded.is_empty() {
        detail.push_str(&format!(": {}", seen.degraded.join("; ")));
    }
    check("tier", ok(seen.degraded.is_empty()), detail, None)
}

/// An event that is observed is as it should be, by whatever candidate: what that one cannot see is its note.
fn hook(hook: &HookView) -> Check {
    let Some(event) = hook.event else {
        return check("others' programs", CheckStatus::Ok, format!("{} {}", hook.hook, hook.note).trim(), None);
    };
    let detail = if hook.active {
        let by = hook.tier().map_or_else(String::new, |tier| format!(" ({tier})"));
        let note = if hook.note.is_empty() { String::new() } else { format!("; {}", hook.note) };
        format!("{}{by}{note}", hook.hook)
    } else {
        format!("not seen; lost: {}", hook.lost_without)
    };
    Check { hook: Some(hook.clone()), ..check(&format!("hook {}", event.as_str()), ok(hook.active), detail, None) }
}

/// A source that worked and fails now.
fn source(source: &SourceView) -> Check {
    let SourceView { failing_seconds, namespaces, problem, reason, effect, .. } = source;
    let place = match namespaces {
        0 => String::new(),
        many => format!(" in {}", counted(*many, "network namespace", "network namespaces")),
    };
    check(
        &format!("source {}", source.source),
        CheckStatus::Warn,
        format!("{problem}{place} for {failing_seconds:.0} s ({reason}); {effect}"),
        Some("it is tried again all the time; raise the limit or give back the right that the reason names"),
    )
}

/// Who holds the listeners: without that no backlog is tuned, and no proxy is known by its listeners.
fn holders(seen: &Observation) -> Check {
    let held: Vec<_> = seen.listeners.iter().filter(|listener| listener.inode.is_some()).collect();
    let unknown = held.iter().filter(|listener| listener.pids.is_empty()).count();
    let detail = format!("known for {} of {} listeners", held.len() - unknown, held.len());
    match seen.walk.blind().filter(|_| unknown > 0) {
        Some(blind) => check(
            "holders",
            CheckStatus::Warn,
            format!("{detail}: {blind}; the others are not tuned, and proxies that hold them are not recognised"),
            seen.walk.unreadable_reason.is_some().then_some(
                "give governord CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, or run it as the user of the listeners' processes",
            ),
        ),
        None => check("holders", CheckStatus::Ok, detail, None),
    }
}

/// What a crash of the daemon would do to the counts.
fn pins(pins: &PinsView) -> Check {
    let folder = pins.folder.as_deref().unwrap_or_default();
    let (status, mut detail) = match pins.state {
        PinState::Adopted => (CheckStatus::Ok, format!("counts of an earlier daemon go on, at {folder}")),
        PinState::Pinned => (CheckStatus::Ok, format!("counts outlive the daemon, at {folder}")),
        PinState::Off => (CheckStatus::Ok, "nothing is pinned: counts end with the daemon".to_owned()),
        PinState::Unavailable => (CheckStatus::Warn, "counts end with the daemon".to_owned()),
    };
    if !pins.note.is_empty() {
        detail.push_str(&format!("; {}", pins.note));
    }
    let fix = matches!(pins.state, PinState::Unavailable)
        .then_some("see kernel.pin_dir, or set kernel.pins to \"off\" if that is meant");
    check("pins", status, detail, fix)
}

fn counts(health: &Health) -> Check {
    check(
        "counts",
        ok(health.drift == 0 && health.lost_events == 0 && health.untracked == 0),
        format!(
            "drift {}, lost events {}, untracked {}, audits {} ({} failed)",
            health.drift, health.lost_events, health.untracked, health.audits, health.audits_failed
        ),
        (health.drift > 0).then_some("report it: the kernel's truth was restored, but no count should drift"),
    )
}

/// Where SYNs are looked at now and then, what was dropped meanwhile: nothing if no listener's overflows are unknown.
fn overflows(seen: &Observation) -> Option<Check> {
    let looks = seen.hooks.iter().any(|hook| hook.event == Some(HookEvent::OverflowSyn) && hook.active);
    let unknown = seen.listeners.iter().filter(|listener| listener.overflows_total.is_none()).count();
    let adopted = if seen.pins.state == PinState::Adopted { " or no daemon ran" } else { "" };
    let detail = format!(
        "unknown for {} while nobody looked{adopted}",
        counted(
            unknown,
            "listener until SYNs are looked at next: it dropped packets",
            "listeners until SYNs are looked at next: they dropped packets",
        )
    );
    (looks && unknown > 0).then(|| check("overflows", CheckStatus::Ok, detail, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_observation::{HookCandidate, ListenerView, Tier};

    #[test]
    fn overflows_that_nobody_looked_at_are_said_to_be_unknown() {
        let looks = HookView { event: Some(HookEvent::OverflowSyn), active: true, ..HookView::default() };
        let known = ListenerView { overflows_total: Some(0), ..ListenerView::bare(80) };
        let seen = |listeners, state| Observation {
            hooks: vec![looks.clone()],
            listeners,
            pins: PinsView { state, ..PinsView::default() },
            ..Observation::default()
        };
        assert_eq!(overflows(&seen(vec![known.clone()], PinState::Off)), None);
        let said = overflows(&seen(vec![known, ListenerView::bare(81)], PinState::Adopted)).unwrap();
        assert_eq!(
            said.detail,
            "unknown for 1 listener until SYNs are looked at next: it dropped packets while nobody looked or no daemon ran"
        );
        let elsewhere = Observation { hooks: Vec::new(), ..seen(vec![ListenerView::bare(81)], PinState::Off) };
        assert_eq!(overflows(&elsewhere), None, "the hook says so there");
    }

    fn candidate(hook: &str, tier: Tier, reason: &str) -> HookCandidate {
        HookCandidate { hook: hook.into(), tier, fires: reason.is_empty(), reason: reason.into() }
    }

    #[test]
    fn an_event_that_is_seen_by_a_lower_candidate_is_as_it_should_be() {
        let seen = hook(&HookView {
            event: Some(HookEvent::Enqueue),
            hook: "tp_btf/sk_data_ready".into(),
            active: true,
            candidates: vec![
                candidate("fexit/inet_csk_complete_hashdance", Tier::Trampoline, "refused with EPERM"),
                candidate("tp_btf/sk_data_ready", Tier::Tracepoint, ""),
            ],
            lost_without: "depth peak".into(),
            ..HookView::default()
        });
        assert_eq!((seen.name.as_str(), seen.status), ("hook enqueue", CheckStatus::Ok));
        assert_eq!(seen.detail, "tp_btf/sk_data_ready (tracepoint)");
        assert_eq!(seen.hook.unwrap().candidates.len(), 2);
    }

    #[test]
    fn an_event_that_is_not_seen_says_what_is_lost() {
        let seen = hook(&HookView {
            event: Some(HookEvent::Accept),
            hook: "fentry/__inet_accept".into(),
            candidates: vec![candidate("fentry/__inet_accept", Tier::Trampoline, "refused with EPERM")],
            lost_without: "exact sojourn, the acceptor's cgroup".into(),
            ..HookView::default()
        });
        assert_eq!(seen.status, CheckStatus::Warn);
        assert_eq!(seen.detail, "not seen; lost: exact sojourn, the acceptor's cgroup");
    }

    #[test]
    fn programs_of_others_are_named_and_no_trouble() {
        let other = HookView { hook: "program 7 tcp_conn".into(), note: "left alone".into(), ..HookView::default() };
        let seen = hook(&other);
        assert_eq!((seen.status, seen.detail.as_str()), (CheckStatus::Ok, "program 7 tcp_conn left alone"));
    }
}
