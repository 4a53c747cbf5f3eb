//! The rows for the tuner: what holds for every listener, and what for single ones.

use super::HOUR;
use super::MINUTE;
use super::Setting;
use super::duration;
use super::live;
use super::live_optional;
use crate::config::value::Kind;

const MODE: Kind = Kind::Choice(&["off", "observe", "enforce"]);

/// What `listen()` takes: the kernel has 31 bits for it.
const BACKLOG: Kind = Kind::Integer { min: 1, max: i32::MAX.unsigned_abs() };

/// Shorter waits are not told apart from the pace at which listeners are read.
const MAX_WAIT: Kind = duration(10, MINUTE);

/// A week at most.
const QUIET: Kind = duration(1000, 168 * HOUR);

/// Every setting of the tuner, in the order of the generated file.
pub(super) const ROWS: &[Setting] = &[
    live(
        "tuner.mode",
        MODE,
        "observe",
        "Whether the backlog of live listeners is raised where that helps (enforce), only said to be (observe), or left alone (off).",
    ),
    live("tuner.target", BACKLOG, "1024", "Backlog that a raise aims at, as far as the kernel and the bounds allow."),
    live("tuner.max", BACKLOG, "4096", "Backlog at most, for bursts that are larger than the target."),
    live(
        "tuner.max_wait",
        MAX_WAIT,
        "500ms",
        "A queue is never made longer than what its acceptor takes out of it in this time, and none is that does not drain in it.",
    ),
    live(
        "tuner.quiet",
        QUIET,
        "10m",
        "After so long without need a backlog that was raised goes back to what its owner asked for.",
    ),
    live(
        "tuner.memory_mib",
        Kind::Integer { min: 1, max: 65_536 },
        "64",
        "Kernel memory that all raises together may lead to, in MiB, at 16 KiB a queued connection.",
    ),
    live(
        "tuner.raise_somaxconn",
        Kind::Bool,
        "false",
        "Raise net.core.somaxconn too, in the listener's network namespace only, where it is what limits a raise.",
    ),
    live(
        "tuner.at_exit",
        Kind::Choice(&["keep", "restore"]),
        "keep",
        "What a stop does with raised backlogs; a hand-over to another governord always keeps them.",
    ),
    live_optional("tuner.listener.*.mode", MODE, "Mode for the listeners on this address and port, or \":port\"."),
    live_optional("tuner.listener.*.target", BACKLOG, "Target for them."),
    live_optional("tuner.listener.*.max", BACKLOG, "Backlog at most for them."),
    live_optional("tuner.listener.*.max_wait", MAX_WAIT, "Longest wait for them."),
    live_optional("tuner.listener.*.quiet", QUIET, "Quiet time for them."),
];
