//! `governorctl listeners`: listening sockets and their accept queues.

use super::answer::{Answer, Error};
use super::client::with_query;
use super::render::{Style, Table, duration, or_dash, printable};
use super::run::Ctl;
use crate::control::api::{ClosedListeners, ListenerGroup, ListenerView, Protocol, SojournView};
use std::net::SocketAddr;

/// Asks and shows.
pub(super) fn run(ctl: &Ctl) -> Result<Answer, Error> {
    let listeners: Vec<ListenerView> = ctl.client.get("/v1/listeners")?;
    Ok(ctl.show(&listeners, |listeners, style| table(listeners, *style)))
}

/// Asks for groups and shows them.
pub(super) fn groups(ctl: &Ctl) -> Result<Answer, Error> {
    let groups: Vec<ListenerGroup> =
        ctl.client.get(&with_query("/v1/listeners", &[("groups", Some("1".to_owned()))]))?;
    Ok(ctl.show(&groups, |groups, style| group_table(groups, *style)))
}

/// Asks for those that closed and shows them.
pub(super) fn closed(ctl: &Ctl) -> Result<Answer, Error> {
    let places: Vec<ClosedListeners> = ctl.client.get("/v1/listeners/closed")?;
    Ok(ctl.show(&places, |places, style| closed_table(places, *style)))
}

fn closed_table(places: &[ClosedListeners], style: Style) -> String {
    let mut table = Table::new(&["LISTENER", ">NETNS", ">CLOSED", ">LOST"]);
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

fn group_table(groups: &[ListenerGroup], style: Style) -> String {
    let mut table =
        Table::new(&["LISTENER", ">NETNS", ">SOCKETS", ">DEPTH", ">BACKLOG", ">FULL", ">WORST FILL", ">SKEW"]);
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

/// The network namespace is shown only where there is more than one, waits only where they are measured; the cookie
/// and the histogram only in JSON.
fn table(listeners: &[ListenerView], style: Style) -> String {
    let many_netns = listeners.windows(2).any(|pair| pair[0].netns != pair[1].netns);
    let measured = listeners.iter().any(|listener| listener.sojourn.is_some());
    let mut titles = vec!["LISTENER"];
    titles.extend(many_netns.then_some(">NETNS"));
    titles.extend([">DEPTH", ">GONE", ">OLDEST", ">BACKLOG", ">PEAK", ">ENQUEUED", ">ACCEPTED"]);
    titles.extend(measured.then_some(">WAIT P50/P99/MAX"));
    titles.extend([">OVERFLOWS", ">DROPS", "OWNER CGROUP", "PIDS", "TIER"]);
    let mut table = Table::new(&titles);
    for listener in listeners {
        let mut row = vec![place(listener)];
        row.extend(many_netns.then(|| listener.netns.to_string()));
        row.extend([
            depth(listener),
            or_dash(listener.abandoned),
            or_dash(listener.oldest_queued_seconds.map(duration)),
            or_dash(listener.backlog),
            or_dash(listener.depth_peak),
            or_dash(listener.enqueued_total),
            or_dash(listener.accepted_total),
        ]);
        row.extend(measured.then(|| or_dash(listener.sojourn.as_ref().and_then(waits))));
        row.extend([
            overflows(listener),
            or_dash(listener.drops_total),
            or_dash(listener.owner_cgroup.as_deref().map(printable)),
            pids(&listener.pids),
            listener.tier.as_str().to_owned(),
        ]);
        table.row(row);
    }
    table.text(style, "no listening sockets")
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

/// The first few processes and how many more.
fn pids(pids: &[u32]) -> String {
    const SHOWN: usize = 3;
    if pids.is_empty() {
        return "-".to_owned();
    }
    let mut text = pids.iter().take(SHOWN).map(u32::to_string).collect::<Vec<_>>().join(",");
    if pids.len() > SHOWN {
        text.push_str(&format!(" +{}", pids.len() - SHOWN));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::api::{Family, Tier};

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
        insta::assert_snapshot!(table(&[full, at_limit, bare], Style::PLAIN), @"
        LISTENER                 DEPTH  GONE  OLDEST  BACKLOG  PEAK  ENQUEUED  ACCEPTED  OVERFLOWS  DROPS  OWNER CGROUP                   PIDS      TIER
        127.0.0.1:8080        129 full     5     12s      128   129   1204551   1204551          0      0  /system.slice/gateway.service  1,2,3 +2  tracepoint
        127.0.0.1:8080 mptcp       128     0       -      128    17   1204551   1204551          0      0  /system.slice/gateway.service  4211      tracepoint
        [::]:443                     3     -       -        -     -         -         -          -      -  -                              -         procfs
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
        insta::assert_snapshot!(table(&[busy, quiet], Style::PLAIN), @"
        LISTENER        DEPTH  GONE  OLDEST  BACKLOG  PEAK  ENQUEUED  ACCEPTED  WAIT P50/P99/MAX  OVERFLOWS  DROPS  OWNER CGROUP                   PIDS  TIER
        127.0.0.1:8080      0     0       -      128    17   1204551   1204551  61µs/4.2ms/250ms          0      0  /system.slice/gateway.service  4211  trampoline
        127.0.0.1:8080      0     0       -      128    17   1204551   1204551                 -          0      0  /system.slice/gateway.service  4211  trampoline
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
        assert!(!table(&[listener(), listener()], Style::PLAIN).contains("NETNS"));
        let both = table(&[listener(), elsewhere], Style::PLAIN);
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
