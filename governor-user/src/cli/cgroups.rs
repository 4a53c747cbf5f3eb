//! `governorctl cgroups`: open connections per cgroup.

use super::answer::{Answer, Error};
use super::render::{Style, Table, or_dash};
use super::run::Ctl;
use crate::control::api::{Basis, CgroupView};

/// Asks and shows. Counts that are unavailable are an error of the daemon with its reason.
pub(super) fn run(ctl: &Ctl) -> Result<Answer, Error> {
    let cgroups: Vec<CgroupView> = ctl.client.get("/v1/cgroups")?;
    Ok(ctl.show(&cgroups, |cgroups, style| table(cgroups, *style)))
}

fn table(cgroups: &[CgroupView], style: Style) -> String {
    let mut table = Table::new(&["CGROUP", ">INBOUND", ">OUTBOUND", "INBOUND COUNTS UNDER", ">ID"]);
    for cgroup in cgroups {
        table.row([
            or_dash(cgroup.path.as_deref()),
            cgroup.inbound.to_string(),
            cgroup.outbound.to_string(),
            match cgroup.inbound_basis {
                Basis::Owner => "owner".to_owned(),
                Basis::Acceptor => "acceptor".to_owned(),
            },
            cgroup.id.to_string(),
        ]);
    }
    table.text(style, "no cgroup has open connections")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_whose_folder_is_gone_keeps_its_counts() {
        let row = |path: Option<&str>, inbound, outbound, inbound_basis| CgroupView {
            id: 71,
            path: path.map(str::to_owned),
            inbound,
            outbound,
            inbound_basis,
        };
        let rows =
            [row(Some("/system.slice/gateway.service"), 1200, 98, Basis::Acceptor), row(None, 1, 0, Basis::Owner)];
        insta::assert_snapshot!(table(&rows, Style::PLAIN), @"
        CGROUP                         INBOUND  OUTBOUND  INBOUND COUNTS UNDER  ID
        /system.slice/gateway.service     1200        98  acceptor              71
        -                                    1         0  owner                 71
        ");
    }
}
