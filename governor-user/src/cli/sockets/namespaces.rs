//! `governorctl namespaces`: what the kernel counts per network namespace, and below the table what it means.

use crate::cli::answer::{Answer, Error};
use crate::cli::run::Ctl;
use crate::cli::text::render::{Column, Style, Table, or_dash, printable, wrapped};
use governor_api::{Conntrack, FindingKind, NamespaceView};
use std::cmp::Reverse;

/// Asks and shows.
pub(in crate::cli) fn run(ctl: &Ctl) -> Result<Answer, Error> {
    let mut namespaces: Vec<NamespaceView> = ctl.client.get("/v1/namespaces")?;
    namespaces.sort_by_key(|namespace| {
        let of = |critical: bool| namespace.findings.iter().filter(|finding| finding.critical == critical).count();
        (Reverse(of(true)), Reverse(of(false)), namespace.netns)
    });
    Ok(ctl.show(&namespaces, |namespaces, style| text(namespaces, *style)))
}

pub(in crate::cli) fn text(namespaces: &[NamespaceView], style: Style) -> String {
    let mut table = Table::new(&[
        Column::number("NETNS").rank(0),
        Column::number("OVERFLOWS").rank(0),
        Column::number("DROPS").rank(0),
        Column::number("HALF-OPEN DROPS").rank(1),
        Column::number("COOKIES SENT").rank(4),
        Column::number("RECEIVED").rank(5),
        Column::number("FAILED").rank(6),
        Column::number("OPENED").rank(7),
        Column::number("SOMAXCONN").rank(3),
        Column::number("CONNTRACK").rank(2),
    ]);
    for namespace in namespaces {
        let counters = &namespace.counters;
        table.row([
            name(namespace),
            or_dash(counters.listen_overflows),
            or_dash(counters.listen_drops),
            or_dash(counters.request_queue_full_drops),
            or_dash(counters.syncookies_sent),
            or_dash(counters.syncookies_received),
            or_dash(counters.syncookies_failed),
            or_dash(counters.passive_opens),
            or_dash(namespace.somaxconn),
            match namespace.conntrack {
                Conntrack::Table { count, max } => format!("{count}/{max}"),
                Conntrack::Absent => "none".to_owned(),
                Conntrack::Unknown => "-".to_owned(),
            },
        ]);
    }
    let mut text = table.text(style, "no network namespace could be read");
    for namespace in namespaces {
        // Stands in the table already.
        for finding in namespace.findings.iter().filter(|finding| finding.kind != FindingKind::ConntrackUnknown) {
            let line = format!("{}: {}", namespace.netns, printable(&finding.text));
            let line = if finding.critical { style.red(&line) } else { style.yellow(&line) };
            text.push_str(&wrapped(&line, 2, style.width()));
        }
    }
    text
}

/// The inode number; the daemon's own namespace is marked.
fn name(namespace: &NamespaceView) -> String {
    if namespace.home { format!("{} (own)", namespace.netns) } else { namespace.netns.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_api::{Finding, NamespaceCounters};

    #[test]
    fn counters_come_with_what_they_mean() {
        let own = NamespaceView {
            netns: 4_026_531_840,
            home: true,
            generation: 0,
            somaxconn: Some(4096),
            counters: NamespaceCounters {
                listen_overflows: Some(250),
                listen_drops: Some(270),
                request_queue_full_drops: Some(0),
                request_queue_full_cookies: Some(0),
                syncookies_sent: Some(11),
                syncookies_received: Some(0),
                syncookies_failed: Some(0),
                fast_open_overflows: Some(0),
                passive_opens: Some(1_204_551),
            },
            recent: NamespaceCounters::default(),
            conntrack: Conntrack::Table { count: 12, max: 262_144 },
            findings: vec![Finding {
                kind: FindingKind::DroppedOtherwise,
                critical: false,
                text: "20 handshakes dropped for another reason than a full accept queue".into(),
            }],
        };
        let unread = NamespaceView {
            netns: 4_026_532_501,
            home: false,
            somaxconn: None,
            counters: NamespaceCounters::default(),
            conntrack: Conntrack::Unknown,
            findings: Vec::new(),
            ..own.clone()
        };
        insta::assert_snapshot!(text(&[own, unread], Style::PLAIN), @"
                   NETNS  OVERFLOWS  DROPS  HALF-OPEN DROPS  COOKIES SENT  RECEIVED  FAILED   OPENED  SOMAXCONN  CONNTRACK
        4026531840 (own)        250    270                0            11         0       0  1204551       4096  12/262144
              4026532501          -      -                -             -         -       -        -          -          -
        4026531840: 20 handshakes dropped for another reason than a full accept queue
        ");
    }
}
