//! Rules about the source itself, as plain tests: what a reviewer would otherwise have to look for. Reads the working
//! tree; knows no rule that the compiler or clippy can check.

mod impls;
mod imports;
mod layers;
mod words;

use crate::exec;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders with Rust source.
const FOLDERS: [&str; 5] = ["governor-common", "governor-ebpf", "governor-user", "tests", "xtask"];

/// Longest file in lines, its unit tests not counted.
const MAX_LINES: usize = 800;

/// Where unsafe code may be: layouts shared with the kernel, the shared page, descriptors, map access, socket options
/// that no crate wraps, the programs themselves, and the allocator that counts for a benchmark. A folder stands for
/// everything below it.
const UNSAFE_ISLANDS: [&str; 12] = [
    "governor-common/src/abi",
    "governor-common/src/signal/map.rs",
    "governor-common/src/wire/socket.rs",
    "governor-user/src/transport/fd.rs",
    "governor-user/kernel/src/tables/deferred.rs",
    "governor-user/kernel/src/tables/listening.rs",
    "governor-user/kernel/src/programs/maps.rs",
    "governor-user/kernel/src/sampler/failing_tests.rs",
    "tests/support/options.rs",
    "tests/support/ring.rs",
    "governor-ebpf/src",
    "governor-user/engine/benches/counting.rs",
];

/// Files beside each other in one folder at most.
const MAX_FILES: usize = 15;

/// A Rust file of the workspace.
struct Source {
    /// Relative to the root.
    path: String,
    text: String,
}

impl Source {
    /// The lines before the unit tests.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let tests = self.text.lines().zip(self.text.lines().skip(1)).position(|(line, next)| {
            line.trim() == "#[cfg(test)]" && next.trim_start().starts_with("mod ") && next.ends_with('{')
        });
        self.text.lines().take(tests.unwrap_or(usize::MAX)).enumerate().map(|(index, line)| (index + 1, line))
    }
}

fn sources() -> Vec<Source> {
    let mut paths = Vec::new();
    for folder in FOLDERS {
        collect(&exec::root().join(folder), &mut paths);
    }
    paths.sort();
    assert!(paths.len() > 50, "the source was not found");
    paths
        .into_iter()
        .map(|path| {
            let text = read(&path);
            let path = path.strip_prefix(exec::root()).unwrap().display().to_string();
            Source { path, text }
        })
        .collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            collect(&path, paths);
        } else if name.ends_with(".rs") {
            paths.push(path);
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The workspace's own packages, as cargo sees them.
fn packages() -> Vec<Value> {
    let output = exec::cargo().args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Fails with every offence, not only the first.
fn assert_none(offences: &[String], rule: &str) {
    assert!(offences.is_empty(), "{rule}:\n  {}", offences.join("\n  "));
}

#[test]
fn every_file_says_what_it_owns() {
    let silent: Vec<String> =
        sources().into_iter().filter(|source| !source.text.starts_with("//! ")).map(|source| source.path).collect();
    assert_none(&silent, "a file opens with `//!`: what it owns, what it refuses to know");
}

#[test]
fn no_file_is_longer_than_one_can_read() {
    let long: Vec<String> = sources()
        .iter()
        .filter(|source| !source.path.ends_with("/tests.rs"))
        .map(|source| (source.code().count(), &source.path))
        .filter(|(lines, _)| *lines > MAX_LINES)
        .map(|(lines, path)| format!("{path}: {lines} lines"))
        .collect();
    assert_none(&long, &format!("a file has at most {MAX_LINES} lines without its tests"));
}

#[test]
fn a_mod_file_only_lists_its_modules() {
    let items = ["fn ", "impl ", "struct ", "enum ", "const ", "static ", "trait ", "type ", "macro_rules"];
    let is_item = |line: &str| {
        let bare = line.trim_start_matches("pub(crate) ").trim_start_matches("pub ").trim_start_matches("async ");
        items.iter().any(|item| bare.starts_with(item))
    };
    let full: Vec<String> = sources()
        .iter()
        .filter(|source| source.path.ends_with("/mod.rs") && source.text.lines().any(is_item))
        .map(|source| source.path.clone())
        .collect();
    assert_none(
        &full,
        "mod.rs lists modules; what else it has goes into NAME.rs beside the folder, or into a file of it",
    );
}

#[test]
fn unsafe_code_stays_on_its_islands() {
    // Written in two parts, so that this file does not find itself.
    let words: Vec<String> = [" {", " fn ", " impl ", " extern ", "(no_mangle)", "(link_section"]
        .map(|next| format!("{}{next}", "unsafe"))
        .into();
    let mut found = Vec::new();
    for source in sources().iter().filter(|source| !UNSAFE_ISLANDS.iter().any(|island| source.path.starts_with(island)))
    {
        for (number, line) in source.text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if words.iter().any(|word| code.contains(word)) {
                found.push(format!("{}:{}: {}", source.path, number + 1, line.trim()));
            }
        }
    }
    assert_none(&found, "unsafe code lives only in the files named here");
}

#[test]
fn no_test_is_switched_off() {
    let word = format!("#[{}", "ignore");
    let ignored: Vec<String> =
        sources().into_iter().filter(|source| source.text.contains(&word)).map(|source| source.path).collect();
    assert_none(&ignored, "a test runs or is deleted; what cannot run here says `SKIP:`");
}

#[test]
fn a_folder_has_few_files_beside_each_other() {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for source in sources() {
        let folder = source.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        *counts.entry(folder.to_owned()).or_default() += 1;
    }
    let crowded: Vec<String> = counts
        .into_iter()
        .filter(|(_, count)| *count > MAX_FILES)
        .map(|(folder, count)| format!("{folder}: {count} files"))
        .collect();
    assert_none(
        &crowded,
        &format!("a folder has at most {MAX_FILES} files beside each other: make folders by concept"),
    );
}

#[test]
fn every_crate_is_in_the_map() {
    let map = read(&exec::root().join("ARCHITECTURE.md"));
    let missing: Vec<String> = packages()
        .iter()
        .map(|package| package["name"].as_str().unwrap().to_owned())
        .filter(|name| !map.contains(name.as_str()))
        .collect();
    assert_none(&missing, "ARCHITECTURE.md names every crate");
}

/// A test that forgets the lock fails only beside another one, on the machine of a user.
#[test]
fn every_kernel_test_takes_the_machines_lock() {
    let forgetful: Vec<String> = sources()
        .iter()
        .filter(|source| source.path.starts_with("tests/kernel/"))
        .flat_map(|source| {
            let mut lines = source.text.lines().enumerate();
            let mut found = Vec::new();
            while lines.by_ref().any(|(_, line)| line == "#[test]") {
                let Some((number, _)) = lines.by_ref().find(|(_, line)| line.ends_with('{')) else { break };
                if lines.next().is_none_or(|(_, line)| line.trim() != "let _machine = support::alone();") {
                    found.push(format!("{}:{}", source.path, number + 1));
                }
            }
            found
        })
        .collect();
    assert_none(&forgetful, "a test in tests/kernel begins with `let _machine = support::alone();`");
}

#[test]
fn every_test_target_is_run() {
    let runner = read(&exec::root().join("xtask/src/test.rs")) + &read(&exec::root().join("xtask/src/test/pingora.rs"));
    let mut offences = Vec::new();
    for package in packages() {
        for target in package["targets"].as_array().expect("a package has targets") {
            let (name, is_test) = (target["name"].as_str().expect("a name"), target["kind"][0] == "test");
            if is_test && !runner.contains(&format!("\"{name}\"")) {
                offences.push(format!("{} of {}", name, package["name"]));
            }
        }
    }
    assert_none(&offences, "a test target that no step of `cargo xtask test` runs");
}
