//! `governorctl events`: who changed what, and what ended by itself.

use crate::cli::answer::{Answer, Error};
use crate::cli::asking::client::with_query;
use crate::cli::run::Ctl;
use crate::cli::text::render::{Column, Style, Table, or_dash, printable, value};
use governor_api::{Event, KeySetting};
use serde_json::Value;

/// Asks and shows.
pub(in crate::cli) fn run(ctl: &Ctl, last_seconds: u64) -> Result<Answer, Error> {
    let events: Vec<Event> =
        ctl.client.get(&with_query("/v1/events", &[("last_seconds", Some(last_seconds.to_string()))]))?;
    Ok(ctl.show(&events, |events, style| table(events, *style)))
}

pub(in crate::cli) fn table(events: &[Event], style: Style) -> String {
    let mut table = Table::new(&[
        Column::word("WHEN").rank(0),
        Column::text("WHO").rank(3),
        Column::text("WHAT").rank(0),
        Column::text("SUBJECT").rank(1).least(16),
        Column::text("BEFORE").rank(5),
        Column::text("AFTER").rank(2),
        Column::text("REASON").rank(4),
    ]);
    for event in events {
        let subject = if event.subject.is_empty() { "-".to_owned() } else { printable(&event.subject) };
        table.row([
            event.at.clone(),
            printable(&event.by),
            printable(&event.action),
            subject,
            state(&event.before),
            state(&event.after),
            or_dash(event.reason.as_deref().map(printable)),
        ]);
    }
    table.text(style, "nothing was changed in that time")
}

/// An override in words, anything else as it is.
fn state(state: &Value) -> String {
    match serde_json::from_value::<KeySetting>(state.clone()) {
        Ok(setting) if state.is_object() => crate::cli::admission::key::setting(setting),
        _ if state.is_null() => "-".to_owned(),
        _ => printable(&value(state)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_line_says_who_when_what_before_and_after() {
        let event = |action: &str, subject: &str, before: Value, after: Value, reason: Option<&str>| Event {
            at: "2026-03-01T12:00:00Z".into(),
            at_seconds: 1_772_366_400,
            by: "uid 0".into(),
            action: action.into(),
            subject: subject.into(),
            before,
            after,
            reason: reason.map(str::to_owned),
        };
        let events = [
            event("set", "pools.chat.fair_share", json!("off"), json!(80), None),
            event("bypass", "", json!("off"), json!("on"), None),
            event(
                "key",
                "ab12",
                Value::Null,
                json!({ "cap": 5, "suspend": false, "set_by": "uid 0" }),
                Some("runaway"),
            ),
        ];
        insta::assert_snapshot!(table(&events, Style::PLAIN), @"
        WHEN                  WHO    WHAT    SUBJECT                BEFORE  AFTER  REASON
        2026-03-01T12:00:00Z  uid 0  set     pools.chat.fair_share  off     80     -
        2026-03-01T12:00:00Z  uid 0  bypass  -                      off     on     -
        2026-03-01T12:00:00Z  uid 0  key     ab12                   -       cap 5  runaway
        ");
    }
}
