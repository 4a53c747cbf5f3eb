//! The table of every setting: its key, form, default and meaning. The file parser, the environment, `config --origin`,
//! the generated `governor.toml` and the run-time overrides all read this one table; nothing else knows a key.

mod entitlements;
mod overload;
mod tuner;

use super::value::{Kind, Raw, Value};
use governor_common::abi::MAX_LISTENERS;

pub(super) use entitlements::built_in_names;

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Dotted key; `*` stands for a name the operator chose.
    pub key: &'static str,
    /// Its form.
    pub kind: Kind,
    /// The built-in value as it would be typed; `None`: the setting has no default and may be absent.
    pub default: Option<&'static str>,
    /// Whether `governorctl set` may change it at run time.
    pub live: bool,
    /// Whether a reload puts a new value in force. Any other value waits for a restart.
    pub reloaded: bool,
    /// What it means, one sentence.
    pub doc: &'static str,
}

const fn fixed(key: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Setting {
    Setting { key, kind, default: Some(default), live: false, reloaded: false, doc }
}

const fn live(key: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Setting {
    Setting { key, kind, default: Some(default), live: true, reloaded: true, doc }
}

const fn optional(key: &'static str, kind: Kind, doc: &'static str) -> Setting {
    Setting { key, kind, default: None, live: false, reloaded: false, doc }
}

const fn live_optional(key: &'static str, kind: Kind, doc: &'static str) -> Setting {
    Setting { key, kind, default: None, live: true, reloaded: true, doc }
}

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

/// A duration from `min_ms` to `max_ms` milliseconds.
const fn duration(min_ms: u64, max_ms: u64) -> Kind {
    Kind::Duration { min_ms, max_ms }
}

const COUNT: Kind = Kind::Integer { min: 0, max: 1_000_000 };

/// Every setting, in the order of the generated file.
pub fn settings() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().chain(overload::ROWS).chain(tuner::ROWS).chain(entitlements::ROWS)
}

const SETTINGS: &[Setting] = &[
    fixed("daemon.socket", Kind::Text, "/run/governor/proxy.sock", "Unix socket that proxies connect to."),
    fixed("daemon.socket_mode", Kind::FileMode, "0660", "File mode of the proxy socket, octal."),
    fixed("daemon.socket_group", Kind::Text, "", "Group of the proxy socket; empty leaves the daemon's own."),
    fixed(
        "daemon.allow_users",
        Kind::List,
        "",
        "Users (names or numeric ids) whose processes may open a proxy session; empty: every user the socket's mode lets in.",
    ),
    fixed(
        "daemon.control_socket",
        Kind::Text,
        "/run/governor/control.sock",
        "Unix socket of the control API (HTTP/JSON); writing to it needs root or the daemon's own user.",
    ),
    fixed("daemon.control_mode", Kind::FileMode, "0660", "File mode of the control socket, octal."),
    fixed(
        "daemon.control_group",
        Kind::Text,
        "",
        "Group that may read the control API; empty leaves the daemon's own.",
    ),
    fixed(
        "daemon.state_dir",
        Kind::Text,
        "/var/lib/governor",
        "Folder for run-time overrides, the bypass switch, decisions and recorded demand.",
    ),
    fixed(
        "daemon.record",
        Kind::Choice(&["on", "off"]),
        "on",
        "Record who asked when and how long it ran (keyed hashes only), for governorctl advise.",
    ),
    fixed(
        "daemon.record_mib",
        Kind::Integer { min: 1, max: 65_536 },
        "64",
        "Recorded demand on disk at most, in MiB; some 10,000 requests each.",
    ),
    fixed(
        "daemon.metrics_listen",
        Kind::Listen,
        "127.0.0.1:9464",
        "Address of /metrics and /healthz; \"off\" opens none.",
    ),
    fixed(
        "daemon.metrics_socket",
        Kind::Text,
        "",
        "Unix socket of /metrics and /healthz, with the mode and group of the control socket; empty opens none.",
    ),
    fixed(
        "daemon.max_sessions",
        Kind::Integer { min: 1, max: 65_536 },
        "1024",
        "Proxy connections at most; fewer where the limit of descriptors leaves room for fewer.",
    ),
    fixed(
        "daemon.max_sessions_per_uid",
        Kind::Integer { min: 1, max: 65_536 },
        "512",
        "Proxy connections of one user at most, so that no user takes those of others.",
    ),
    live("daemon.drain_timeout", duration(0, 10 * MINUTE), "2s", "How long a stop waits for leases to end."),
    live("node.cap", COUNT, "1000", "Counted requests, granted or parked, at most; 0 disables the cap."),
    live("node.max_parked", COUNT, "500", "Parked requests of all pools at most; over it the answer is 529."),
    live("node.lease_ttl", duration(1000, HOUR), "30s", "A lease that is not renewed for this long expires."),
    live(
        "node.session_grace",
        duration(0, HOUR),
        "5s",
        "How long leases outlive a broken connection whose process may still live.",
    ),
    live(
        "node.reclaim_grace",
        duration(0, HOUR),
        "10s",
        "How long a lease that ends with its client outlives the client's connection.",
    ),
    live(
        "node.caps_mode",
        Kind::Mode,
        "observe",
        "Whether caps of keys, orgs and classes refuse (429) or only record what they would have refused.",
    ),
    live("node.default_class", Kind::Text, "", "Class of requests that name none; empty: none."),
    fixed(
        "kernel.tier",
        Kind::Choice(&["auto", "tracepoint", "netlink", "procfs"]),
        "auto",
        "How the kernel is observed; auto takes the best tier that passes its self-test.",
    ),
    fixed(
        "kernel.require",
        Kind::Choice(&["none", "procfs", "netlink", "tracepoint", "trampoline"]),
        "none",
        "Refuse to start on a lower tier than this.",
    ),
    fixed("kernel.tick", duration(10, 10_000), "100ms", "How often listeners are read."),
    fixed("kernel.audit", duration(100, HOUR), "10s", "How often counts are compared with the kernel's truth."),
    fixed(
        "kernel.max_listeners",
        Kind::Integer { min: 1, max: MAX_LISTENERS },
        "16384",
        "Listeners whose totals are tracked; more are shown without them and counted as untracked.",
    ),
    fixed(
        "kernel.pins",
        Kind::Choice(&["auto", "off", "require"]),
        "auto",
        "Pin programs and maps, so that a restart after a crash loses no count; require refuses to start where that is not possible.",
    ),
    fixed(
        "kernel.pin_dir",
        Kind::Text,
        "/sys/fs/bpf/governor",
        "Folder of the pins, for one governord; its parent is on a bpffs that is already mounted.",
    ),
    // Not at run time: only the file can add or remove the members that decide whether it is valid.
    Setting {
        reloaded: true,
        ..fixed(
            "pools.*.unlimited",
            Kind::Bool,
            "false",
            "The pool has no gate: every request passes at once and is counted. Such a pool has no members.",
        )
    },
    live(
        "pools.*.fair_share",
        Kind::FairShare,
        "off",
        "Fair share: \"off\", \"max-min\", or an equal split from this many percent of capacity on (1–100).",
    ),
    live(
        "pools.*.headroom",
        Kind::Headroom,
        "4%",
        "Slots that max-min keeps for newcomers: a number, or a percentage of capacity (then at least one unless 0).",
    ),
    live(
        "pools.*.fair_share_mode",
        Kind::Mode,
        "observe",
        "\"observe\" records what it would do, \"enforce\" does it.",
    ),
    live(
        "pools.*.anonymous",
        Kind::Choice(&["judge", "bypass"]),
        "judge",
        "Requests without a key: \"judge\" judges and bounds them all as one key, \"bypass\" lets them pass fair share.",
    ),
    live("pools.*.min_guarantee", COUNT, "2", "A key holding fewer than this is never refused by fair share."),
    live(
        "pools.*.exhausted_status",
        Kind::Integer { min: 429, max: 529 },
        "429",
        "HTTP status when every member slot is taken: 429 or 529.",
    ),
    live("pools.*.park.max_wait", duration(0, HOUR), "30s", "Longest time a request is parked."),
    live("pools.*.park.max_per_key", COUNT, "16", "Parked requests of one key at most."),
    live_optional(
        "pools.*.park.max_waiting",
        COUNT,
        "Parked requests of the pool at most; unset: its ordinary slots, and at least park.max_per_key.",
    ),
    live(
        "pools.*.cooldown.rate_limited",
        duration(1, HOUR),
        "60s",
        "Cool-down of a member that answered 429 without naming its reset.",
    ),
    live(
        "pools.*.cooldown.overloaded",
        duration(1, HOUR),
        "10s",
        "Cool-down of a member that answered 529 or failed in transport.",
    ),
    live(
        "pools.*.cooldown.max",
        duration(1, 24 * HOUR),
        "10m",
        "Longest cool-down that one report of a proxy causes, whatever reset it names.",
    ),
    live(
        "pools.*.traffic.*.slots",
        COUNT,
        "0",
        "Slots of the pool that this kind of traffic may hold at most (media, say); 0 is no limit.",
    ),
    live("pools.*.members.*.slots", COUNT, "8", "Slots the member has; 0 switches the member off."),
    live("pools.*.members.*.reserve", COUNT, "1", "Slots kept for re-attaching to running sessions."),
    live("pools.*.members.*.draining", Kind::Bool, "false", "Takes no new request; what runs goes on."),
];

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
mod tests {
    use super::*;

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
}
