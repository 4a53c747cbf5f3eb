//! The layers: what each crate may depend on, and that the modules of a crate do not depend on each other in circles.

use super::{Source, assert_none, packages, sources};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What each library may depend on, apart from its tests. The pure ones have nothing that does I/O, reads a clock or starts
/// a thread; what a proxy links has no kernel code.
const ALLOWED: [(&str, &[&str]); 7] = [
    ("governor-common", &["aya", "bytemuck", "bytes", "rustix", "thiserror", "tokio"]),
    ("governor-engine", &["thiserror"]),
    ("governor-observation", &["serde"]),
    ("governor-health", &["governor-common", "governor-engine", "governor-observation", "serde"]),
    ("governor-api", &["governor-health", "governor-observation", "serde", "serde_json"]),
    (
        "governor-kernel",
        &[
            "anyhow",
            "aya",
            "aya-log",
            "bytemuck",
            "governor-common",
            "governor-observation",
            "libc",
            "log",
            "netlink-packet-core",
            "netlink-packet-sock-diag",
            "netlink-sys",
            "procfs",
            "rustix",
            "serde",
            "serde_json",
            "sha2",
            "thiserror",
            "tokio",
            "tracing",
        ],
    ),
    (
        "governor-client",
        &[
            "axum",
            "bytes",
            "governor-common",
            "hmac",
            "http",
            "http-body",
            "hyper",
            "jiff",
            "pin-project-lite",
            "rand",
            "rustix",
            "serde_json",
            "sha2",
            "thiserror",
            "tokio",
            "tower",
            "tracing",
        ],
    ),
];

/// Crates whose top-level modules depend on each other in one direction.
const LAYERED: [&str; 10] = [
    "governor-common/src/",
    "governor-ebpf/src/",
    "governor-user/api/src/",
    "governor-user/client/src/",
    "governor-user/engine/src/",
    "governor-user/health/src/",
    "governor-user/kernel/src/",
    "governor-user/observation/src/",
    "governor-user/src/",
    "xtask/src/",
];

#[test]
fn a_crate_depends_only_on_what_its_layer_may() {
    let packages = packages();
    let mut foreign = Vec::new();
    for (name, allowed) in ALLOWED {
        let package = packages.iter().find(|package| package["name"] == name).expect("the crate is in the workspace");
        let normal = package["dependencies"].as_array().expect("a list").iter().filter(|one| one["kind"].is_null());
        let names = normal.map(|dependency: &Value| dependency["name"].as_str().expect("a name"));
        foreign.extend(names.filter(|one| !allowed.contains(one)).map(|one| format!("{name}: {one}")));
    }
    assert_none(&foreign, "a dependency that is not in the list of its crate");
}

#[test]
fn the_modules_of_a_crate_depend_on_each_other_in_one_direction() {
    let sources = sources();
    let circles: Vec<String> = LAYERED
        .iter()
        .flat_map(|crate_folder| {
            circles(&edges(&sources, crate_folder)).into_iter().map(move |one| (crate_folder, one))
        })
        .map(|(crate_folder, circle)| format!("{crate_folder}: {}", circle.join(" → ")))
        .collect();
    assert_none(&circles, "modules that depend on each other in a circle");
}

/// Which top-level module names which other one, by `crate::NAME`. Test code may look anywhere.
fn edges(sources: &[Source], crate_folder: &str) -> BTreeMap<String, BTreeSet<String>> {
    let within = || sources.iter().filter_map(|one| Some((one, one.path.strip_prefix(crate_folder)?)));
    let modules: BTreeSet<&str> = within().map(|(_, path)| top(path)).collect();
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (source, path) in within().filter(|(_, path)| !path.ends_with("tests.rs") && !path.starts_with("bin/")) {
        let from = top(path);
        for (_, line) in source.code() {
            let code = line.split("//").next().unwrap_or_default();
            for (at, found) in code.match_indices("crate::") {
                if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
                    continue;
                }
                let named = names(&code[at + found.len()..]);
                let others = named.filter(|name| *name != from && modules.contains(name)).map(str::to_owned);
                edges.entry(from.to_owned()).or_default().extend(others);
            }
        }
    }
    edges
}

/// The modules named after `crate::`: one, or those of a list in braces on the same line.
fn names(rest: &str) -> impl Iterator<Item = &str> {
    let list = rest.strip_prefix('{').map_or(rest, |list| list.split('}').next().unwrap_or_default());
    let all = if list.len() == rest.len() { 1 } else { usize::MAX };
    let end = |c: char| !c.is_alphanumeric() && c != '_';
    list.split(',').take(all).map(move |path| path.trim().split(end).next().unwrap_or_default())
}

fn top(path: &str) -> &str {
    path.split('/').next().unwrap_or_default().trim_end_matches(".rs")
}

/// One circle for each module that reaches itself, the shortest way.
fn circles(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let mut found: BTreeMap<Vec<String>, Vec<String>> = BTreeMap::new();
    for start in edges.keys() {
        let mut ways = vec![vec![start.clone()]];
        let mut seen = BTreeSet::new();
        while !ways.is_empty() {
            let mut longer = Vec::new();
            for way in ways {
                for next in edges.get(way.last().expect("a way has a start")).into_iter().flatten() {
                    if next == start {
                        let mut members = way.clone();
                        members.sort();
                        found.entry(members).or_insert_with(|| way.iter().chain([start]).cloned().collect());
                    } else if seen.insert(next.clone()) {
                        longer.push(way.iter().chain([next]).cloned().collect());
                    }
                }
            }
            ways = longer;
        }
    }
    found.into_values().collect()
}

#[test]
fn a_circle_is_found_and_a_chain_is_none() {
    let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let mut sources = vec![
        source("c/src/a.rs", "use crate::b::X;\n// crate::c\n"),
        source("c/src/b/mod.rs", "use crate::{c, d};\n"),
        source("c/src/c.rs", "fn f() { other_crate::a(); }\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n"),
    ];
    assert!(circles(&edges(&sources, "c/src/")).is_empty());
    sources.push(source("c/src/c/below.rs", "fn g() { crate::a::h() }\n"));
    assert_eq!(circles(&edges(&sources, "c/src/")), [["a", "b", "c", "a"]]);
}
