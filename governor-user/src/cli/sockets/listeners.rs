//! `governorctl listeners`: listening sockets and their accept queues.

use crate::cli::answer::{Answer, Error};
use crate::cli::asking::client::with_query;
use crate::cli::run::Ctl;
use crate::cli::text::render::{Cell, Column, Style, Table, duration, or_dash, printable};
use governor_api::{ClosedListeners, ListenerGroup, ListenerRow, ListenerView, Protocol, SojournView, Verdict};
use std::cmp::Reverse;
use std::net::SocketAddr;

/// Asks and shows.
pub(in crate::cli) fn run(ctl: &Ctl) -> Result<Answer, Error> {
    let mut listeners: Vec<ListenerRow> = ctl.client.get("/v1/listeners")?;
    trouble_first(&mut listeners);
    Ok(ctl.show(&listeners, |listeners, style| table(listeners, *style)))
}

/// Asks for groups and shows them.
pub(in crate::cli) fn groups(ctl: &Ctl) -> Result<Answer, Error> {
    let mut groups: Vec<ListenerGroup> =
        ctl.client.get(&with_query("/v1/listeners", &[("groups", Some("1".to_owned()))]))?;
    groups.sort_by(|a, b| b.worst_utilisation.unwrap_or(0.0).total_cmp(&a.worst_utilisation.unwrap_or(0.0)));
    Ok(ctl.show(&groups, |groups, style| group_table(groups, *style)))
}

/// Asks for those that closed and shows them.
pub(in crate::cli) fn closed(ctl: &Ctl) -> Result<Answer, Error> {
    let mut places: Vec<ClosedListeners> = ctl.client.get("/v1/listeners/closed")?;
    places.sort_by_key(|place| Reverse(place.lost));
    Ok(ctl.show(&places, |places, style| closed_table(places, *style)))
}

pub(in crate::cli) fn closed_table(places: &[ClosedListeners], style: Style) -> String {
    let mut table = Table::new(&[
        Column::word("LISTENER").rank(0),
        Column::number("NETNS").rank(1),
        Column::number("CLOSED").rank(0),
        Column::number("LOST").rank(0),
    ]);
    for place in places {
        table.row([
            SocketAddr::new(place.address, place.port).to_string(),
            place.netns.to_string(),
            place.listeners.to_string(),
            or_dash(place.lost),
        ]);
    }
    table.text(style, "no listener was seen to close")
}

pub(in crate::cli) fn group_table(groups: &[ListenerGroup], style: Style) -> String {
    let mut table = Table::new(&[
        Column::word("LISTENER").rank(0),
        Column::number("NETNS").rank(4),
        Column::number("SOCKETS").rank(3),
        Column::number("DEPTH").rank(1),
        Column::number("BACKLOG").rank(1),
        Column::number("FULL").rank(0),
        Column::number("WORST FILL").rank(0),
        Column::number("SKEW").rank(2),
    ]);
    for group in groups {
        table.row([
            SocketAddr::new(group.address, group.port).to_string(),
            group.netns.to_string(),
            group.members.to_string(),
            group.depth.to_string(),
            or_dash(group.backlog),
            or_dash(group.full.map(|full| format!("{full} of {}", group.members))),
            or_dash(group.worst_utilisation.map(|worst| format!("{:.0} %", worst * 100.0))),
            or_dash(group.skew.map(|skew| format!("{skew:.1}"))),
        ]);
    }
    table.text(style, "no listening sockets")
}

/// The worst diagnosis first, then the fullest queue.
fn trouble_first(listeners: &mut [ListenerRow]) {
    let fill = |row: &ListenerRow| {
        let limit = row.listener.backlog.map_or(0.0, |backlog| f64::from(backlog) + 1.0);
        if limit > 0.0 { f64::from(row.listener.depth) / limit } else { 0.0 }
    };
    let rank = |row: &ListenerRow| match row.verdict {
        Some(verdict) if verdict.is_trouble() => 0,
        Some(Verdict::Burst) => 1,
        Some(_) | None => 2,
    };
    listeners.sort_by(|a, b| rank(a).cmp(&rank(b)).then(fill(b).total_cmp(&fill(a))));
}

/// The network namespace is shown only where there is more than one, waits only where they are measured; the cookie
/// and the histogram only in JSON.
pub(in crate::cli) fn table(rows: &[ListenerRow], style: Style) -> String {
    let many_netns = rows.windows(2).any(|pair| pair[0].listener.netns != pair[1].listener.netns);
    let measured = rows.iter().any(|row| row.listener.sojourn.is_some());
    let mut columns = vec![
        Column::word("LISTENER").rank(0),
        Column::word("VERDICT").rank(0),
        Column::text("PROCESS").rank(1).least(20),
        Column::number("DEPTH").rank(0),
        Column::number("BACKLOG").rank(2),
        Column::number("OLDEST").rank(4),
    ];
    columns.extend(measured.then_some(Column::number("WAIT P50/P99/MAX").rank(5)));
    columns.extend([
        Column::number("OVERFLOWS").rank(3),
        Column::number("DROPS").rank(6),
        Column::number("PEAK").rank(7),
        Column::number("GONE").rank(8),
        Column::number("ENQUEUED").rank(10),
        Column::number("ACCEPTED").rank(9),
    ]);
    columns.extend(many_netns.then_some(Column::number("NETNS").rank(12)));
    columns.extend([Column::text("OWNER CGROUP").rank(11), Column::word("TIER").rank(13)]);
    let mut table = Table::new(&columns);
    for row in rows {
        let listener = &row.listener;
        let mut cells = vec![
            place(listener).into(),
            verdict(row.verdict),
            process(row).into(),
            depth(listener).into(),
            or_dash(listener.backlog).into(),
            or_dash(listener.oldest_queued_seconds.map(duration)).into(),
        ];
        cells.extend(measured.then(|| or_dash(listener.sojourn.as_ref().and_then(waits)).into()));
        cells.extend(
            [
                overflows(listener),
                or_dash(listener.drops_total),
                or_dash(listener.depth_peak),
                or_dash(listener.abandoned),
                or_dash(listener.enqueued_total),
                or_dash(listener.accepted_total),
            ]
            .map(Cell::from),
        );
        cells.extend(many_netns.then(|| listener.netns.to_string().into()));
        cells.extend(
            [or_dash(listener.owner_cgroup.as_deref().map(printable)), listener.tier.as_str().to_owned()]
                .map(Cell::from),
        );
        table.row(cells);
    }
    table.text(style, "no listening sockets")
}

fn verdict(verdict: Option<Verdict>) -> Cell {
    match verdict {
        None => "-".to_owned().into(),
        Some(verdict) if verdict.is_trouble() => Cell::red(verdict.as_str()),
        Some(Verdict::Burst) => Cell::yellow(Verdict::Burst.as_str()),
        Some(verdict) => verdict.as_str().to_owned().into(),
    }
}

/// `nginx[812]`; how many more processes hold it, where there are several.
fn process(row: &ListenerRow) -> String {
    let pids = &row.listener.pids;
    let Some(first) = pids.iter().min() else { return "-".to_owned() };
    let name = row.process.as_deref().map(printable).unwrap_or_default();
    let more = if pids.len() > 1 { format!(" +{}", pids.len() - 1) } else { String::new() };
    format!("{name}[{first}]{more}")
}

/// Where it listens; MPTCP is named, TCP goes without saying.
fn place(listener: &ListenerView) -> String {
    let address = SocketAddr::new(listener.address, listener.port);
    match listener.protocol {
        Protocol::Tcp => address.to_string(),
        Protocol::Mptcp => format!("{address} mptcp"),
    }
}

/// The depth, and whether it is all the queue holds.
fn depth(listener: &ListenerView) -> String {
    match listener.is_full() {
        Some(true) => format!("{} full", listener.depth),
        Some(false) | None => listener.depth.to_string(),
    }
}

/// Median, 99th percentile and longest wait of the last interval, unless none was accepted in it.
fn waits(sojourn: &SojournView) -> Option<String> {
    let (p50, p99, longest) = (sojourn.p50_seconds?, sojourn.p99_seconds?, sojourn.max_seconds?);
    Some(format!("{}/{}/{}", duration(p50), duration(p99), duration(longest)))
}

/// The total, and by stage where there are any; what one stage saw where the other is not seen.
fn overflows(listener: &ListenerView) -> String {
    let (syn, ack) = (listener.overflow_syn_total, listener.overflow_ack_total);
    match (listener.overflows_total, syn, ack) {
        (Some(0), ..) => "0".to_owned(),
        (Some(total), Some(syn), Some(ack)) => format!("{total} ({syn} syn, {ack} ack)"),
        (Some(total), ..) => total.to_string(),
        (None, Some(syn), None) => format!("{syn} syn, ? ack"),
        (None, None, Some(ack)) => format!("? syn, {ack} ack"),
        (None, ..) => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_api::{Family, Tier};

    fn listener() -> ListenerView {
        ListenerView {
            cookie: Some(4097),
            netns: 4_026_531_840,
            backlog: Some(128),
            abandoned: Some(0),
            depth_peak: Some(17),
            enqueued_total: Some(1_204_551),
            accepted_total: Some(1_204_551),
            overflows_total: Some(0),
            drops_total: Some(0),
            inode: Some(4026),
            owner_cgroup: Some("/system.slice/gateway.service".into()),
            pids: vec![4211],
            tier: Tier::Tracepoint,
            ..ListenerView::bare(8080)
        }
    }

    fn row(listener: ListenerView) -> ListenerRow {
        ListenerRow { listener, verdict: Some(Verdict::Ok), process: Some("gateway".into()) }
    }

    fn shown<const N: usize>(listeners: [ListenerView; N]) -> String {
        table(&listeners.map(row), Style::PLAIN)
    }

    #[test]
    fn the_worst_diagnosis_and_the_fullest_queue_come_first() {
        let at = |port, verdict, depth| ListenerRow { verdict, ..row(ListenerView { port, depth, ..listener() }) };
        let mut rows = [
            at(1, Some(Verdict::Ok), 3),
            at(2, None, 90),
            at(3, Some(Verdict::Burst), 129),
            at(4, Some(Verdict::AcceptorStalled), 5),
        ];
        trouble_first(&mut rows);
        assert_eq!(rows.map(|row| row.listener.port), [4, 3, 2, 1]);
    }

    #[test]
    fn a_narrow_terminal_keeps_the_verdict_and_the_process() {
        let stalled = ListenerRow { verdict: Some(Verdict::AcceptorStalled), ..row(listener()) };
        insta::assert_snapshot!(table(&[stalled], Style::narrow(80)), @"
        LISTENER        VERDICT           PROCESS        DEPTH  BACKLOG  OVERFLOWS
        127.0.0.1:8080  acceptor_stalled  gateway[4211]      0      128          0
        left out: OLDEST, DROPS, PEAK, GONE, ENQUEUED, ACCEPTED, OWNER CGROUP, TIER; a
        wider terminal, a pipe or --format json shows all
        ");
    }

    #[test]
    fn a_full_queue_is_named_and_what_is_unknown_is_a_dash() {
        let full = ListenerView {
            depth: 129,
            abandoned: Some(5),
            oldest_queued_seconds: Some(12.4),
            depth_peak: Some(129),
            pids: vec![1, 2, 3, 4, 5],
            ..listener()
        };
        let at_limit = ListenerView { depth: 128, protocol: Protocol::Mptcp, ..listener() };
        let bare = ListenerView {
            cookie: None,
            family: Family::Ipv6,
            address: "::".parse().unwrap(),
            port: 443,
            backlog: None,
            depth: 3,
            abandoned: None,
            depth_peak: None,
            enqueued_total: None,
            accepted_total: None,
            overflows_total: None,
            drops_total: None,
            inode: None,
            owner_cgroup: None,
            pids: Vec::new(),
            tier: Tier::Procfs,
            ..listener()
        };
        insta::assert_snapshot!(shown([full, at_limit, bare]), @"
        LISTENER              VERDICT  PROCESS           DEPTH  BACKLOG  OLDEST  OVERFLOWS  DROPS  PEAK  GONE  ENQUEUED  ACCEPTED  OWNER CGROUP                   TIER
        127.0.0.1:8080        ok       gateway[1] +4  129 full      128     12s          0      0   129     5   1204551   1204551  /system.slice/gateway.service  tracepoint
        127.0.0.1:8080 mptcp  ok       gateway[4211]       128      128       -          0      0    17     0   1204551   1204551  /system.slice/gateway.service  tracepoint
        [::]:443              ok       -                     3        -       -          -      -     -     -         -         -  -                              procfs
        ");
    }

    #[test]
    fn waits_are_shown_where_they_are_measured() {
        let busy = ListenerView {
            sojourn: Some(SojournView {
                p50_seconds: Some(0.000_061),
                p99_seconds: Some(0.004_21),
                max_seconds: Some(0.25),
                ..SojournView::default()
            }),
            tier: Tier::Trampoline,
            ..listener()
        };
        let quiet = ListenerView { sojourn: Some(SojournView::default()), ..busy.clone() };
        insta::assert_snapshot!(shown([busy, quiet]), @"
        LISTENER        VERDICT  PROCESS        DEPTH  BACKLOG  OLDEST  WAIT P50/P99/MAX  OVERFLOWS  DROPS  PEAK  GONE  ENQUEUED  ACCEPTED  OWNER CGROUP                   TIER
        127.0.0.1:8080  ok       gateway[4211]      0      128       -  61µs/4.2ms/250ms          0      0    17     0   1204551   1204551  /system.slice/gateway.service  trampoline
        127.0.0.1:8080  ok       gateway[4211]      0      128       -                 -          0      0    17     0   1204551   1204551  /system.slice/gateway.service  trampoline
        ");
    }

    #[test]
    fn a_stage_that_nobody_sees_is_no_zero() {
        let seen = |overflows_total, overflow_syn_total, overflow_ack_total| {
            overflows(&ListenerView { overflows_total, overflow_syn_total, overflow_ack_total, ..listener() })
        };
        assert_eq!(seen(Some(12), Some(5), Some(7)), "12 (5 syn, 7 ack)");
        assert_eq!(seen(Some(0), Some(0), None), "0");
        assert_eq!(seen(None, None, Some(7)), "? syn, 7 ack");
        assert_eq!(seen(None, Some(5), None), "5 syn, ? ack");
        assert_eq!(seen(None, None, None), "-");
    }

    #[test]
    fn namespaces_are_shown_where_there_are_several() {
        let elsewhere = ListenerView { netns: 4_026_532_501, ..listener() };
        assert!(!shown([listener(), listener()]).contains("NETNS"));
        let both = shown([listener(), elsewhere]);
        assert!(both.contains("NETNS") && both.contains("4026532501"), "{both}");
    }

    #[test]
    fn what_closed_listeners_lost_is_shown_by_place() {
        let place = |port, lost| ClosedListeners {
            netns: 4_026_531_840,
            address: "127.0.0.1".parse().unwrap(),
            port,
            listeners: 2,
            lost,
        };
        insta::assert_snapshot!(closed_table(&[place(80, Some(19)), place(443, None)], Style::PLAIN), @"
        LISTENER            NETNS  CLOSED  LOST
        127.0.0.1:80   4026531840       2    19
        127.0.0.1:443  4026531840       2     -
        ");
    }

    #[test]
    fn a_group_is_as_full_as_its_fullest_member() {
        let group = ListenerGroup {
            netns: 4_026_531_840,
            address: "0.0.0.0".parse().unwrap(),
            port: 443,
            members: 4,
            depth: 131,
            backlog: Some(512),
            full: Some(1),
            worst_utilisation: Some(1.0),
            skew: Some(3.95),
            cookies: vec![11, 12, 13, 14],
        };
        insta::assert_snapshot!(group_table(&[group], Style::PLAIN), @"
        LISTENER          NETNS  SOCKETS  DEPTH  BACKLOG    FULL  WORST FILL  SKEW
        0.0.0.0:443  4026531840        4    131      512  1 of 4       100 %   4.0
        ");
    }
}
