//! `governorctl members`: which upstream members take requests, those in trouble first.

use crate::cli::answer::{Answer, Error};
use crate::cli::asking::client::with_query;
use crate::cli::run::Ctl;
use crate::cli::text::render::{Cell, Column, Style, Table, duration, or_dash, printable};
use governor_api::{MemberRow, MemberState};
use std::cmp::Reverse;

/// Asks and shows.
pub(in crate::cli) fn run(ctl: &Ctl, pool: Option<String>) -> Result<Answer, Error> {
    let mut members: Vec<MemberRow> = ctl.client.get(&with_query("/v1/members", &[("pool", pool)]))?;
    troubled_first(&mut members);
    Ok(ctl.show(&members, |members, style| table(members, *style)))
}

/// Cooling, draining, failing, off, then the fullest; the configuration's order within each.
fn troubled_first(members: &mut [MemberRow]) {
    let rank = |member: &MemberRow| match member.state {
        MemberState::Cooling => 0,
        MemberState::Draining => 1,
        MemberState::Up if member.cause.is_some() => 2,
        MemberState::Off => 3,
        MemberState::Up => 4,
    };
    let use_permille = |member: &MemberRow| u64::from(member.in_flight) * 1000 / u64::from(member.slots.max(1));
    members.sort_by_key(|member| (rank(member), Reverse(use_permille(member))));
}

pub(in crate::cli) fn table(members: &[MemberRow], style: Style) -> String {
    let mut table = Table::new(&[
        Column::text("POOL").rank(1),
        Column::text("MEMBER").rank(0),
        Column::word("STATE").rank(0),
        Column::number("IN FLIGHT").rank(0),
        Column::number("SLOTS").rank(0),
        Column::number("RESERVE").rank(5),
        Column::word("CAUSE").rank(2),
        Column::text("BY").rank(3),
        Column::text("REASON").rank(4),
    ]);
    for member in members {
        let state = state(member.state, member.cooling_seconds);
        let state = match member.state {
            MemberState::Cooling | MemberState::Draining => Cell::red(&state),
            MemberState::Up | MemberState::Off => state.into(),
        };
        let row: [Cell; 9] = [
            member.pool.clone().into(),
            member.name.clone().into(),
            state,
            member.in_flight.to_string().into(),
            member.slots.to_string().into(),
            member.reserve.to_string().into(),
            or_dash(member.cause.as_deref().map(cause)).into(),
            or_dash(member.by.as_deref().map(printable)).into(),
            or_dash(member.reason.as_deref().map(printable)).into(),
        ];
        table.row(row);
    }
    table.text(style, "no pool has members")
}

/// The state of a member, with what is left of a cool-down.
pub(in crate::cli) fn state(state: MemberState, cooling_seconds: Option<f64>) -> String {
    match (state, cooling_seconds) {
        (MemberState::Up, _) => "up".to_owned(),
        (MemberState::Off, _) => "off".to_owned(),
        (MemberState::Draining, _) => "draining".to_owned(),
        (MemberState::Cooling, None) => "cooling".to_owned(),
        (MemberState::Cooling, Some(seconds)) => format!("cooling, {} more", duration(seconds)),
    }
}

fn cause(cause: &str) -> String {
    cause.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_in_trouble_come_first_with_who_took_them_out() {
        let row = |name: &str, state, in_flight| MemberRow {
            pool: "chat".into(),
            name: name.into(),
            slots: 8,
            reserve: 1,
            in_flight,
            state,
            ..MemberRow::default()
        };
        let mut members = [
            row("idle", MemberState::Up, 0),
            row("full", MemberState::Up, 7),
            MemberRow { slots: 0, cause: Some("configuration".into()), ..row("off", MemberState::Off, 0) },
            MemberRow { cause: Some("overloaded".into()), ..row("last", MemberState::Up, 1) },
            MemberRow {
                cause: Some("operator".into()),
                by: Some("uid 0".into()),
                reason: Some("key rotation".into()),
                ..row("old", MemberState::Draining, 2)
            },
            MemberRow {
                cooling_seconds: Some(585.0),
                cause: Some("rate_limited".into()),
                by: Some("s-3 (gateway, pid 42)".into()),
                ..row("limited", MemberState::Cooling, 5)
            },
        ];
        troubled_first(&mut members);
        insta::assert_snapshot!(table(&members, Style::PLAIN), @"
        POOL  MEMBER   STATE                IN FLIGHT  SLOTS  RESERVE  CAUSE          BY                     REASON
        chat  limited  cooling, 9m45s more          5      8        1  rate limited   s-3 (gateway, pid 42)  -
        chat  old      draining                     2      8        1  operator       uid 0                  key rotation
        chat  last     up                           1      8        1  overloaded     -                      -
        chat  off      off                          0      0        1  configuration  -                      -
        chat  full     up                           7      8        1  -              -                      -
        chat  idle     up                           0      8        1  -              -                      -
        ");
        let narrow = table(&members, Style::narrow(80));
        assert!(narrow.lines().all(|line| line.len() <= 80), "{narrow}");
    }
}
