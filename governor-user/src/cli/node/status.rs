//! `governorctl status`: the daemon at a glance; what needs an eye is red.

use crate::cli::admission::pools::fair_share;
use crate::cli::answer::{Answer, Error, Exit};
use crate::cli::node::bypass;
use crate::cli::node::drain;
use crate::cli::run::Ctl;
use crate::cli::text::ids;
use crate::cli::text::render::{Column, Facts, Style, Table, duration, or_dash, printable};
use governor_api::{Health, LostLeases, MemberCounts, Mode, Overrides, PinState, Pins, Severity, Status, Troubled};
use governor_observation::wording::counted;
use std::net::SocketAddr;

/// Listeners in trouble that are named.
const MOST_TROUBLED: usize = 5;

/// Asks and shows.
pub(in crate::cli) fn run(ctl: &Ctl) -> Result<Answer, Error> {
    let status: Status = ctl.client.get("/v1/status")?;
    let has_problem = status.findings.iter().any(|finding| finding.severity == Severity::Problem);
    let exit = if has_problem { Exit::Negative } else { Exit::Ok };
    Ok(Answer { exit, ..ctl.show(&status, |status, style| text(status, *style)) })
}

pub(in crate::cli) fn text(status: &Status, style: Style) -> String {
    let mut facts = Facts::default();
    facts.add("governord", format!("{}, pid {}, up {}", status.version, status.pid, duration(status.uptime_seconds)));
    for finding in &status.findings {
        let text = format!("{}: {}; see: {}", finding.subject, printable(&finding.sentence), finding.next_command);
        match finding.severity {
            Severity::Problem => facts.add("PROBLEM", style.red(&text)),
            Severity::Watch => facts.add("WATCH", style.yellow(&text)),
        }
    }
    if status.draining {
        facts.add("draining", style.red("yes: nothing new is granted"));
    }
    if status.drain.on {
        facts.add("drain", style.red(&drain::state(&status.drain)));
    }
    facts.add("level", level(status, style));
    if let Some(shed) = status.shed_level.as_deref().filter(|level| *level != "normal") {
        facts.add("shedding", shedding(shed, status.shed_mode, style));
    }
    for monitor in status.monitors.iter().filter(|monitor| monitor.pressure > 0) {
        facts.add("presses", format!("{} {} ‰: {}", monitor.cause, monitor.pressure, printable(&monitor.detail)));
    }
    troubled(&mut facts, &status.troubled, style);
    facts.add("bypass", bypass::state(status.bypass, style));
    facts.add("node", node(status));
    facts.add("kernel", kernel(status, style));
    if let Some(line) = counting(&status.pins, style) {
        facts.add("counting", line);
    }
    if status.degraded.is_empty() {
        facts.add("degraded", "no".to_owned());
    }
    for line in &status.degraded {
        facts.add("degraded", style.red(line));
    }
    if status.awaited > 0 {
        let line = counted(
            status.awaited,
            "lease of the daemon before counts until its proxy is back",
            "leases of the daemon before count until their proxies are back",
        );
        facts.add("restart", style.yellow(&line.to_string()));
    }
    for lost in &status.lost {
        facts.add("leaks", style.yellow(&leaks(lost)));
    }
    if !status.pending.is_empty() {
        facts.add("pending", style.yellow(&format!("{}: in force after a restart", status.pending.join(", "))));
    }
    let Overrides { settings, keys } = status.overrides;
    if settings + keys > 0 {
        let (settings, keys) = (counted(settings, "setting", "settings"), counted(keys, "key", "keys"));
        facts.add("overrides", format!("{settings}, {keys}; see: governorctl config, governorctl keys"));
    }
    for line in &status.warnings {
        facts.add("warning", style.yellow(line));
    }
    let mut sessions = Table::new(&[
        Column::number("SESSION").rank(0),
        Column::text("PROXY").rank(0),
        Column::number("PID").rank(1),
        Column::number("UID").rank(3),
        Column::number("LEASES").rank(2),
    ]);
    for session in &status.sessions {
        sessions.row([
            ids::session(session.id),
            printable(&session.name),
            or_dash(session.pid),
            session.uid.to_string(),
            session.leases.to_string(),
        ]);
    }
    let mut pools = Table::new(&[
        Column::text("POOL").rank(0),
        Column::number("IN FLIGHT").rank(0),
        Column::number("CAPACITY").rank(0),
        Column::number("PARKED").rank(0),
        Column::number("GRANTED/MIN").rank(1),
        Column::number("REFUSED/MIN").rank(1),
        Column::text("MEMBERS").rank(2),
        Column::text("FAIR SHARE").rank(3),
        Column::text("CONGESTED").rank(4),
    ]);
    for pool in &status.pools {
        pools.row([
            pool.name.clone(),
            pool.in_flight.to_string(),
            pool.capacity.to_string(),
            pool.parked.to_string(),
            pool.granted_last_minute.to_string(),
            pool.refused_last_minute.to_string(),
            members(pool.members),
            fair_share(pool.fair_share, pool.mode),
            if pool.congested { "yes" } else { "no" }.to_owned(),
        ]);
    }
    format!(
        "{}\n{}\n{}",
        facts.text(style),
        sessions.text(style, "no proxy is connected"),
        pools.text(style, "no pools are configured")
    )
}

/// "14 up", "1 up, 13 cooling".
fn members(counts: MemberCounts) -> String {
    let MemberCounts { up, cooling, draining, off } = counts;
    let states = [(up, "up"), (cooling, "cooling"), (draining, "draining"), (off, "off")];
    let there: Vec<String> =
        states.iter().filter(|(count, _)| *count > 0).map(|(count, state)| format!("{count} {state}")).collect();
    if there.is_empty() { "none".to_owned() } else { there.join(", ") }
}

fn level(status: &Status, style: Style) -> String {
    let mut text = format!("{}, pressure {} ‰", status.level, status.pressure);
    if !status.causes.is_empty() {
        text.push_str(&format!(" ({})", status.causes.join(", ")));
    }
    match status.level.as_str() {
        "normal" => text,
        "elevated" => style.yellow(&text),
        _ => style.red(&text),
    }
}

/// Listeners that are not `ok`, a few of them.
fn troubled(facts: &mut Facts, rows: &[Troubled], style: Style) {
    for row in rows.iter().take(MOST_TROUBLED) {
        let text = format!("{} {}: {}", SocketAddr::new(row.address, row.port), row.verdict, row.sentence);
        facts.add("listener", if row.verdict.is_trouble() { style.red(&text) } else { style.yellow(&text) });
    }
    if let Some(more) = rows.len().checked_sub(MOST_TROUBLED).filter(|more| *more > 0) {
        facts
            .add("listener", format!("and {more} more; governorctl explain listener PORT says what is wrong with one"));
    }
}

/// What the level does to requests.
fn shedding(level: &str, mode: Mode, style: Style) -> String {
    let who = match level {
        "high" => "sheddable requests",
        "overloaded" => "all but critical requests",
        _ => return format!("{level}: nothing is refused"),
    };
    match mode {
        Mode::Enforce => style.red(&format!("{level}: {who} are refused")),
        Mode::Observe => style.yellow(&format!("{level}: {who} would be refused (observe)")),
    }
}

fn node(status: &Status) -> String {
    let node = &status.node;
    let cap = if node.cap == 0 { "no cap".to_owned() } else { format!("cap {}", node.cap) };
    format!("{} counted requests, {cap}; {} parked, at most {}", node.counted, node.parked, node.max_parked)
}

/// Where a proxy loses leases.
fn leaks(lost: &LostLeases) -> String {
    let site = lost.site.as_deref().map_or_else(|| "an unnamed place".to_owned(), printable);
    format!("at {site}: {} expired, {} outlived their client", lost.expired, lost.reclaimed)
}

/// The tier, and the counters that must stay 0 where they do not.
fn kernel(status: &Status, style: Style) -> String {
    let Health { lost_events, untracked, drift, audits, audits_failed } = status.kernel;
    let mut text = format!("tier {}, {}", status.tier.as_str(), counted(audits, "audit", "audits"));
    for (count, one, many) in [
        (lost_events, "event lost", "events lost"),
        (untracked, "socket not tracked", "sockets not tracked"),
        (drift, "connection of drift repaired", "connections of drift repaired"),
        (audits_failed, "audit failed", "audits failed"),
    ] {
        if count > 0 {
            text.push_str(&style.red(&format!(", {}", counted(count, one, many))));
        }
    }
    text
}

/// Since when the kernel counts, where that is not simply as long as the daemon runs.
fn counting(pins: &Pins, style: Style) -> Option<String> {
    let since = pins.counting_seconds.map(duration).unwrap_or_default();
    let line = match pins.state {
        PinState::Adopted => format!("for {since}, taken over from the daemon before"),
        PinState::Pinned => format!("for {since}, pinned"),
        PinState::Off if pins.note.is_empty() => return None,
        PinState::Off | PinState::Unavailable => "not pinned".to_owned(),
    };
    if pins.note.is_empty() {
        return Some(line);
    }
    Some(style.yellow(&format!("{line}: {}", printable(&pins.note))))
}

#[cfg(test)]
pub(in crate::cli) mod tests {
    use super::*;
    use governor_api::{Bypass, FairShare, HealthFinding, Monitor, Node, PoolSummary, Session, Tier, Verdict};

    pub(in crate::cli) fn quiet() -> Status {
        Status {
            findings: Vec::new(),
            version: "0.1.0".into(),
            pid: 812,
            uptime_seconds: 93_600.0,
            epoch: 7,
            tier: Tier::Tracepoint,
            degraded: Vec::new(),
            level: "normal".into(),
            pressure: 12,
            causes: Vec::new(),
            monitors: Vec::new(),
            troubled: Vec::new(),
            shed_level: None,
            shed_mode: Mode::Observe,
            bypass: Bypass::default(),
            draining: false,
            drain: governor_api::Drain::default(),
            sessions: Vec::new(),
            awaited: 0,
            lost: Vec::new(),
            node: Node { counted: 0, cap: 1000, parked: 0, max_parked: 500 },
            pools: Vec::new(),
            kernel: Health { audits: 40, ..Health::default() },
            pins: Pins::default(),
            state: governor_api::StateHealth::default(),
            overrides: Overrides::default(),
            reload_failure: None,
            pending: Vec::new(),
            warnings: Vec::new(),
        }
    }

    pub(in crate::cli) fn summary(name: &str, count: u32) -> PoolSummary {
        PoolSummary {
            name: name.into(),
            capacity: count,
            in_flight: count,
            parked: count,
            congested: true,
            members: MemberCounts { up: 14, ..MemberCounts::default() },
            fair_share: FairShare::EqualSplit(80),
            mode: Mode::Observe,
            granted_last_minute: 1_200,
            refused_last_minute: 7,
        }
    }

    #[test]
    fn a_quiet_daemon_is_short() {
        insta::assert_snapshot!(text(&quiet(), Style::PLAIN), @"
        governord  0.1.0, pid 812, up 1d02h
        level      normal, pressure 12 ‰
        bypass     off
        node       0 counted requests, cap 1000; 0 parked, at most 500
        kernel     tier tracepoint, 40 audits
        degraded   no

        no proxy is connected

        no pools are configured
        ");
    }

    #[test]
    fn trouble_is_spelled_out() {
        let status = Status {
            tier: Tier::Netlink,
            degraded: vec!["kernel: tracepoint not used: no kernel BTF".into(), "state: folder is read-only".into()],
            level: "high".into(),
            pressure: 801,
            causes: vec!["accept_fill".into(), "node_in_flight".into()],
            monitors: vec![
                Monitor {
                    cause: "accept_fill".into(),
                    pressure: 801,
                    detail: "0.0.0.0:443: 116 of at most 129 wait".into(),
                },
                Monitor { cause: "descriptors".into(), pressure: 0, detail: "process 71: 9 of 1024".into() },
            ],
            troubled: vec![Troubled {
                netns: 1,
                address: "0.0.0.0".parse().unwrap(),
                port: 443,
                verdict: Verdict::Burst,
                sentence: "up to 116 of at most 129 connections waited".into(),
            }],
            bypass: Bypass { on: true, remaining_seconds: Some(1795.0) },
            draining: true,
            findings: vec![
                HealthFinding {
                    severity: Severity::Problem,
                    subject: "bypass".into(),
                    sentence: "every request passes without a limit".into(),
                    next_command: "governorctl bypass off".into(),
                },
                HealthFinding {
                    severity: Severity::Watch,
                    subject: "pool chat".into(),
                    sentence: "13 of 14 members of the pool chat are cooling".into(),
                    next_command: "governorctl members".into(),
                },
            ],
            overrides: Overrides { settings: 1, keys: 2 },
            sessions: vec![
                Session { id: 1, name: "gateway-a".into(), pid: Some(4211), uid: 33, leases: 61 },
                Session { id: 2, name: "gateway-b".into(), pid: None, uid: 33, leases: 0 },
            ],
            node: Node { counted: 801, cap: 0, parked: 14, max_parked: 500 },
            awaited: 3,
            lost: vec![LostLeases { site: Some("src/chat.rs:42".into()), expired: 1, reclaimed: 7 }],
            pools: vec![PoolSummary { capacity: 98, in_flight: 95, parked: 14, ..summary("chat", 98) }],
            kernel: Health { drift: 2, audits: 40, audits_failed: 1, ..Health::default() },
            warnings: vec!["pools.chat.min_guarantee: 60 keys of 2 do not fit 98 slots".into()],
            ..quiet()
        };
        insta::assert_snapshot!(text(&status, Style::PLAIN), @"
        governord  0.1.0, pid 812, up 1d02h
        PROBLEM    bypass: every request passes without a limit; see: governorctl bypass off
        WATCH      pool chat: 13 of 14 members of the pool chat are cooling; see: governorctl members
        draining   yes: nothing new is granted
        level      high, pressure 801 ‰ (accept_fill, node_in_flight)
        presses    accept_fill 801 ‰: 0.0.0.0:443: 116 of at most 129 wait
        listener   0.0.0.0:443 burst: up to 116 of at most 129 connections waited
        bypass     on: every request passes, for 29m55s more
        node       801 counted requests, no cap; 14 parked, at most 500
        kernel     tier netlink, 40 audits, 2 connections of drift repaired, 1 audit failed
        degraded   kernel: tracepoint not used: no kernel BTF
                   state: folder is read-only
        restart    3 leases of the daemon before count until their proxies are back
        leaks      at src/chat.rs:42: 1 expired, 7 outlived their client
        overrides  1 setting, 2 keys; see: governorctl config, governorctl keys
        warning    pools.chat.min_guarantee: 60 keys of 2 do not fit 98 slots

        SESSION  PROXY       PID  UID  LEASES
            s-1  gateway-a  4211   33      61
            s-2  gateway-b     -   33       0

        POOL  IN FLIGHT  CAPACITY  PARKED  GRANTED/MIN  REFUSED/MIN  MEMBERS  FAIR SHARE          CONGESTED
        chat         95        98      14         1200            7  14 up    from 80 %, observe  yes
        ");
    }

    #[test]
    fn bypass_and_degraded_are_red() {
        let status = Status {
            degraded: vec!["no kernel BTF".into()],
            bypass: Bypass { on: true, remaining_seconds: None },
            ..quiet()
        };
        let text = text(&status, Style::COLOURED);
        assert!(text.contains("\x1b[31mno kernel BTF\x1b[0m") && text.contains("\x1b[31mon: every"), "{text:?}");
    }
}
