//! `governorctl pools`: shared capacity and who waits for it, the longest wait first.

use crate::cli::admission::members::state;
use crate::cli::answer::{Answer, Error};
use crate::cli::run::Ctl;
use crate::cli::text::render::{Column, Style, Table, duration, or_dash};
use governor_api::{FairShare, Mode, Pool};

/// Asks and shows.
pub(in crate::cli) fn run(ctl: &Ctl, members: bool) -> Result<Answer, Error> {
    let mut pools: Vec<Pool> = ctl.client.get("/v1/pools")?;
    longest_wait_first(&mut pools);
    Ok(ctl.show(&pools, |pools, style| {
        let mut text = table(pools, *style);
        if members && !pools.is_empty() {
            text.push('\n');
            text.push_str(&member_table(pools, *style));
            if pools.iter().any(|pool| !pool.traffic.is_empty()) {
                text.push('\n');
                text.push_str(&traffic_table(pools, *style));
            }
        }
        text
    }))
}

/// Pools without parked requests keep their order, at the end.
fn longest_wait_first(pools: &mut [Pool]) {
    let wait = |pool: &Pool| pool.oldest_parked_seconds.unwrap_or(-1.0);
    pools.sort_by(|a, b| wait(b).total_cmp(&wait(a)));
}

/// What observe mode recorded is shown only where it recorded something.
pub(in crate::cli) fn table(pools: &[Pool], style: Style) -> String {
    let recorded = pools.iter().any(|pool| pool.would_have.values().any(|would| would.park + would.refuse > 0));
    let mut columns = vec![
        Column::text("POOL").rank(0),
        Column::number("OLDEST WAIT").rank(2),
        Column::number("PARKED").rank(0),
        Column::number("IN FLIGHT").rank(0),
        Column::number("CAPACITY").rank(0),
        Column::word("FAIR SHARE").rank(3),
        Column::word("CONGESTED").rank(4),
        Column::number("KEYS").rank(7),
        Column::number("GRANTED").rank(5),
        Column::number("REFUSED").rank(1),
    ];
    if recorded {
        columns.extend([Column::number("WOULD PARK").rank(8), Column::number("WOULD REFUSE").rank(6)]);
    }
    let mut table = Table::new(&columns);
    for pool in pools {
        let mut row = vec![
            pool.name.clone(),
            or_dash(pool.oldest_parked_seconds.map(duration)),
            pool.parked.to_string(),
            pool.in_flight.to_string(),
            if pool.unlimited { "unlimited".to_owned() } else { pool.capacity.to_string() },
            fair_share(pool.fair_share, pool.mode),
            match (pool.congested, pool.oversubscribed) {
                (false, false) => "no",
                (true, false) => "yes",
                (false, true) => "no, oversubscribed",
                (true, true) => "yes, oversubscribed",
            }
            .to_owned(),
            pool.active_keys.to_string(),
            pool.granted_total.to_string(),
            pool.shed_total.values().sum::<u64>().to_string(),
        ];
        if recorded {
            row.push(pool.would_have.values().map(|would| would.park).sum::<u64>().to_string());
            row.push(pool.would_have.values().map(|would| would.refuse).sum::<u64>().to_string());
        }
        table.row(row);
    }
    table.text(style, "no pools are configured")
}

pub(in crate::cli) fn fair_share(kind: FairShare, mode: Mode) -> String {
    match (kind, mode) {
        (FairShare::Off, _) => rule(kind),
        (FairShare::EqualSplit(_) | FairShare::MaxMin, Mode::Observe) => format!("{}, observe", rule(kind)),
        (FairShare::EqualSplit(_) | FairShare::MaxMin, Mode::Enforce) => format!("{}, enforce", rule(kind)),
    }
}

/// A rule in words.
pub(in crate::cli) fn rule(rule: FairShare) -> String {
    match rule {
        FairShare::Off => "off".to_owned(),
        FairShare::MaxMin => "max-min".to_owned(),
        FairShare::EqualSplit(threshold) => format!("from {threshold} %"),
    }
}

pub(in crate::cli) fn member_table(pools: &[Pool], style: Style) -> String {
    let mut table = Table::new(&[
        Column::text("POOL").rank(1),
        Column::text("MEMBER").rank(0),
        Column::number("IN FLIGHT").rank(0),
        Column::number("SLOTS").rank(0),
        Column::number("RESERVE").rank(2),
        Column::word("STATE").rank(0),
    ]);
    for pool in pools {
        for member in &pool.members {
            table.row([
                pool.name.clone(),
                member.name.clone(),
                member.in_flight.to_string(),
                member.slots.to_string(),
                member.reserve.to_string(),
                state(member.state, member.cooling_seconds),
            ]);
        }
    }
    table.text(style, "no pool has members")
}

pub(in crate::cli) fn traffic_table(pools: &[Pool], style: Style) -> String {
    let mut table = Table::new(&["POOL", "TRAFFIC", ">IN FLIGHT", ">SLOTS"].map(|title| Column::from(title).rank(0)));
    for pool in pools {
        for kind in &pool.traffic {
            table.row([pool.name.clone(), kind.name.clone(), kind.in_flight.to_string(), or_dash(kind.slots)]);
        }
    }
    table.text(style, "no kind of traffic is bounded")
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_api::{Member, MemberState, WouldHave};

    fn pool(name: &str, oldest_parked_seconds: Option<f64>) -> Pool {
        Pool {
            name: name.into(),
            capacity: 14,
            unlimited: false,
            in_flight: 3,
            parked: u32::from(oldest_parked_seconds.is_some()),
            oldest_parked_seconds,
            fair_share: FairShare::Off,
            mode: Mode::Observe,
            congested: false,
            active_keys: 2,
            headroom: None,
            oversubscribed: false,
            traffic: vec![],
            granted_total: 900,
            shed_total: [].into(),
            would_have: [].into(),
            members: vec![Member {
                name: "account-1".into(),
                slots: 8,
                reserve: 1,
                in_flight: 3,
                state: MemberState::Up,
                cooling_seconds: None,
            }],
        }
    }

    #[test]
    fn the_longest_wait_is_on_top() {
        let mut pools = [pool("quiet", None), pool("short", Some(0.4)), pool("idle", None), pool("long", Some(28.0))];
        pools[3].fair_share = FairShare::EqualSplit(80);
        pools[3].mode = Mode::Enforce;
        pools[3].congested = true;
        pools[3].shed_total = [("fair_share".to_owned(), 40), ("pool_exhausted".to_owned(), 2)].into();
        pools[1].fair_share = FairShare::EqualSplit(90);
        pools[1].would_have = [("fair_share".to_owned(), WouldHave { park: 12, refuse: 3 })].into();
        longest_wait_first(&mut pools);
        insta::assert_snapshot!(table(&pools, Style::PLAIN), @"
        POOL   OLDEST WAIT  PARKED  IN FLIGHT  CAPACITY  FAIR SHARE          CONGESTED  KEYS  GRANTED  REFUSED  WOULD PARK  WOULD REFUSE
        long           28s       1          3        14  from 80 %, enforce  yes           2      900       42           0             0
        short        400ms       1          3        14  from 90 %, observe  no            2      900        0          12             3
        quiet            -       0          3        14  off                 no            2      900        0           0             0
        idle             -       0          3        14  off                 no            2      900        0           0             0
        ");
    }

    #[test]
    fn traffic_with_a_bound_has_a_table_of_its_own() {
        let mut pool = pool("chat", None);
        pool.traffic = vec![governor_api::Traffic { name: "media".into(), slots: Some(4), in_flight: 4 }];
        insta::assert_snapshot!(traffic_table(&[pool], Style::PLAIN), @"
        POOL  TRAFFIC  IN FLIGHT  SLOTS
        chat  media            4      4
        ");
    }

    #[test]
    fn a_cooling_member_says_for_how_long() {
        let mut pool = pool("chat", None);
        pool.members.push(Member {
            name: "account-2".into(),
            state: MemberState::Cooling,
            cooling_seconds: Some(41.0),
            ..pool.members[0].clone()
        });
        insta::assert_snapshot!(member_table(&[pool], Style::PLAIN), @"
        POOL  MEMBER     IN FLIGHT  SLOTS  RESERVE  STATE
        chat  account-1          3      8        1  up
        chat  account-2          3      8        1  cooling, 41s more
        ");
    }
}
