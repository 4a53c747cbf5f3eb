//! Values that a shell completes: names of pools, keys, settings and listeners, asked of the daemon while the user types.
//! Without a daemon, or with a slow one, there are none; settings without a name in them are known anyway.

use crate::cli::asking::client::Client;
use crate::cli::text::render::printable;
use crate::config::schema;
use crate::config::value::identity;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use governor_api::{ConfigEntry, DEFAULT_SOCKET, Key, KeyOverride, ListenerRow, MemberRow, Pool};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A shell that completes does not wait longer for the daemon.
const PATIENCE: Duration = Duration::from_millis(500);

/// Values offered at most.
const MOST: usize = 1000;

/// What completes the values of an argument of a subcommand, if the daemon knows them.
pub(in crate::cli) fn of(subcommand: &str, argument: &str) -> Option<ArgValueCandidates> {
    let names: fn() -> BTreeSet<String> = match (subcommand, argument) {
        (_, "pool") => pools,
        ("member", "member") => members,
        ("key", "key") | ("refusals", "key") => keys,
        ("set" | "unset", "key") => settings,
        ("listener", "place") | ("enforce" | "observe" | "clear" | "restore" | "resume", "listener") => listeners,
        _ => return None,
    };
    let candidates = move || names().into_iter().take(MOST).map(CompletionCandidate::new).collect();
    Some(ArgValueCandidates::new(candidates))
}

fn pools() -> BTreeSet<String> {
    ask::<Vec<Pool>>("/v1/pools").into_iter().flatten().map(|pool| pool.name).collect()
}

/// As `governorctl member` takes them.
fn members() -> BTreeSet<String> {
    let rows = ask::<Vec<MemberRow>>("/v1/members").into_iter().flatten();
    rows.map(|row| format!("{}/{}", row.pool, row.name)).collect()
}

/// Labels where there are some that can be typed and do not look like a hash; keyed hashes elsewhere.
fn keys() -> BTreeSet<String> {
    let name = |key: String, label: Option<String>| {
        label.filter(|label| printable(label) == *label && identity(label).is_none()).unwrap_or(key)
    };
    let active = ask::<Vec<Key>>("/v1/keys").into_iter().flatten().map(|key| name(key.key, key.label));
    let set = ask::<Vec<KeyOverride>>("/v1/overrides").into_iter().flatten();
    active.chain(set.map(|over| name(over.key, over.label))).collect()
}

fn settings() -> BTreeSet<String> {
    let known = schema::settings().filter(|setting| setting.is_live() && !setting.key.contains('*'));
    let mut names: BTreeSet<String> = known.map(|setting| setting.key.to_owned()).collect();
    let live = |key: &str| {
        schema::setting(&key.split('.').map(str::to_owned).collect::<Vec<_>>()).is_some_and(schema::Setting::is_live)
    };
    let entries = ask::<Vec<ConfigEntry>>("/v1/config").into_iter().flatten();
    names.extend(entries.map(|entry| entry.key).filter(|key| live(key)));
    names
}

fn listeners() -> BTreeSet<String> {
    let rows = ask::<Vec<ListenerRow>>("/v1/listeners").into_iter().flatten();
    rows.map(|row| SocketAddr::new(row.listener.address, row.listener.port).to_string()).collect()
}

fn ask<T: serde::de::DeserializeOwned>(path: &str) -> Option<T> {
    Client::new(socket(std::env::args_os().collect())).ok()?.patience(PATIENCE).get(path).ok()
}

/// The socket named on the line that is being completed, else by the environment, else the usual one.
fn socket(line: Vec<OsString>) -> PathBuf {
    let named = line.iter().skip_while(|word| *word != "--socket").nth(1).cloned();
    let joined = line.iter().find_map(|word| Some(OsString::from(word.to_str()?.strip_prefix("--socket=")?)));
    let environment = std::env::var_os("GOVERNOR_DAEMON_CONTROL_SOCKET");
    named.or(joined).or(environment).map_or_else(|| PathBuf::from(DEFAULT_SOCKET), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_known_without_a_daemon() {
        let names = settings();
        assert!(names.contains("node.cap") && !names.contains("daemon.socket"), "{names:?}");
    }

    #[test]
    fn the_socket_of_the_line_is_asked() {
        let line = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(socket(line(&["governorctl", "--socket", "/run/a.sock", "keys"])), PathBuf::from("/run/a.sock"));
        assert_eq!(socket(line(&["governorctl", "--socket=/run/b.sock", "keys"])), PathBuf::from("/run/b.sock"));
    }

    #[test]
    fn arguments_without_names_have_none() {
        assert!(of("events", "last").is_none() && of("keys", "pool").is_some() && of("set", "value").is_none());
    }
}
