//! `governorctl keys`: who holds and who waits, the heaviest first.

use super::answer::{Answer, Error};
use super::client::with_query;
use super::render::{Style, Table, or_dash, printable};
use super::run::Ctl;
use crate::control::api::Key;
use std::cmp::Reverse;

/// Asks and shows.
pub(super) fn run(ctl: &Ctl, pool: Option<String>) -> Result<Answer, Error> {
    let mut keys: Vec<Key> = ctl.client.get(&with_query("/v1/keys", &[("pool", pool)]))?;
    keys.sort_by_key(|key| Reverse(key.in_flight.saturating_add(key.parked)));
    Ok(ctl.show(&keys, |keys, style| table(keys, *style)))
}

fn table(keys: &[Key], style: Style) -> String {
    let mut table = Table::new(&["POOL", "KEY", "LABEL", ">IN FLIGHT", ">PARKED", ">SHARE"]);
    for key in keys {
        table.row([
            key.pool.clone(),
            key.key.clone(),
            or_dash(key.label.as_deref().map(printable)),
            key.in_flight.to_string(),
            key.parked.to_string(),
            or_dash(key.share),
        ]);
    }
    table.text(style, "no key has anything in flight or parked")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_without_a_label_or_a_rule_shows_what_is_known() {
        let key = |key: &str, label: Option<&str>, in_flight, parked, share| Key {
            pool: "chat".into(),
            key: key.repeat(16),
            label: label.map(str::to_owned),
            in_flight,
            parked,
            share,
        };
        let keys = [key("9f", Some("batch"), 61, 16, Some(9)), key("03", None, 2, 0, None)];
        insta::assert_snapshot!(table(&keys, Style::PLAIN), @"
        POOL  KEY                               LABEL  IN FLIGHT  PARKED  SHARE
        chat  9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f  batch         61      16      9
        chat  03030303030303030303030303030303  -              2       0      -
        ");
    }
}
