//! `governorctl config`: the settings in effect and, with `--origin`, the layer each comes from.

use crate::cli::answer::{Answer, Error};
use crate::cli::run::Ctl;
use crate::cli::text::render::{Column, Style, Table, or_dash, value};
use governor_api::{ConfigEntry, Origin};

/// Asks and shows. JSON has the origin always.
pub(in crate::cli) fn run(ctl: &Ctl, origin: bool) -> Result<Answer, Error> {
    let entries: Vec<ConfigEntry> = ctl.client.get("/v1/config")?;
    Ok(ctl.show(&entries, |entries, style| if origin { with_origin(entries, *style) } else { plain(entries, *style) }))
}

/// What a layer is called, as the API writes it.
pub(in crate::cli) fn layer(origin: Origin) -> &'static str {
    match origin {
        Origin::BuiltIn => "built-in",
        Origin::File => "file",
        Origin::Environment => "environment",
        Origin::Override => "override",
    }
}

pub(in crate::cli) fn plain(entries: &[ConfigEntry], style: Style) -> String {
    let mut table = Table::new(&[Column::text("KEY").rank(0).least(24), Column::text("VALUE").rank(0)]);
    for entry in entries {
        table.row([entry.key.clone(), with_pending(entry, style)]);
    }
    table.text(style, "no settings")
}

/// The value in force and, where a restart would change it, the one after it.
fn with_pending(entry: &ConfigEntry, style: Style) -> String {
    let pending = entry.pending.as_ref().map(|pending| format!("{} after a restart", value(&pending.value)));
    let pending = pending.map(|pending| format!(" ({})", style.yellow(&pending)));
    value(&entry.value) + &pending.unwrap_or_default()
}

pub(in crate::cli) fn with_origin(entries: &[ConfigEntry], style: Style) -> String {
    let mut table = Table::new(&[
        Column::text("KEY").rank(0).least(24),
        Column::text("VALUE").rank(0),
        Column::word("ORIGIN").rank(2),
        Column::text("WHERE").rank(1).least(16),
    ]);
    for entry in entries {
        table.row([
            entry.key.clone(),
            with_pending(entry, style),
            layer(entry.origin).to_owned(),
            or_dash(entry.detail.as_deref()),
        ]);
    }
    table.text(style, "no settings")
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_api::PendingValue;
    use serde_json::json;

    #[test]
    fn every_value_shows_where_it_comes_from() {
        let entry = |key: &str, value, origin, detail: Option<&str>| ConfigEntry {
            key: key.to_owned(),
            value,
            origin,
            detail: detail.map(str::to_owned),
            pending: None,
        };
        let entries = [
            entry("node.cap", json!(1000), Origin::BuiltIn, None),
            entry("pools.chat.fair_share", json!("off"), Origin::File, Some("governor.toml:12")),
            entry("node.max_parked", json!(250), Origin::Environment, Some("GOVERNOR_NODE_MAX_PARKED")),
            entry("overload.ports", json!(["443", "8443"]), Origin::Override, Some("set 5m ago by uid 0")),
        ];
        insta::assert_snapshot!(with_origin(&entries, Style::PLAIN), @r#"
        KEY                    VALUE           ORIGIN       WHERE
        node.cap               1000            built-in     -
        pools.chat.fair_share  off             file         governor.toml:12
        node.max_parked        250             environment  GOVERNOR_NODE_MAX_PARKED
        overload.ports         ["443","8443"]  override     set 5m ago by uid 0
        "#);
        let pending = PendingValue { value: json!(50), origin: Origin::File, detail: None };
        let entry = ConfigEntry { pending: Some(pending), ..entries[0].clone() };
        insta::assert_snapshot!(plain(&[entry], Style::PLAIN), @"
        KEY       VALUE
        node.cap  1000 (50 after a restart)
        ");
        insta::assert_snapshot!(plain(&entries[..2], Style::PLAIN), @"
        KEY                    VALUE
        node.cap               1000
        pools.chat.fair_share  off
        ");
    }
}
