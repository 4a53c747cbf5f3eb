//! What an order makes of the override that a key has: fields the order does not name stay as they are. Pure.

use super::reason::plain;
use crate::driver::operator::key_overrides::KeyOverride;
use governor_api::{KeyField, KeyOverrideRequest, KeySetting};

/// What holds after an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Merged {
    /// What is set; nothing (the default) where every field was removed.
    pub(crate) setting: KeySetting,
    /// When it ends, in seconds since 1970.
    pub(crate) until: Option<u64>,
    /// The operator's words.
    pub(crate) reason: Option<String>,
}

/// Applies an order at `wall` (seconds since 1970) to the override that holds, if one does.
///
/// # Errors
/// A field is to be removed that is not set, or set and removed at once; the message names it.
pub(crate) fn merged(before: Option<&KeyOverride>, order: &KeyOverrideRequest, wall: u64) -> Result<Merged, String> {
    let mut now = before.map_or_else(
        || Merged { setting: KeySetting::default(), until: None, reason: None },
        |kept| Merged { setting: kept.setting, until: kept.until, reason: kept.reason.clone() },
    );
    for field in &order.unset {
        let KeySetting { cap, weight, floor, suspend } = &mut now.setting;
        let (was_set, is_ordered) = match field {
            KeyField::Cap => (cap.take().is_some(), order.cap.is_some()),
            KeyField::Weight => (weight.take().is_some(), order.weight.is_some()),
            KeyField::Floor => (floor.take().is_some(), order.floor.is_some()),
            KeyField::Suspend => (std::mem::take(suspend), order.suspend == Some(true)),
            KeyField::End => (now.until.take().is_some(), order.for_seconds.is_some()),
        };
        let name = field.as_str();
        match (was_set, is_ordered) {
            (_, true) => return Err(format!("{name} is both set and unset")),
            (false, _) => return Err(format!("its override has no {name} to unset")),
            (true, false) => {}
        }
    }
    now.setting.cap = order.cap.or(now.setting.cap);
    now.setting.weight = order.weight.or(now.setting.weight);
    now.setting.floor = order.floor.or(now.setting.floor);
    now.setting.suspend = order.suspend.unwrap_or(now.setting.suspend);
    now.until = order.for_seconds.map(|seconds| wall.saturating_add(seconds)).or(now.until);
    if let Some(reason) = &order.reason {
        now.reason = Some(plain(reason));
    }
    Ok(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capped() -> KeyOverride {
        KeyOverride {
            key: "9f".repeat(16),
            label: None,
            setting: KeySetting { cap: Some(5), ..KeySetting::default() },
            until: Some(1000),
            reason: Some("runaway".into()),
            set_by: "uid 0".into(),
            set_at: "2026-01-01T00:00:00Z".into(),
        }
    }

    #[test]
    fn fields_that_are_not_named_stay() {
        let order = KeyOverrideRequest { floor: Some(2), ..KeyOverrideRequest::default() };
        let now = merged(Some(&capped()), &order, 100).unwrap();
        assert_eq!(now.setting, KeySetting { cap: Some(5), floor: Some(2), ..KeySetting::default() });
        assert_eq!((now.until, now.reason.as_deref()), (Some(1000), Some("runaway")));
        let order = KeyOverrideRequest { cap: Some(7), for_seconds: Some(60), ..KeyOverrideRequest::default() };
        let now = merged(Some(&capped()), &order, 100).unwrap();
        assert_eq!((now.setting.cap, now.until), (Some(7), Some(160)));
    }

    #[test]
    fn single_fields_are_removed() {
        let order = KeyOverrideRequest {
            suspend: Some(true),
            unset: vec![KeyField::Cap, KeyField::End],
            ..KeyOverrideRequest::default()
        };
        let now = merged(Some(&capped()), &order, 100).unwrap();
        assert_eq!((now.setting, now.until), (KeySetting { suspend: true, ..KeySetting::default() }, None));
        let unset = |unset, order: KeyOverrideRequest| {
            merged(Some(&capped()), &KeyOverrideRequest { unset: vec![unset], ..order }, 100)
        };
        assert_eq!(unset(KeyField::Cap, KeyOverrideRequest::default()).unwrap().setting, KeySetting::default());
        let missing = unset(KeyField::Floor, KeyOverrideRequest::default()).unwrap_err();
        assert!(missing.contains("no floor"), "{missing}");
        let both = unset(KeyField::Cap, KeyOverrideRequest { cap: Some(1), ..KeyOverrideRequest::default() });
        assert!(both.unwrap_err().contains("both"));
    }
}
