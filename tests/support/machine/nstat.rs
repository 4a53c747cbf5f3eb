//! What `nstat` says of a namespace's counters: the second opinion that observations are held against.

use crate::machine::netns::Netns;
use std::process::Command;

/// The counters with these names (`TcpExtListenDrops`), in this order, since the namespace exists.
///
/// # Panics
/// When `nstat` does not run or does not know one.
#[must_use]
pub fn counters(namespace: &Netns, names: &[&str]) -> Vec<u64> {
    let table = table(namespace);
    let counter = |name: &&str| value(&table, name).unwrap_or_else(|| panic!("nstat shows no {name}: {table}"));
    names.iter().map(counter).collect()
}

/// Whether the kernel keeps a counter of this name.
///
/// # Panics
/// When `nstat` does not run.
#[must_use]
pub fn knows(namespace: &Netns, name: &str) -> bool {
    value(&table(namespace), name).is_some()
}

fn value(table: &str, name: &str) -> Option<u64> {
    let row = table.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    row.split_whitespace().nth(1)?.parse().ok()
}

fn table(namespace: &Netns) -> String {
    let output = Command::new("ip")
        .args(["netns", "exec", namespace.name(), "nstat", "-asz"])
        .output()
        .expect("ip and nstat are installed");
    assert!(output.status.success(), "nstat failed: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("nstat prints text")
}
