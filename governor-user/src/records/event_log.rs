//! How an event reads in the log: at which level, by its meaning, and its values as plain words. Pure.

use crate::records::audit::ITSELF;
use governor_api::Event;
use serde_json::Value;
use tracing::Level;

/// A change to the worse is a warning; recoveries and what operators set are information.
pub(crate) fn level(event: &Event) -> Level {
    let state = |value: &Value| value.as_str().map(str::to_owned).unwrap_or_default();
    let (before, after) = (state(&event.before), state(&event.after));
    let worse = match event.action.as_str() {
        // Every limit is off, also by an operator's order.
        "bypass" => after.starts_with("on"),
        "level" | "shed level" => rank(&after) > rank(&before),
        "tune stand_down" => true,
        _ if event.by != ITSELF => false,
        "key-expired" => false,
        action if action.starts_with("tune ") => false,
        _ => !matches!(after.as_str(), "" | "ok" | "up" | "normal" | "off"),
    };
    if worse { Level::WARN } else { Level::INFO }
}

fn rank(level: &str) -> usize {
    ["normal", "elevated", "high", "overloaded"].iter().position(|name| *name == level).unwrap_or(0)
}

/// A value without JSON: `cap=5 suspend=false`, `high`, `-` for none.
pub(crate) fn words(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(all) => all.iter().map(words).collect::<Vec<_>>().join(","),
        Value::Object(fields) => {
            let set = fields.iter().filter(|(_, value)| !value.is_null());
            set.map(|(name, value)| format!("{name}={}", words(value))).collect::<Vec<_>>().join(" ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(by: &str, action: &str, before: Value, after: Value) -> Event {
        Event {
            at: String::new(),
            at_seconds: 0,
            by: by.to_owned(),
            action: action.to_owned(),
            subject: String::new(),
            before,
            after,
            reason: None,
        }
    }

    #[test]
    fn recoveries_and_orders_are_information_and_trouble_a_warning() {
        for (by, action, before, after, expected) in [
            (ITSELF, "verdict", json!("ok"), json!("acceptor_stalled"), Level::WARN),
            (ITSELF, "verdict", json!("acceptor_stalled"), json!("ok"), Level::INFO),
            (ITSELF, "level", json!("normal"), json!("high"), Level::WARN),
            (ITSELF, "level", json!("overloaded"), json!("elevated"), Level::INFO),
            (ITSELF, "shed level", json!("high"), json!("normal"), Level::INFO),
            ("uid 0", "bypass", json!("off"), json!("on for 1800 s"), Level::WARN),
            (ITSELF, "bypass", json!("on"), json!("off"), Level::INFO),
            ("uid 0", "set", json!("off"), json!(80), Level::INFO),
            (ITSELF, "tune raise", json!(5), json!(155), Level::INFO),
            (ITSELF, "tune stand_down", json!(5), json!(155), Level::WARN),
            (ITSELF, "key-expired", json!({ "cap": 5 }), Value::Null, Level::INFO),
        ] {
            assert_eq!(level(&event(by, action, before, after)), expected, "{action}");
        }
    }

    #[test]
    fn a_value_has_no_json() {
        let setting = json!({ "cap": 5, "floor": null, "set_by": "uid 0", "hosts": ["a", "b"] });
        let text = words(&setting);
        assert!(text.split(' ').any(|word| word == "cap=5") && text.contains("hosts=a,b"), "{text}");
        assert!(!text.contains(['{', '"', '[']) && !text.contains("floor"), "{text}");
        assert_eq!((words(&Value::Null).as_str(), words(&json!("high")).as_str()), ("-", "high"));
    }
}
