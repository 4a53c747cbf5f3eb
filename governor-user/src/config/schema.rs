//! The table of every setting, made of the declarations in this folder. The file parser, the environment, `config --origin`,
//! the generated files and the run-time overrides all read this one table; nothing else knows a key.

mod daemon;
mod declare;
mod entitlements;
mod form;
mod kernel;
mod node;
mod overload;
mod pools;
mod reader;
mod tuner;

pub(super) use daemon::{Daemon, Switch};
pub(super) use entitlements::{Class, Key, Org, built_in_names};
pub(super) use kernel::{Kernel, Pins};
pub(super) use node::Node;
pub(super) use overload::{Cgroup, Overload};
pub(super) use pools::{Cooldown, Member, Park, Pool, Traffic};
pub(super) use reader::{Entry, Reader, chosen, section_path};
pub(super) use tuner::{Listener, Tuner};

use super::value::{Kind, Raw, Value};
use form::Integer;

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Dotted key; `*` stands for a name the operator chose.
    pub key: &'static str,
    /// Its form.
    pub kind: Kind,
    /// The built-in value as it would be typed; `None`: the setting has no default and may be absent.
    pub default: Option<&'static str>,
    /// The built-in value, or a value for a setting without one.
    pub example: &'static str,
    /// When a new value takes effect.
    pub effect: Effect,
    /// As declared: each line begins with a space.
    doc: &'static str,
}

/// When a new value of a setting takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// At once: `governorctl set` may change it at run time, and a reload too.
    RunTime,
    /// With a reload of file and environment.
    Reload,
    /// When the daemon starts.
    Restart,
}

impl Setting {
    /// What it means, one or two sentences.
    #[must_use]
    pub fn doc(&self) -> &'static str {
        self.doc.trim_start()
    }

    /// Whether `governorctl set` may change it at run time.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.effect == Effect::RunTime
    }

    /// Whether a reload puts a new value in force. Any other value waits for a restart.
    #[must_use]
    pub fn is_reloaded(&self) -> bool {
        self.effect != Effect::Restart
    }
}

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

type Count = Integer<0, 1_000_000>;

/// Every section, in the order of the generated file.
const SECTIONS: [&[Setting]; 15] = [
    Daemon::ROWS,
    Node::ROWS,
    Kernel::ROWS,
    Pool::ROWS,
    Park::ROWS,
    Cooldown::ROWS,
    Traffic::ROWS,
    Member::ROWS,
    Overload::ROWS,
    Cgroup::ROWS,
    Tuner::ROWS,
    Listener::ROWS,
    Class::ROWS,
    Org::ROWS,
    Key::ROWS,
];

/// Every setting, in the order of the generated file.
pub fn settings() -> impl Iterator<Item = &'static Setting> {
    SECTIONS.into_iter().flatten()
}

/// The row a dotted key belongs to.
#[must_use]
pub fn setting(path: &[String]) -> Option<&'static Setting> {
    settings().find(|row| matches(row.key, path))
}

/// Whether some key goes on below this path.
#[must_use]
pub fn is_section(path: &[String]) -> bool {
    settings().any(|row| {
        let mut pattern = row.key.split('.');
        path.iter().all(|part| pattern.next().is_some_and(|want| want == "*" || want == part))
            && pattern.next().is_some()
    })
}

/// Whether the last part of a path is a name that the operator chose.
#[must_use]
pub(super) fn is_name(path: &[String]) -> bool {
    settings().any(|row| {
        let mut pattern = row.key.split('.');
        let mut last = "";
        let fits = |part: &String| {
            last = pattern.next().unwrap_or_default();
            last == "*" || last == part
        };
        path.iter().all(fits) && last == "*"
    })
}

/// The known name closest to the last part of a wrong path, if one is close enough to be a slip.
#[must_use]
pub fn nearest(path: &[String]) -> Option<String> {
    let (wrong, parents) = path.split_last()?;
    let mut names: Vec<&str> = settings()
        .filter_map(|row| {
            let parts: Vec<&str> = row.key.split('.').collect();
            let same_parents = parents.iter().zip(&parts).all(|(have, want)| *want == "*" || have == want);
            (parts.len() > parents.len() && same_parents).then(|| parts[parents.len()])
        })
        .filter(|name| *name != "*")
        .collect();
    names.sort_unstable();
    names.dedup();
    names
        .into_iter()
        .map(|name| (strsim::jaro_winkler(wrong, name), name))
        .filter(|(score, _)| *score > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, name)| name.to_owned())
}

/// The built-in value of a row at this path.
#[must_use]
pub fn default_of(row: &Setting, path: &[String]) -> Option<Value> {
    let text = row.default.map(|text| Raw::Bare(text.to_owned()));
    let value = text.map(|text| row.kind.parse(&text).expect("defaults parse: tested below"));
    value.or_else(|| entitlements::built_in(path))
}

/// The environment variable of a dotted key: `GOVERNOR_` and the key in capitals, every other character as `_`.
#[must_use]
pub fn variable(path: &[String]) -> String {
    let mangle = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let parts: Vec<String> = path.iter().map(|part| part.chars().map(mangle).collect()).collect();
    format!("GOVERNOR_{}", parts.join("_"))
}

fn matches(pattern: &str, path: &[String]) -> bool {
    let mut parts = path.iter();
    pattern.split('.').all(|want| parts.next().is_some_and(|have| want == "*" || want == have))
        && parts.next().is_none()
}

#[cfg(test)]
mod tests;
