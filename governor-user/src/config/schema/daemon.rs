//! The daemon's own settings: sockets, folders, bounds of sessions, stop.

use super::MINUTE;
use super::declare::section;
use super::form::{Choice, FileMode, Integer, List, Listen, Text, Time, Words};

section! {
    /// The daemon itself.
    Daemon in "daemon" {
        /// Unix socket that proxies connect to.
        socket: Text = "/run/governor/proxy.sock", Restart;
        /// File mode of the proxy socket, octal.
        socket_mode: FileMode = "0660", Restart;
        /// Group of the proxy socket; empty leaves the daemon's own.
        socket_group: Text = "", Restart;
        /// Users (names or numeric ids) whose processes may open a proxy session; empty: every user the socket's mode lets in.
        allow_users: List = "", Restart;
        /// Unix socket of the control API (HTTP/JSON); writing to it needs root or the daemon's own user.
        control_socket: Text = "/run/governor/control.sock", Restart;
        /// File mode of the control socket, octal.
        control_mode: FileMode = "0660", Restart;
        /// Group that may read the control API; empty leaves the daemon's own.
        control_group: Text = "", Restart;
        /// Folder for run-time overrides, the bypass switch, decisions and recorded demand.
        state_dir: Text = "/var/lib/governor", Restart;
        /// Record who asked when and how long it ran (keyed hashes only), for governorctl advise.
        record: Choice<Switch> = "on", Restart;
        /// Recorded demand on disk at most, in MiB; some 10,000 requests each.
        record_mib: Integer<1, 65_536> = "64", Restart;
        /// Address of /metrics and /healthz; "off" opens none.
        metrics_listen: Listen = "127.0.0.1:9464", Restart;
        /// Unix socket of /metrics and /healthz, with the mode and group of the control socket; empty opens none.
        metrics_socket: Text = "", Restart;
        /// Proxy connections at most; fewer where the limit of descriptors leaves room for fewer.
        max_sessions: Integer<1, 65_536> = "1024", Restart;
        /// Proxy connections of one user at most, so that no user takes those of others.
        max_sessions_per_uid: Integer<1, 65_536> = "512", Restart;
        /// How long a stop waits for leases to end.
        drain_timeout: Time<0, { 10 * MINUTE }> = "2s", RunTime;
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum Switch {
    On,
    Off,
}

impl Words for Switch {
    const WORDS: &'static [&'static str] = &["on", "off"];

    fn of(word: &str) -> Option<Self> {
        match word {
            "on" => Some(Self::On),
            "off" => Some(Self::Off),
            _ => None,
        }
    }
}
