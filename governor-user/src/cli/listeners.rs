//! `governorctl listeners`: listening sockets and their accept queues.

use super::answer::{Answer, Error};
use super::render::{Style, Table, or_dash, printable};
use super::run::Ctl;
use crate::control::api::ListenerView;
use std::net::SocketAddr;

/// Asks and shows.
pub(super) fn run(ctl: &Ctl) -> Result<Answer, Error> {
    let listeners: Vec<ListenerView> = ctl.client.get("/v1/listeners")?;
    Ok(ctl.show(&listeners, |listeners, style| table(listeners, *style)))
}

/// The network namespace is shown only where there is more than one; the cookie only in JSON.
fn table(listeners: &[ListenerView], style: Style) -> String {
    let many_netns = listeners.windows(2).any(|pair| pair[0].netns != pair[1].netns);
    let mut titles = vec!["LISTENER"];
    titles.extend(many_netns.then_some(">NETNS"));
    titles.extend([
        ">DEPTH",
        ">BACKLOG",
        ">PEAK",
        ">ENQUEUED",
        ">ACCEPTED",
        ">OVERFLOWS",
        ">DROPS",
        "OWNER CGROUP",
        "PIDS",
        "TIER",
    ]);
    let mut table = Table::new(&titles);
    for listener in listeners {
        let mut row = vec![SocketAddr::new(listener.address, listener.port).to_string()];
        row.extend(many_netns.then(|| listener.netns.to_string()));
        row.extend([
            depth(listener),
            or_dash(listener.backlog),
            or_dash(listener.depth_peak),
            or_dash(listener.enqueued_total),
            or_dash(listener.accepted_total),
            or_dash(listener.overflows_total),
            or_dash(listener.drops_total),
            or_dash(listener.owner_cgroup.as_deref().map(printable)),
            pids(&listener.pids),
            listener.tier.as_str().to_owned(),
        ]);
        table.row(row);
    }
    table.text(style, "no listening sockets")
}

/// A queue is full when its depth is *above* the backlog: the kernel holds backlog + 1.
fn depth(listener: &ListenerView) -> String {
    match listener.backlog {
        Some(backlog) if listener.depth > backlog => format!("{} full", listener.depth),
        Some(_) | None => listener.depth.to_string(),
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
            family: Family::Ipv4,
            address: "127.0.0.1".parse().unwrap(),
            port: 8080,
            backlog: Some(128),
            depth: 0,
            depth_peak: Some(17),
            enqueued_total: Some(1_204_551),
            accepted_total: Some(1_204_551),
            overflows_total: Some(0),
            drops_total: Some(0),
            owner_cgroup: Some("/system.slice/gateway.service".into()),
            pids: vec![4211],
            tier: Tier::Tracepoint,
        }
    }

    #[test]
    fn a_full_queue_is_named_and_what_is_unknown_is_a_dash() {
        let full = ListenerView { depth: 129, depth_peak: Some(129), pids: vec![1, 2, 3, 4, 5], ..listener() };
        let at_limit = ListenerView { depth: 128, ..listener() };
        let bare = ListenerView {
            cookie: None,
            family: Family::Ipv6,
            address: "::".parse().unwrap(),
            port: 443,
            backlog: None,
            depth: 3,
            depth_peak: None,
            enqueued_total: None,
            accepted_total: None,
            overflows_total: None,
            drops_total: None,
            owner_cgroup: None,
            pids: Vec::new(),
            tier: Tier::Procfs,
            ..listener()
        };
        insta::assert_snapshot!(table(&[full, at_limit, bare], Style::PLAIN), @"
        LISTENER           DEPTH  BACKLOG  PEAK  ENQUEUED  ACCEPTED  OVERFLOWS  DROPS  OWNER CGROUP                   PIDS      TIER
        127.0.0.1:8080  129 full      128   129   1204551   1204551          0      0  /system.slice/gateway.service  1,2,3 +2  tracepoint
        127.0.0.1:8080       128      128    17   1204551   1204551          0      0  /system.slice/gateway.service  4211      tracepoint
        [::]:443               3        -     -         -         -          -      -  -                              -         procfs
        ");
    }

    #[test]
    fn namespaces_are_shown_where_there_are_several() {
        let elsewhere = ListenerView { netns: 4_026_532_501, ..listener() };
        assert!(!table(&[listener(), listener()], Style::PLAIN).contains("NETNS"));
        let both = table(&[listener(), elsewhere], Style::PLAIN);
        assert!(both.contains("NETNS") && both.contains("4026532501"), "{both}");
    }
}
