//! `governorctl keys`: who holds and who waits, the heaviest first.

use crate::cli::answer::{Answer, Error};
use crate::cli::asking::client::with_query;
use crate::cli::run::Ctl;
use crate::cli::text::render::{Cell, Column, Style, Table, duration, or_dash, org_name, printable};
use governor_api::{Key, Org};
use std::cmp::Reverse;

/// Asks and shows.
pub(in crate::cli) fn run(ctl: &Ctl, pool: Option<String>) -> Result<Answer, Error> {
    let mut keys: Vec<Key> = ctl.client.get(&with_query("/v1/keys", &[("pool", pool)]))?;
    keys.sort_by_key(|key| Reverse(key.in_flight.saturating_add(key.parked)));
    Ok(ctl.show(&keys, |keys, style| table(keys, *style)))
}

/// Asks for the orgs and shows them.
pub(in crate::cli) fn orgs(ctl: &Ctl) -> Result<Answer, Error> {
    let mut orgs: Vec<Org> = ctl.client.get("/v1/orgs")?;
    orgs.sort_by_key(|org| Reverse(org.counted));
    Ok(ctl.show(&orgs, |orgs, style| org_table(orgs, *style)))
}

/// Columns that say nothing of any key are left out.
pub(in crate::cli) fn table(keys: &[Key], style: Style) -> String {
    let with_org = keys.iter().any(|key| key.org.is_some());
    let entitled = keys.iter().any(|key| key.weight != 1 || key.floor > 0 || key.cap.is_some());
    let overridden = keys.iter().any(|key| key.overridden);
    let mut columns = vec![Column::text("POOL").rank(4), Column::text("KEY").rank(0), Column::text("LABEL").rank(1)];
    columns.extend(with_org.then_some(Column::text("ORG").rank(5)));
    columns.extend([
        Column::number("IN FLIGHT").rank(0),
        Column::number("PARKED").rank(0),
        Column::number("SHARE").rank(2),
    ]);
    if entitled {
        columns.extend([
            Column::number("WEIGHT").rank(8),
            Column::number("FLOOR").rank(7),
            Column::number("CAP").rank(6),
        ]);
    }
    columns.extend(overridden.then_some(Column::word("OVERRIDE").rank(3)));
    let mut table = Table::new(&columns);
    for key in keys {
        let mut row: Vec<Cell> =
            vec![key.pool.clone().into(), key.key.clone().into(), or_dash(key.label.as_deref().map(printable)).into()];
        row.extend(with_org.then(|| org_name(key.org.as_deref(), key.org_name.as_deref()).into()));
        row.extend([key.in_flight.to_string(), key.parked.to_string(), or_dash(key.share)].map(Cell::from));
        if entitled {
            row.extend([key.weight.to_string(), key.floor.to_string(), or_dash(key.cap)].map(Cell::from));
        }
        row.extend(overridden.then(|| match (key.overridden, key.suspended) {
            (_, true) => Cell::red("suspended"),
            (true, false) => "yes".to_owned().into(),
            (false, false) => "-".to_owned().into(),
        }));
        table.row(row);
    }
    table.text(style, "no key has anything in flight or parked")
}

/// One row for each pool of an org; what is of the org as a whole stands in its first.
pub(in crate::cli) fn org_table(orgs: &[Org], style: Style) -> String {
    let mut table = Table::new(&[
        Column::text("ORG").rank(0),
        Column::text("CLASS").rank(3),
        Column::text("TIER").rank(4),
        Column::number("REQUESTS").rank(0),
        Column::number("CAP").rank(1),
        Column::text("POOL").rank(2),
        Column::number("IN FLIGHT").rank(2),
        Column::number("PARKED").rank(2),
        Column::number("SHARE").rank(5),
        Column::number("WEIGHT").rank(7),
        Column::number("FLOOR").rank(6),
    ]);
    for org in orgs {
        let tier = match (&org.tier, org.tier_remaining_seconds) {
            (Some(tier), Some(left)) => format!("{tier}, {} more", duration(left)),
            (None, Some(left)) => format!("none found, {} more", duration(left)),
            (_, None) => "-".to_owned(),
        };
        let whole = [
            org.name.as_deref().map_or_else(|| org.org.clone(), printable),
            or_dash(org.class.as_deref()),
            tier,
            org.counted.to_string(),
            or_dash(org.cap),
        ];
        let rows = org.pools.len().max(1);
        for at in 0..rows {
            let mut row = if at == 0 { whole.to_vec() } else { vec![String::new(); whole.len()] };
            match org.pools.get(at) {
                Some(pool) => row.extend([
                    pool.pool.clone(),
                    pool.in_flight.to_string(),
                    pool.parked.to_string(),
                    or_dash(pool.share),
                    pool.weight.to_string(),
                    pool.floor.to_string(),
                ]),
                None => row.extend(vec!["-".to_owned(); 6]),
            }
            table.row(row);
        }
    }
    table.text(style, "no org has anything in flight, parked or suspended")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orgs_weights_and_overrides_are_shown_where_there_are_any() {
        let key =
            |key: &str| Key { pool: "chat".into(), key: key.repeat(16), in_flight: 3, weight: 1, ..Key::default() };
        let keys = [
            Key { org: Some("aa".repeat(16)), org_name: Some("acme".into()), share: Some(9), ..key("9f") },
            Key { weight: 4, floor: 2, cap: Some(50), overridden: true, ..key("03") },
            Key { overridden: true, suspended: true, ..key("04") },
        ];
        insta::assert_snapshot!(table(&keys, Style::PLAIN), @"
        POOL  KEY                               LABEL  ORG   IN FLIGHT  PARKED  SHARE  WEIGHT  FLOOR  CAP  OVERRIDE
        chat  9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f  -      acme          3       0      9       1      0    -  -
        chat  03030303030303030303030303030303  -      -             3       0      -       4      2   50  yes
        chat  04040404040404040404040404040404  -      -             3       0      -       1      0    -  suspended
        ");
    }

    #[test]
    fn an_org_shows_its_class_and_the_tier_that_raised_it() {
        let pool = |pool: &str, share| governor_api::OrgPool {
            pool: pool.into(),
            in_flight: 40,
            parked: 2,
            share,
            weight: 1,
            floor: 0,
        };
        let orgs = [
            Org {
                org: "aa".repeat(16),
                name: Some("acme".into()),
                class: Some("tier0".into()),
                tier: Some("tier2".into()),
                tier_remaining_seconds: Some(90.0),
                counted: 84,
                cap: Some(400),
                pools: vec![pool("chat", Some(49)), pool("media", None)],
            },
            Org {
                org: "bb".repeat(16),
                name: None,
                class: None,
                tier: None,
                tier_remaining_seconds: None,
                counted: 0,
                cap: None,
                pools: vec![],
            },
        ];
        insta::assert_snapshot!(org_table(&orgs, Style::PLAIN), @"
        ORG                               CLASS  TIER               REQUESTS  CAP  POOL   IN FLIGHT  PARKED  SHARE  WEIGHT  FLOOR
        acme                              tier0  tier2, 1m30s more        84  400  chat          40       2     49       1      0
                                                                                   media         40       2      -       1      0
        bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb  -      -                         0    -  -              -       -      -       -      -
        ");
    }

    #[test]
    fn a_key_without_a_label_or_a_rule_shows_what_is_known() {
        let key = |key: &str, label: Option<&str>, in_flight, parked, share| Key {
            pool: "chat".into(),
            key: key.repeat(16),
            label: label.map(str::to_owned),
            in_flight,
            parked,
            share,
            weight: 1,
            ..Key::default()
        };
        let keys = [key("9f", Some("batch"), 61, 16, Some(9)), key("03", None, 2, 0, None)];
        insta::assert_snapshot!(table(&keys, Style::PLAIN), @"
        POOL  KEY                               LABEL  IN FLIGHT  PARKED  SHARE
        chat  9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f  batch         61      16      9
        chat  03030303030303030303030303030303  -              2       0      -
        ");
    }
}
