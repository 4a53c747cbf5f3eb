//! `governorctl set` and `unset`: run-time overrides of settings.

use crate::cli::answer::{Answer, Error};
use crate::cli::asking::client::escaped;
use crate::cli::node::config::layer;
use crate::cli::run::Ctl;
use crate::cli::text::render::value;
use governor_api::{Setting, SettingChange};
use hyper::Method;
use serde_json::Value;

/// Sets an override.
pub(in crate::cli) fn set(ctl: &Ctl, key: &str, value: &str) -> Result<Answer, Error> {
    let setting = Setting { value: typed(value) };
    let change: SettingChange = ctl.client.send(Method::PUT, &path(key), &setting)?;
    Ok(ctl.show(&change, |change, _| sentence(change)))
}

/// Removes an override, so that the layer below shows again.
pub(in crate::cli) fn unset(ctl: &Ctl, key: &str) -> Result<Answer, Error> {
    let change: SettingChange = ctl.client.delete(&path(key))?;
    Ok(ctl.show(&change, |change, _| sentence(change)))
}

fn path(key: &str) -> String {
    format!("/v1/settings/{}", escaped(key))
}

/// What was typed as the JSON that a file would hold: whole numbers and truth values are themselves, all else is text.
/// Only a number in its usual form is one: `0660` is a file mode.
fn typed(text: &str) -> Value {
    match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => match text.parse::<i64>() {
            Ok(number) if number.to_string() == text => number.into(),
            Ok(_) | Err(_) => text.into(),
        },
    }
}

fn sentence(change: &SettingChange) -> String {
    format!(
        "{} is now {} ({}), it was {}\n",
        change.key,
        value(&change.value),
        layer(change.origin),
        value(&change.previous)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_api::Origin;
    use serde_json::json;

    #[test]
    fn typed_values_have_the_type_a_file_would_give_them() {
        for (text, expect) in [
            ("80", json!(80)),
            ("-1", json!(-1)),
            ("off", json!("off")),
            ("true", json!(true)),
            ("30s", json!("30s")),
            ("0660", json!("0660")),
            ("80.5", json!("80.5")),
            ("", json!("")),
        ] {
            assert_eq!(typed(text), expect, "{text:?}");
        }
    }

    #[test]
    fn a_change_says_what_was_and_what_is() {
        let change = SettingChange {
            key: "pools.chat.fair_share".into(),
            value: json!(80),
            origin: Origin::Override,
            previous: json!("off"),
        };
        assert_eq!(sentence(&change), "pools.chat.fair_share is now 80 (override), it was off\n");
    }
}
