//! `governorctl leases`: what runs, the oldest first.

use crate::cli::answer::{Answer, Error};
use crate::cli::asking::client::with_query;
use crate::cli::run::Ctl;
use crate::cli::text::ids;
use crate::cli::text::render::{Column, Style, Table, duration, or_dash, org_name, printable, short_hash};
use governor_api::Lease;
use std::time::Duration;

/// Asks and shows.
pub(in crate::cli) fn run(ctl: &Ctl, pool: Option<String>, idle: Option<Duration>) -> Result<Answer, Error> {
    let idle = idle.map(|idle| idle.as_secs_f64().to_string());
    let mut leases: Vec<Lease> =
        ctl.client.get(&with_query("/v1/leases", &[("pool", pool), ("idle_seconds", idle)]))?;
    leases.sort_by(|a, b| b.age_seconds.total_cmp(&a.age_seconds));
    Ok(ctl.show(&leases, |leases, style| table(leases, *style)))
}

pub(in crate::cli) fn table(leases: &[Lease], style: Style) -> String {
    let columns = [
        Column::word("LEASE").rank(0),
        Column::text("POOL").rank(3),
        Column::text("MEMBER").rank(2),
        Column::text("KEY").rank(0),
        Column::word("KIND").rank(7),
        Column::number("SESSION").rank(6),
        Column::number("AGE").rank(0),
        Column::number("IDLE").rank(1),
        Column::number("EXPIRES IN").rank(5),
    ];
    let with_label = leases.iter().any(|lease| lease.label.is_some());
    let with_org = leases.iter().any(|lease| lease.org.is_some());
    let with_state = leases.iter().any(|lease| lease.suspended || lease.client_gone);
    let with_site = leases.iter().any(|lease| lease.site.is_some());
    let more = [
        (with_label, Column::text("LABEL").rank(1)),
        (with_org, Column::text("ORG").rank(8)),
        (with_state, Column::text("STATE").rank(1)),
        (with_site, Column::text("ASKED AT").rank(4)),
    ];
    let more = more.into_iter().filter_map(|(shown, column)| shown.then_some(column));
    let mut table = Table::new(&columns.into_iter().chain(more).collect::<Vec<_>>());
    for lease in leases {
        let mut row = vec![
            ids::lease(&lease.lease),
            lease.pool.clone(),
            or_dash(lease.member.as_deref()),
            short_hash(lease.key.as_deref()),
            lease.kind.clone(),
            ids::session(lease.session),
            duration(lease.age_seconds),
            or_dash(lease.idle_seconds.map(duration)),
            duration(lease.expires_seconds),
        ];
        row.extend(with_label.then(|| or_dash(lease.label.as_deref().map(printable))));
        row.extend(with_org.then(|| org_name(lease.org.as_deref(), lease.org_name.as_deref())));
        row.extend(with_state.then(|| match (lease.suspended, lease.client_gone) {
            (true, true) => "suspended, client gone".to_owned(),
            (true, false) => "suspended".to_owned(),
            (false, true) => "client gone".to_owned(),
            (false, false) => "running".to_owned(),
        }));
        row.extend(with_site.then(|| lease.site.as_deref().map_or_else(|| "-".to_owned(), printable)));
        table.row(row);
    }
    table.text(style, "no lease is held")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_lease_is_told_from_one_that_does_not_tell() {
        let lease = |lease: &str, member: Option<&str>, label: Option<&str>, age_seconds, idle_seconds| Lease {
            lease: lease.into(),
            pool: "chat".into(),
            key: Some("c4".repeat(16)),
            label: label.map(str::to_owned),
            member: member.map(str::to_owned),
            kind: "ordinary".into(),
            session: 2,
            age_seconds,
            expires_seconds: 24.4,
            idle_seconds,
            ..Lease::default()
        };
        let leases = [
            lease("0001000000000004", Some("account-3"), Some("batch"), 310.0, Some(61.5)),
            lease("0001000000000011", None, None, 0.8, None),
        ];
        insta::assert_snapshot!(table(&leases, Style::PLAIN), @"
        LEASE               POOL  MEMBER     KEY            KIND      SESSION    AGE   IDLE  EXPIRES IN  LABEL
        l-0001000000000004  chat  account-3  c4c4c4c4c4c4…  ordinary      s-2  5m10s  1m02s         24s  batch
        l-0001000000000011  chat  -          c4c4c4c4c4c4…  ordinary      s-2  800ms      -         24s  -
        ");
    }
}
