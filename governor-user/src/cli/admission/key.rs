//! `governorctl key`: what an operator sets for one key, for a while or until cleared.

use crate::cli::answer::{Answer, Error};
use crate::cli::asking::client::escaped;
use crate::cli::run::Ctl;
use crate::cli::text::render::{Column, Style, Table, duration, key_name, or_dash, printable};
use governor_api::{KeyOverride, KeyOverrideChange, KeyOverrideRequest, KeySetting};
use hyper::Method;

/// Shows every override that holds.
pub(in crate::cli) fn list(ctl: &Ctl) -> Result<Answer, Error> {
    let all: Vec<KeyOverride> = ctl.client.get("/v1/overrides")?;
    Ok(ctl.show(&all, |all, style| table(all, *style)))
}

/// Sets one.
pub(in crate::cli) fn set(ctl: &Ctl, key: &str, order: &KeyOverrideRequest) -> Result<Answer, Error> {
    let change: KeyOverrideChange = ctl.client.send(Method::PUT, &path(key), order)?;
    Ok(ctl.show(&change, |change, _| sentence(change)))
}

/// Takes one away.
pub(in crate::cli) fn clear(ctl: &Ctl, key: &str) -> Result<Answer, Error> {
    let change: KeyOverrideChange = ctl.client.delete(&path(key))?;
    Ok(ctl.show(&change, |change, _| sentence(change)))
}

fn path(key: &str) -> String {
    format!("/v1/overrides/{}", escaped(key))
}

fn sentence(change: &KeyOverrideChange) -> String {
    let name = key_name(Some(&change.key), change.label.as_deref());
    let note = change.note.as_ref().map(|note| format!("note: {note}\n")).unwrap_or_default();
    format!("key {name}: {}, it was {}\n{note}", state(change.after.as_ref()), state(change.before.as_ref()))
}

fn state(over: Option<&KeyOverride>) -> String {
    let Some(over) = over else { return "no override".to_owned() };
    let end = over.remaining_seconds.map_or_else(|| "until cleared".to_owned(), |left| format!("for {}", whole(left)));
    format!("{} {end}", setting(over.setting))
}

/// What is set, in words.
pub(in crate::cli) fn setting(setting: KeySetting) -> String {
    let KeySetting { cap, weight, floor, suspend } = setting;
    let mut words = Vec::new();
    if suspend {
        words.push("suspended".to_owned());
    }
    match cap {
        Some(0) => words.push("no cap".to_owned()),
        Some(cap) => words.push(format!("cap {cap}")),
        None => {}
    }
    words.extend(weight.map(|weight| format!("weight {weight}")));
    words.extend(floor.map(|floor| format!("floor {floor}")));
    words.join(", ")
}

fn whole(seconds: u64) -> String {
    duration(f64::from(u32::try_from(seconds).unwrap_or(u32::MAX)))
}

pub(in crate::cli) fn table(all: &[KeyOverride], style: Style) -> String {
    let mut table = Table::new(&[
        Column::text("KEY").rank(0),
        Column::text("LABEL").rank(1),
        Column::text("OVERRIDE").rank(0),
        Column::number("ENDS IN").rank(2),
        Column::text("SET BY").rank(4),
        Column::word("SET AT").rank(5),
        Column::text("REASON").rank(3),
    ]);
    for over in all {
        table.row([
            over.key.clone(),
            or_dash(over.label.as_deref().map(printable)),
            over.invalid.as_ref().map_or_else(|| setting(over.setting), |why| style.red(&format!("invalid: {why}"))),
            or_dash(over.remaining_seconds.map(whole)),
            over.set_by.clone(),
            over.set_at.clone(),
            or_dash(over.reason.as_deref().map(printable)),
        ]);
    }
    table.text(style, "no key has an override")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(setting: KeySetting, remaining_seconds: Option<u64>) -> KeyOverride {
        KeyOverride {
            key: "9f".repeat(16),
            label: Some("batch".into()),
            setting,
            remaining_seconds,
            reason: Some("runaway job".into()),
            set_by: "uid 0".into(),
            set_at: "2026-03-01T12:00:00Z".into(),
            invalid: None,
        }
    }

    #[test]
    fn a_change_says_what_is_and_what_was() {
        let capped = over(KeySetting { cap: Some(5), weight: Some(2), ..KeySetting::default() }, Some(3600));
        let suspended = over(KeySetting { suspend: true, ..KeySetting::default() }, None);
        let change = |before: Option<&KeyOverride>, after: Option<&KeyOverride>| KeyOverrideChange {
            key: capped.key.clone(),
            label: capped.label.clone(),
            before: before.cloned(),
            after: after.cloned(),
            note: None,
        };
        assert_eq!(
            sentence(&change(None, Some(&capped))),
            "key 9f9f9f9f9f9f… \"batch\": cap 5, weight 2 for 1h00m, it was no override\n"
        );
        assert_eq!(
            sentence(&change(Some(&suspended), None)),
            "key 9f9f9f9f9f9f… \"batch\": no override, it was suspended until cleared\n"
        );
    }

    #[test]
    fn the_list_names_who_when_and_why() {
        let all = [
            over(KeySetting { cap: Some(0), ..KeySetting::default() }, Some(90)),
            KeyOverride {
                label: None,
                reason: None,
                ..over(KeySetting { floor: Some(3), ..KeySetting::default() }, None)
            },
        ];
        insta::assert_snapshot!(table(&all, Style::PLAIN), @"
        KEY                               LABEL  OVERRIDE  ENDS IN  SET BY  SET AT                REASON
        9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f  batch  no cap      1m30s  uid 0   2026-03-01T12:00:00Z  runaway job
        9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f9f  -      floor 3         -  uid 0   2026-03-01T12:00:00Z  -
        ");
    }
}
