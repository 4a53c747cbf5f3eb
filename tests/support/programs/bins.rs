//! Where the programs under test are. They belong to other packages, so cargo does not say: they lie beside the test
//! binary, and `cargo xtask test` builds them first.

use std::path::PathBuf;

/// A binary of the workspace, e.g. `governord`.
///
/// # Panics
/// When it has not been built.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    built(name, "cargo build --bins")
}

/// An example of the workspace, e.g. `gateway`.
///
/// # Panics
/// When it has not been built.
#[must_use]
pub fn example(name: &str) -> PathBuf {
    built(&format!("examples/{name}"), "cargo build --examples")
}

/// The Python that has the official clients.
///
/// # Panics
/// When `cargo xtask setup` could not install them.
#[must_use]
pub fn python() -> PathBuf {
    let python = root().join("target/tools/python/bin/python");
    assert!(python.is_file(), "{} is missing: run `cargo xtask setup`", python.display());
    python
}

/// The workspace's root folder.
#[must_use]
pub fn root() -> PathBuf {
    let mut root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.pop();
    root
}

/// `<profile>/deps/<test>-<hash>` is this program; `<profile>/` has the others.
fn built(relative: &str, command: &str) -> PathBuf {
    let mut path = std::env::current_exe().expect("a running program has a path");
    path.pop();
    path.pop();
    path.push(relative);
    assert!(path.is_file(), "{} is missing: run `cargo xtask test`, or `{command}` first", path.display());
    path
}
