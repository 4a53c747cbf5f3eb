//! What holds for every declared setting, in every layer.

use super::*;
use crate::config::Base;
use crate::config::layers::{self, Sources};
use crate::config::value::format_duration;

fn path(key: &str) -> Vec<String> {
    key.split('.').map(str::to_owned).collect()
}

#[test]
fn every_default_is_valid_and_every_key_is_unique() {
    let mut seen = std::collections::BTreeSet::new();
    for row in settings() {
        assert!(seen.insert(row.key), "{} stands twice", row.key);
        if let Some(text) = row.default {
            row.kind.parse(&Raw::Bare(text.to_owned())).unwrap_or_else(|why| panic!("{}: {why}", row.key));
        }
    }
}

#[test]
fn every_duration_has_bounds_that_its_default_keeps() {
    for row in settings() {
        let Kind::Duration { min_ms, max_ms } = row.kind else { continue };
        assert!(min_ms < max_ms && max_ms <= 8 * 24 * HOUR, "{}: {min_ms} to {max_ms} ms", row.key);
        for text in ["99999999999h", "0.001ms", &format!("{}ms", max_ms + 1)] {
            let parsed = row.kind.parse(&Raw::Quoted(text.to_owned()));
            let is_zero = text == "0.001ms" && min_ms == 0;
            assert!(is_zero || parsed.is_err(), "{} = {text}: {parsed:?}", row.key);
            let said = parsed.err().unwrap_or_default();
            assert!(is_zero || said.contains(" to ") && said.contains(text), "{}: {said}", row.key);
        }
        let longest = Raw::Quoted(format!("{max_ms}ms"));
        assert!(row.kind.parse(&longest).is_ok(), "{} = {longest}", row.key);
    }
}

#[test]
fn a_slip_is_answered_with_the_nearest_name() {
    assert_eq!(nearest(&path("pools.chat.fair_shar")).as_deref(), Some("fair_share"));
    assert_eq!(nearest(&path("pool")).as_deref(), Some("pools"));
    assert_eq!(nearest(&path("node.max_paralel")).as_deref(), Some("max_parked"));
    assert_eq!(nearest(&path("node.zzz")), None);
}

#[test]
fn names_of_variables_follow_the_key() {
    assert_eq!(variable(&path("pools.chat.fair_share")), "GOVERNOR_POOLS_CHAT_FAIR_SHARE");
    assert_eq!(variable(&path("pools.my-pool.park.max_wait")), "GOVERNOR_POOLS_MY_POOL_PARK_MAX_WAIT");
}

/// Names for the `*` of every section, declared in a file.
const DECLARED: &str = "[pools.NAME.members.NAME]\n[pools.NAME.traffic.NAME]\n[classes.NAME]\n[orgs.NAME]\nid = \"000000000000000000000000000000aa\"\n\
    [keys.NAME]\nid = \"000000000000000000000000000000bb\"\n[cgroups.\"/NAME\"]\n[tuner.listener.\":80\"]\n";

fn instance(row: &Setting) -> Vec<String> {
    let own = match row.key.split('.').next() {
        Some("cgroups") => "/NAME",
        Some("tuner") => ":80",
        _ => "NAME",
    };
    row.key.split('.').map(|part| if part == "*" { own } else { part }.to_owned()).collect()
}

/// What a value comes to that stands in the environment, and in the file.
fn in_layers(row: &Setting, text: &str) -> [Result<Value, String>; 2] {
    let path = instance(row);
    let quoted: Vec<String> = path.iter().map(|part| format!("\"{part}\"")).collect();
    let written = match row.kind {
        Kind::Bool | Kind::Integer { .. } => text.to_owned(),
        Kind::List => format!("{:?}", text.split(',').filter(|word| !word.is_empty()).collect::<Vec<_>>()),
        Kind::Duration { .. }
        | Kind::Choice(_)
        | Kind::Text
        | Kind::FileMode
        | Kind::Listen
        | Kind::FairShare
        | Kind::Headroom
        | Kind::Mode
        | Kind::Identity => format!("{text:?}"),
    };
    let file = format!("{} = {written}\n", quoted.join("."));
    let variable = (variable(&path), text.to_owned());
    let alone = Base::of_text("f", &file, std::iter::empty());
    let environment = Base::of_text("f", DECLARED, [variable].into_iter());
    [environment, alone].map(|base| {
        let base = base.map_err(|error| error.to_string())?;
        let mut warnings = Vec::new();
        let environment = &base.environment.variables;
        let sources = Sources { file_name: "f", file: &base.file, environment, overrides: &[] };
        match layers::merge(sources, &mut warnings) {
            Ok(settings) => Ok(settings[&path].value.clone()),
            Err(problems) => Err(problems.iter().map(ToString::to_string).collect()),
        }
    })
}

#[test]
fn every_value_is_the_same_in_the_file_and_in_the_environment() {
    for row in settings() {
        let expected = row.kind.parse(&Raw::Bare(row.example.to_owned())).unwrap();
        for found in in_layers(row, row.example) {
            assert_eq!(found.as_ref(), Ok(&expected), "{}", row.key);
        }
        let shown = expected.to_string();
        for found in in_layers(row, &shown) {
            assert_eq!(found.as_ref(), Ok(&expected), "{}, as it is shown: {shown}", row.key);
        }
    }
}

#[test]
fn a_value_out_of_bounds_names_key_place_and_bounds_in_every_layer() {
    for row in settings() {
        let (beyond, bounds) = match row.kind {
            Kind::Integer { min, max } => ((u64::from(max) + 1).to_string(), format!("from {min} to {max}")),
            Kind::Duration { max_ms, .. } => {
                let most = format_duration(std::time::Duration::from_millis(max_ms));
                (format!("{}ms", max_ms + 1), format!("to {most}"))
            }
            Kind::Choice(words) => ("neither".to_owned(), words.join(", ")),
            Kind::Bool
            | Kind::Text
            | Kind::FileMode
            | Kind::Listen
            | Kind::List
            | Kind::FairShare
            | Kind::Headroom
            | Kind::Mode
            | Kind::Identity => continue,
        };
        let path = instance(row);
        let [environment, file] = in_layers(row, &beyond).map(Result::unwrap_err);
        for (error, place) in [(environment, variable(&path)), (file, "f:1".to_owned())] {
            assert!(error.contains(&place) && error.contains(&path.join(".")) && error.contains(&bounds), "{error}");
        }
    }
}

#[test]
fn a_slip_in_any_key_is_answered_with_that_key() {
    for row in settings() {
        let mut path = instance(row);
        let name = path.last().cloned().unwrap();
        path.last_mut().unwrap().push('x');
        assert_eq!(nearest(&path), Some(name), "{}", row.key);
    }
}
