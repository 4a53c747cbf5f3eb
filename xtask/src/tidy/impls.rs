//! Where the `impl` blocks of a type stand: in its own file, or in one folder with it.

use super::{Source, assert_none, sources};
use std::collections::BTreeMap;

#[test]
fn a_type_and_what_it_does_are_in_one_folder() {
    assert_none(&scattered(&sources()), "an impl block is in the file of its type or in a folder with it");
}

/// Inherent impl blocks outside the folder of their type. A file at the top of a crate owns the folder of its own name.
fn scattered(sources: &[Source]) -> Vec<String> {
    let mut homes: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for source in sources {
        for (_, line) in source.code() {
            if let Some(name) = defined(line) {
                homes.entry((crate_of(&source.path), name)).or_default().push(home(&source.path));
            }
        }
    }
    let mut found = Vec::new();
    for source in sources {
        for (number, line) in source.code() {
            let Some(name) = implemented(line) else { continue };
            let Some(homes) = homes.get(&(crate_of(&source.path), name)) else { continue };
            let at_home = homes.iter().any(|home| source.path.starts_with(home));
            if !at_home {
                found.push(format!("{}:{number}: impl {name}, which is defined in {}", source.path, homes.join(", ")));
            }
        }
    }
    found
}

/// Everything before `src/` or, in a package without one, the top folder.
fn crate_of(path: &str) -> &str {
    path.split_once("src/").map_or_else(|| path.split('/').next().unwrap_or_default(), |(folder, _)| folder)
}

/// The folder that a type's impl blocks may be in: the one its file is in, or the one that its file is the head of.
fn home(path: &str) -> &str {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    if folder.ends_with("/src") { path.trim_end_matches(".rs") } else { folder }
}

fn defined(line: &str) -> Option<&str> {
    let bare = match line.strip_prefix("pub(") {
        Some(within) => within.split_once(") ")?.1,
        None => line.strip_prefix("pub ").unwrap_or(line),
    };
    name(bare.strip_prefix("struct ").or_else(|| bare.strip_prefix("enum "))?)
}

/// The type of an inherent impl block.
fn implemented(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(generic) => generic.split_once("> ")?.1,
        None => rest.strip_prefix(' ')?,
    };
    if rest.contains(" for ") { None } else { name(rest) }
}

fn name(rest: &str) -> Option<&str> {
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())
}

#[test]
fn an_impl_block_in_another_folder_is_found() {
    let file = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let sources = [
        file("user/a/src/engine.rs", "pub struct Engine {\nimpl Engine {\n"),
        file("user/a/src/engine/admit.rs", "impl Engine {\nimpl Default for Other {\n"),
        file("user/a/src/pools/pool.rs", "pub(crate) struct Pool<T> {\n"),
        file("user/a/src/pools/views/one.rs", "impl<T> Pool<T> {\n"),
        file("user/a/src/waiting/wake.rs", "impl Engine {\n"),
        file("user/b/src/waiting/wake.rs", "impl Engine {\n"),
    ];
    assert_eq!(
        scattered(&sources),
        ["user/a/src/waiting/wake.rs:1: impl Engine, which is defined in user/a/src/engine"]
    );
}
