//! The guide says what the code does.

use governor_client::http::EXPOSED_HEADERS;
use governor_client::http::routes::{COUNTED, COUNTED_SOCKETS, EXEMPT, EXEMPT_BELOW, EXEMPT_STREAMS};
use std::collections::BTreeSet;

const GUIDE: &str = include_str!("../../src/guide.md");
const README: &str = include_str!("../../../../README.md");
const EXAMPLE: &str = include_str!("../../examples/quickstart.rs");

/// The part of the guide under this heading.
fn section(title: &str) -> &'static str {
    let (_, rest) = GUIDE.split_once(&format!("\n\n# {title}\n")).unwrap_or_else(|| panic!("no section {title:?}"));
    rest.split("\n\n# ").next().unwrap()
}

/// Everything in backticks.
fn quoted(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn its_ten_lines_are_those_of_the_example_that_the_tests_run() {
    let lines: Vec<&str> = EXAMPLE
        .lines()
        .skip_while(|line| !line.ends_with("// guide: begin"))
        .skip(1)
        .take_while(|line| !line.ends_with("// guide: end"))
        .map(|line| line.strip_prefix("    ").unwrap())
        .collect();
    assert_eq!(lines.len(), 10);
    let section = section("Ten lines");
    for text in [section, README] {
        assert!(text.contains(&lines.join("\n")), "guide and README show {lines:#?}");
    }
    for number in 1..=10 {
        assert!(section.contains(&format!("\n| {number} | ")), "line {number} is explained");
    }
}

/// Versions that it names are those that the tests ran with.
#[test]
fn its_dependencies_are_those_of_the_workspace() {
    let manifest = include_str!("../../../../Cargo.toml");
    let shown = section("Ten lines");
    for name in ["axum", "tokio"] {
        let version = |text: &str| {
            let line = text.lines().find(|line| line.starts_with(&format!("{name} = "))).unwrap();
            line.split('"').nth(1).unwrap().to_owned()
        };
        assert_eq!(version(shown), version(manifest), "{name}");
        assert!(name != "axum" || shown.contains(&format!("on axum {} ", version(manifest))));
    }
    let (_, rust) = manifest.split_once("rust-version = \"").unwrap();
    assert!(shown.contains(&format!("(Rust {} or newer", &rust[..rust.find('"').unwrap()])));
}

#[test]
fn its_table_of_routes_is_the_one_that_counts() {
    let section = section("Which requests count");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let shown: BTreeSet<(&str, &str)> = rows
        .map(|row| {
            let (path, rest) = row.split_once('`').unwrap();
            (path, rest.trim_end_matches(" |").rsplit("| ").next().unwrap())
        })
        .collect();
    assert_eq!(shown, COUNTED.iter().chain(COUNTED_SOCKETS).copied().collect());
    let after = section.rsplit_once(" |\n").unwrap().1;
    let named: BTreeSet<&str> = quoted(after).filter(|name| name.starts_with('/')).collect();
    assert_eq!(named, EXEMPT.iter().chain(EXEMPT_BELOW).chain(EXEMPT_STREAMS).copied().collect());
}

#[test]
fn every_header_of_a_refusal_is_explained() {
    let explained: BTreeSet<String> = quoted(section("How to read a refusal")).map(str::to_ascii_lowercase).collect();
    for header in EXPOSED_HEADERS {
        assert!(explained.contains(header.as_str()), "{header}");
    }
}
