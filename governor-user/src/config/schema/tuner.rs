//! The settings of the tuner: what holds for every listener, and what for single ones.

use super::declare::section;
use super::form::{Bool, Choice, Integer, Optional, Time, Words};
use super::{HOUR, MINUTE};
use crate::config::resolve::AtExit;
use governor_health::backlog::TunerMode;

/// What `listen()` takes: the kernel has 31 bits for it.
type Backlog = Integer<1, { i32::MAX.unsigned_abs() }>;

/// Shorter waits cannot be distinguished from the period at which listeners are read.
type MaxWait = Time<10, MINUTE>;

/// A week at most.
type Quiet = Time<1000, { 168 * HOUR }>;

section! {
    /// The tuner, for every listener.
    Tuner in "tuner" {
        /// Whether the backlog of live listeners is raised where that helps (enforce), only said to be (observe), or
        /// left alone (off).
        mode: Choice<TunerMode> = "observe", RunTime;
        /// Backlog that a raise aims at, as far as the kernel and the bounds allow.
        target: Backlog = "1024", RunTime;
        /// Backlog at most, for bursts that are larger than the target.
        max: Backlog = "4096", RunTime;
        /// A queue is never made longer than what its acceptor takes out of it in this time, and none is that does not
        /// drain in it.
        max_wait: MaxWait = "500ms", RunTime;
        /// After so long without need a backlog that was raised goes back to what its owner asked for.
        quiet: Quiet = "10m", RunTime;
        /// Kernel memory that all raises together may lead to, in MiB, at 16 KiB a queued connection.
        memory_mib: Integer<1, 65_536> = "64", RunTime;
        /// Raise net.core.somaxconn too, in the listener's network namespace only, where it is what limits a raise.
        raise_somaxconn: Bool = "false", RunTime;
        /// What a stop does with raised backlogs; a hand-over to another governord always keeps them.
        at_exit: Choice<AtExit> = "keep", RunTime;
    }
}

section! {
    /// Listeners on one address and port, or on one port.
    Listener in "tuner.listener.*" {
        /// Mode for the listeners on this address and port, or ":port".
        mode: Optional<Choice<TunerMode>> = "enforce", RunTime;
        /// Target for them.
        target: Optional<Backlog> = "1000", RunTime;
        /// Backlog at most for them.
        max: Optional<Backlog> = "1000", RunTime;
        /// Longest wait for them.
        max_wait: Optional<MaxWait> = "500ms", RunTime;
        /// Quiet time for them.
        quiet: Optional<Quiet> = "10m", RunTime;
    }
}

impl Words for TunerMode {
    const WORDS: &'static [&'static str] = &["off", "observe", "enforce"];

    fn of(word: &str) -> Option<Self> {
        Self::parse(word)
    }
}

impl Words for AtExit {
    const WORDS: &'static [&'static str] = &["keep", "restore"];

    fn of(word: &str) -> Option<Self> {
        match word {
            "keep" => Some(Self::Keep),
            "restore" => Some(Self::Restore),
            _ => None,
        }
    }
}
