//! `governorctl cgroups`: open connections per cgroup.

use crate::cli::answer::{Answer, Error};
use crate::cli::run::Ctl;
use crate::cli::text::render::{Column, Style, Table, or_dash};
use governor_api::{Basis, CgroupView};

/// Asks and shows. Counts that are unavailable are an error of the daemon with its reason.
pub(in crate::cli) fn run(ctl: &Ctl) -> Result<Answer, Error> {
    let cgroups: Vec<CgroupView> = ctl.client.get("/v1/cgroups")?;
    Ok(ctl.show(&cgroups, |cgroups, style| table(cgroups, *style)))
}

/// What a cgroup owns is shown only where it is not what it accepted.
pub(in crate::cli) fn table(cgroups: &[CgroupView], style: Style) -> String {
    let owned = cgroups.iter().any(|cgroup| cgroup.inbound_owned.is_some());
    let mut columns = vec![Column::text("CGROUP").rank(0).least(24), Column::number("INBOUND").rank(0)];
    columns.extend(owned.then_some(Column::number("OF ITS LISTENERS").rank(1)));
    columns.extend([
        Column::number("OUTBOUND").rank(0),
        Column::word("INBOUND COUNTS UNDER").rank(2),
        Column::number("ID").rank(3),
    ]);
    let mut table = Table::new(&columns);
    let removed = sum_of_removed(cgroups);
    for cgroup in cgroups.iter().filter(|cgroup| cgroup.path.is_some()).chain(&removed) {
        let mut row = vec![cgroup.path.as_deref().unwrap_or("removed").to_owned(), cgroup.inbound.to_string()];
        row.extend(owned.then(|| or_dash(cgroup.inbound_owned)));
        row.extend([
            cgroup.outbound.to_string(),
            match cgroup.inbound_basis {
                Basis::Owner => "owner".to_owned(),
                Basis::Acceptor => "acceptor".to_owned(),
            },
            or_dash(cgroup.path.as_ref().map(|_| cgroup.id)),
        ]);
        table.row(row);
    }
    table.text(style, "no cgroup has open connections")
}

/// One row for all cgroups whose folder is gone, and for connections of which the kernel shows no cgroup.
fn sum_of_removed(cgroups: &[CgroupView]) -> Option<CgroupView> {
    cgroups.iter().filter(|cgroup| cgroup.path.is_none()).cloned().reduce(|sum, one| CgroupView {
        inbound: sum.inbound + one.inbound,
        outbound: sum.outbound + one.outbound,
        inbound_owned: sum.inbound_owned.zip(one.inbound_owned).map(|(sum, one)| sum + one),
        ..sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_whose_folder_is_gone_share_a_row() {
        let row = |path: Option<&str>, inbound, outbound, inbound_basis| CgroupView {
            id: 71,
            path: path.map(str::to_owned),
            inbound,
            outbound,
            inbound_basis,
            inbound_owned: None,
        };
        let rows = [
            row(Some("/system.slice/gateway.service"), 1200, 98, Basis::Acceptor),
            row(None, 1, 0, Basis::Owner),
            row(None, 2, 4, Basis::Owner),
        ];
        insta::assert_snapshot!(table(&rows, Style::PLAIN), @"
        CGROUP                         INBOUND  OUTBOUND  INBOUND COUNTS UNDER  ID
        /system.slice/gateway.service     1200        98  acceptor              71
        removed                              3         4  owner                  -
        ");
    }

    #[test]
    fn owner_and_acceptor_are_both_shown_where_they_differ() {
        let row = |path: &str, inbound, inbound_owned| CgroupView {
            id: 71,
            path: Some(path.to_owned()),
            inbound,
            outbound: 0,
            inbound_basis: Basis::Acceptor,
            inbound_owned,
        };
        let rows = [row("/init.scope", 0, Some(40)), row("/system.slice/gateway.service", 40, None)];
        insta::assert_snapshot!(table(&rows, Style::PLAIN), @"
        CGROUP                         INBOUND  OF ITS LISTENERS  OUTBOUND  INBOUND COUNTS UNDER  ID
        /init.scope                          0                40         0  acceptor              71
        /system.slice/gateway.service       40                 -         0  acceptor              71
        ");
    }
}
