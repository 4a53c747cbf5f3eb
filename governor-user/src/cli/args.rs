//! The command line of `governorctl`, as data. Knows no daemon.

use crate::config::value::parse_duration;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Parser, Subcommand, ValueEnum};
use governor_api::{DEFAULT_SOCKET, KeyField};
use std::path::PathBuf;
use std::time::Duration;

const AFTER_HELP: &str = "\
Exit codes: 0 ok · 1 negative answer (a problem, a failed check, unknown, refused) · 2 usage · 3 daemon unreachable";

/// See, explain and steer the governor
#[derive(Debug, Parser)]
#[command(name = "governorctl", version, after_help = AFTER_HELP, max_term_width = 100)]
pub(super) struct Args {
    /// Control socket of the daemon
    #[arg(
        long,
        global = true,
        env = "GOVERNOR_DAEMON_CONTROL_SOCKET",
        hide_env_values = true,
        value_name = "PATH",
        default_value = DEFAULT_SOCKET
    )]
    pub(super) socket: PathBuf,
    /// Tables for people, JSON for programs
    #[arg(long, global = true, value_enum, default_value_t = Format::Table, hide_possible_values = true, value_name = "table|json")]
    pub(super) format: Format,
    /// What to do.
    #[command(subcommand)]
    pub(super) command: Command,
}

/// How answers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Tables and sentences.
    Table,
    /// The JSON of the control API.
    Json,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// The daemon at a glance: level, bypass, sessions, pools, what is degraded
    Status,
    /// Listening sockets with their accept queues
    Listeners {
        /// One row for the sockets that share an address and port, as full as the fullest of them
        #[arg(long)]
        groups: bool,
        /// Listeners that closed since the daemon's start, and the queued connections that were lost with them
        #[arg(long, conflicts_with = "groups")]
        closed: bool,
    },
    /// Open connections per cgroup
    Cgroups,
    /// What each network namespace drops and why
    Namespaces,
    /// Pools of upstream capacity, the longest parked wait first
    Pools {
        /// Show the members of each pool too
        #[arg(long)]
        members: bool,
    },
    /// Upstream members of each pool, the troubled ones first
    Members {
        /// Only this pool
        #[arg(long, value_name = "NAME")]
        pool: Option<String>,
    },
    /// Take a member out, put it back, or end its cool-down; kept across restarts
    Member {
        /// Pool and member, e.g. chat/acct-01
        #[arg(value_name = "POOL/NAME", value_parser = member_place)]
        member: (String, String),
        /// What to do.
        #[command(subcommand)]
        order: MemberAction,
    },
    /// Keys with anything in flight or parked, the heaviest first
    Keys {
        /// Only this pool
        #[arg(long, value_name = "NAME")]
        pool: Option<String>,
        /// The orgs of the keys instead: class, tier, cap and share
        #[arg(long, conflicts_with = "pool")]
        orgs: bool,
    },
    /// Cap, weigh, guarantee or suspend one key at run time; without a key, list what is set. What is not named stays
    #[command(group(ArgGroup::new("setting").args(["cap", "weight", "floor", "suspend"]).multiple(true)))]
    #[command(group(ArgGroup::new("order").args(["cap", "weight", "floor", "suspend", "unset", "clear"]).multiple(true)))]
    Key {
        /// Key, by its label or its 32 hexadecimal digits
        #[arg(value_name = "KEY", required_if_eq("clear", "true"), requires = "order")]
        key: Option<String>,
        /// Requests on the node at most, in flight and parked; 0 lifts its cap
        #[arg(long, value_name = "COUNT", requires = "key")]
        cap: Option<u32>,
        /// Weight of its share under max-min
        #[arg(long, value_name = "WEIGHT", requires = "key")]
        weight: Option<u32>,
        /// Slots of a pool it gets whenever one is free, under max-min
        #[arg(long, value_name = "SLOTS", requires = "key")]
        floor: Option<u32>,
        /// Refuse every request of it; what runs goes on
        #[arg(long, requires = "key")]
        suspend: bool,
        /// End by itself after so long, e.g. 1h; without it, only --clear ends it
        #[arg(long = "for", value_name = "TIME", value_parser = whole_seconds, requires = "setting")]
        duration: Option<u64>,
        /// Why, for other operators
        #[arg(long, value_name = "TEXT", requires = "setting")]
        reason: Option<String>,
        /// Remove single fields: cap, weight, floor, suspend, or end (of all of it)
        #[arg(
            long,
            value_parser = key_field(),
            value_delimiter = ',',
            value_name = "FIELD",
            hide_possible_values = true,
            requires = "key"
        )]
        unset: Vec<KeyField>,
        /// Take away all that was set
        #[arg(long, conflicts_with_all = ["setting", "unset"])]
        clear: bool,
        /// Print the keyed hash of the raw key on standard input, made with NODE_SECRET or --secret-file
        #[arg(long, conflicts_with_all = ["key", "order"])]
        hash: bool,
        /// File with the node secret; one end of line behind it is no part of it
        #[arg(long, value_name = "FILE", requires = "hash")]
        secret_file: Option<PathBuf>,
    },
    /// What operators changed, and what ended by itself
    Events {
        /// Of the last so long, e.g. 24h
        #[arg(long, value_name = "TIME", value_parser = whole_seconds, default_value = "24h")]
        last: u64,
    },
    /// Live leases, the oldest first
    Leases {
        /// Only this pool
        #[arg(long, value_name = "NAME")]
        pool: Option<String>,
        /// Only leases that moved no byte for so long, e.g. 60s
        #[arg(long, value_name = "TIME", value_parser = parse_duration)]
        idle: Option<Duration>,
    },
    /// Requests that were refused: how many for which reason, and the newest ones
    Refusals {
        /// Only of this key, by its label, name or 32 hexadecimal digits
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
        /// Only of this pool
        #[arg(long, value_name = "NAME")]
        pool: Option<String>,
        /// Only for this reason, e.g. fair_share
        #[arg(long, value_name = "REASON")]
        reason: Option<String>,
        /// Of the last so long, e.g. 10m
        #[arg(long, value_name = "TIME", value_parser = whole_seconds, default_value = "1h")]
        since: u64,
        /// List so many at most, up to 1000; all are counted
        #[arg(long, value_name = "COUNT", default_value_t = 20)]
        limit: usize,
        /// What observe mode would have held back, instead of what was refused
        #[arg(long)]
        observed: bool,
    },
    /// Why a request was refused, what a lease or session holds, by id, or what is wrong with a listener
    #[command(args_conflicts_with_subcommands = true)]
    Explain {
        /// What else to explain.
        #[command(subcommand)]
        what: Option<Explained>,
        /// Id of a decision (d-…, the header x-governor-decision), a lease (l-…) or a session (s-…)
        #[arg(value_name = "ID", required = true)]
        id: Option<String>,
    },
    /// What other fair-share settings would have done with the demand that was recorded
    Advise {
        /// Replay the last so long, e.g. 1h
        #[arg(long, value_name = "TIME", value_parser = whole_seconds, default_value = "1h")]
        last: u64,
    },
    /// Set a value at run time, over file and environment; kept across restarts
    Set {
        /// Dotted key, e.g. pools.chat.fair_share
        #[arg(value_name = "KEY")]
        key: String,
        /// Value, e.g. 80 or off
        #[arg(value_name = "VALUE", allow_hyphen_values = true)]
        value: String,
    },
    /// Remove what `set` set
    Unset {
        /// Dotted key
        #[arg(value_name = "KEY")]
        key: String,
    },
    /// Let every request pass at once, counted
    Bypass {
        /// On or off.
        #[command(subcommand)]
        switch: Switch,
    },
    /// Refuse new requests and let what runs end, e.g. before maintenance; kept across restarts
    Drain {
        /// Wait until no lease is left; the longest ones are named meanwhile
        #[arg(long)]
        wait: bool,
        /// End the drain: grant requests again
        #[arg(long, conflicts_with_all = ["wait", "reason"])]
        undo: bool,
        /// Why, for the next operator
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Backlogs that the tuner raised or leaves alone, and what it did
    #[command(args_conflicts_with_subcommands = true)]
    Tune {
        /// What it would do about each listener now, and why
        #[arg(long)]
        dry_run: bool,
        /// Journal of the last so long, e.g. 1h
        #[arg(long, value_name = "TIME", value_parser = whole_seconds, default_value = "24h", conflicts_with = "dry_run")]
        last: u64,
        /// What to tell it.
        #[command(subcommand)]
        order: Option<TuneOrder>,
    },
    /// The settings in effect
    Config {
        /// Show which layer each value comes from
        #[arg(long)]
        origin: bool,
    },
    /// Read the configuration again; an invalid one changes nothing (exit code 1)
    Reload {
        /// Configuration file of the daemon, for its control socket [default: /etc/governor/governor.toml if it is
        /// there]
        #[arg(long, value_name = "FILE", env = "GOVERNOR_CONFIG", hide_env_values = true)]
        config: Option<PathBuf>,
    },
    /// Check the daemon and the machine; without a daemon, only the machine (exit code 3)
    Doctor {
        /// Remove what a governord that is gone has left, sockets and what it pinned in the kernel; nothing while one
        /// runs
        #[arg(long)]
        clean: bool,
        /// Configuration file of that governord [default: /etc/governor/governor.toml if it is there]
        #[arg(long, value_name = "FILE", env = "GOVERNOR_CONFIG", hide_env_values = true, requires = "clean")]
        config: Option<PathBuf>,
    },
    /// Write the pages of the manual, for packages
    #[command(hide = true)]
    Manual {
        /// Folder to write them to
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
    /// Print a completion script
    Completions {
        /// Shell to write it for
        #[arg(value_enum, value_name = "SHELL")]
        shell: clap_complete::Shell,
    },
}

/// What can be explained besides a decision.
#[derive(Debug, Subcommand)]
pub(super) enum Explained {
    /// What is wrong with a listener, with the evidence in numbers and what to do
    Listener {
        /// Its port, or its address and port, e.g. :443 or 10.0.0.1:443
        #[arg(value_name = "PLACE")]
        place: String,
    },
}

/// What can be done to a member.
#[derive(Debug, Subcommand)]
pub(super) enum MemberAction {
    /// End its cool-down now, also one that a proxy reported
    Up,
    /// Give it no new request for a while; what runs goes on
    Cool {
        /// For how long, e.g. 30m
        #[arg(long = "for", value_name = "TIME", value_parser = whole_seconds)]
        duration: u64,
        /// Why, for the next operator
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Give it no new request until undrained; what runs goes on
    Drain {
        /// Why, for the next operator
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// End a drain
    Undrain,
}

/// The two ways to turn a switch.
#[derive(Debug, Subcommand)]
pub(super) enum Switch {
    /// Switch on
    On {
        /// Switch off by itself after so long, e.g. 30m; without it, only `bypass off` ends it
        #[arg(long = "for", value_name = "TIME", value_parser = whole_seconds)]
        duration: Option<u64>,
    },
    /// Switch off
    Off,
}

/// Orders for the tuner.
#[derive(Debug, Subcommand)]
pub(super) enum TuneOrder {
    /// Raise the backlog of single listeners where that helps; overrides the configuration, kept across restarts
    #[command(group(named()))]
    Enforce(Which),
    /// Only report what the tuner would do about single listeners; overrides the configuration, kept across restarts
    #[command(group(named()))]
    Observe(Which),
    /// Take away what enforce or observe set, named as `tune` lists it: the configuration holds again
    #[command(group(named()))]
    Clear(Which),
    /// Give single listeners the backlog back that their owner asked for, and leave them alone until resumed
    #[command(group(named()))]
    Restore(Which),
    /// Tune listeners again that are left alone; without a name, all of them
    Resume(Which),
}

/// Which listeners: those that every part fits.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    // Not a doc comment: rustdoc takes the brackets for a link.
    #[arg(
        value_name = "LISTENER",
        help = "Its address and port, e.g. 0.0.0.0:443 or [::]:443; :443 on any address; cookie:4711 for one socket"
    )]
    pub(super) listener: Option<String>,
    /// Only in this network namespace, by inode number
    #[arg(long, value_name = "INODE")]
    pub(super) netns: Option<u64>,
    /// Only those created in this cgroup or below it
    #[arg(long, value_name = "PATH")]
    pub(super) cgroup: Option<String>,
    /// Only those that this process holds, for as long as it runs
    #[arg(long, value_name = "PID")]
    pub(super) pid: Option<u32>,
}

/// The whole host is the configuration's.
fn named() -> ArgGroup {
    ArgGroup::new("named").args(["listener", "netns", "cgroup", "pid"]).multiple(true).required(true)
}

/// `POOL/NAME` as its parts.
fn member_place(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((pool, member)) if !pool.is_empty() && !member.is_empty() => Ok((pool.to_owned(), member.to_owned())),
        _ => Err(format!("expected a pool and a member, POOL/NAME, found \"{text}\"")),
    }
}

/// A duration of at least a second, in whole seconds.
fn whole_seconds(text: &str) -> Result<u64, String> {
    let duration = parse_duration(text)?;
    if duration.as_secs() == 0 || duration.subsec_nanos() != 0 {
        return Err(format!("expected whole seconds, at least one, found \"{text}\""));
    }
    Ok(duration.as_secs())
}

/// A field of an override by its name.
fn key_field() -> impl TypedValueParser<Value = KeyField> {
    PossibleValuesParser::new(KeyField::ALL.map(KeyField::as_str)).map(|word| {
        KeyField::ALL.into_iter().find(|field| field.as_str() == word).expect("the parser takes no other word")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_named_with_its_pool() {
        assert_eq!(member_place("chat/a/b"), Ok(("chat".to_owned(), "a/b".to_owned())));
        for wrong in ["chat", "/a", "chat/", ""] {
            assert!(member_place(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bypass_takes_whole_seconds_with_a_unit() {
        assert_eq!(whole_seconds("30m"), Ok(1800));
        for wrong in ["30", "0s", "500ms", "1.5s", "-1s", "soon"] {
            assert!(whole_seconds(wrong).is_err(), "{wrong}");
        }
    }
}
