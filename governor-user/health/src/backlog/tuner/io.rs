//! What goes into the tuner and comes out of it.

use super::entry::{Kept, RaisedCap};
use crate::backlog::plan::Limit;
use crate::backlog::{Selector, TunerAction, TunerConfig, TunerMode};
use crate::report::Report;
use governor_observation::{ListenerName, Observation};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A fact.
#[derive(Clone, Debug)]
pub enum Input {
    /// The kernel was observed.
    Observed {
        /// What was seen.
        seen: Arc<Observation>,
        /// What this observation or the one before it came to: a hindrance lasts longer than that.
        report: Arc<Report>,
        /// When the processes started that [`super::Tuner::processes`] names, in clock ticks since boot; those that
        /// ended are missing.
        started: BTreeMap<u32, u64>,
    },
    /// The action that was ordered last was carried out, or could not be.
    Done(Done),
    /// These settings hold from now on.
    Configured(Box<TunerConfig>),
    /// An operator set or cleared a mode at run time.
    ModesSet {
        /// Every mode that is set now, the oldest first.
        modes: Vec<ModeSetting>,
        /// Which listeners the change is about.
        which: Selector,
        /// The same in words.
        named: String,
        /// What was set; `None`: it was cleared.
        mode: Option<TunerMode>,
        /// Who did it.
        by: String,
    },
    /// An operator gives listeners the backlog back that their owner asked for, and has them left alone.
    Restore {
        /// Which.
        which: Selector,
        /// Who.
        by: String,
    },
    /// An operator gives listeners that are left alone back to the tuner.
    Resume {
        /// Which.
        which: Selector,
        /// Who.
        by: String,
    },
    /// No observation comes any more.
    PlaneEnded,
    /// The daemon stops for good.
    Stop,
}

/// An order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Do this, then send [`Input::Done`]. No other action comes before that.
    Act(Action),
    /// Write this down.
    Record(Record),
    /// Keep this for the next run of the daemon.
    Keep(Memory),
    /// A mode that was set at run time means nothing any more: its process or namespace ended.
    Retired(Selector),
    /// What [`Input::ModesSet`] or [`Input::Restore`] came to.
    Outcomes(Vec<Outcome>),
    /// What [`Input::Resume`] came to: the listeners that are tuned again.
    Resumed(Vec<ListenerName>),
    /// All that [`Input::Stop`] leads to is done.
    Stopped,
}

/// What is to be done to a socket of another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Give it this backlog.
    Listen {
        /// The socket.
        socket: Socket,
        /// The backlog.
        to: u32,
        /// Raise the somaxconn of its namespace to it first.
        raise_cap: bool,
    },
    /// Ask the kernel for its backlog.
    Read {
        /// The socket.
        socket: Socket,
    },
    /// Give it its first backlog back, and its namespace its somaxconn, unless another hand has changed them.
    PutBack {
        /// The socket.
        socket: Socket,
        /// What it was raised to.
        set: Option<u32>,
        /// What its owner asked for.
        original: u32,
        /// The somaxconn of its namespace, if it was raised and is to go back too.
        cap: Option<RaisedCap>,
    },
}

/// What an [`Action`] came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// Of [`Action::Listen`].
    Listened {
        /// The somaxconn before and after, if it was to be raised.
        cap: Option<Result<(u32, u32), Failure>>,
        /// Cookie of the namespace, where the kernel reports it.
        namespace: Option<u64>,
        /// The listener.
        done: Result<Called, Failure>,
    },
    /// Of [`Action::Read`]: its backlog.
    Read(Result<u32, Failure>),
    /// Of [`Action::PutBack`].
    PutBack {
        /// The listener; `None`: another hand has set it since, and it stays.
        done: Result<Option<Called>, Failure>,
        /// The somaxconn before and after, if it changed.
        cap: Option<(u32, u32)>,
    },
}

/// `listen()` was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// The process through which.
    pub pid: u32,
    /// The backlog just before.
    pub before: u32,
    /// The backlog as the kernel holds it now.
    pub after: u32,
}

/// Why something could not be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// In one line.
    pub reason: String,
    /// No process is known that holds the socket: of a new one that may only be a matter of time.
    pub is_holder_unknown: bool,
}

/// A listening socket and the processes that hold it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Its cookie. Of a Multipath TCP listener the table shows the TCP side's, which no descriptor shows.
    pub cookie: Option<u64>,
    /// Inode number of its network namespace.
    pub netns: u64,
    /// Inode number behind its descriptors; `None`: no process holds it.
    pub inode: Option<u64>,
    /// Processes that held it when they were last looked for.
    pub pids: Vec<u32>,
}

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which listener.
    pub listener: ListenerName,
    /// What was done.
    pub action: TunerAction,
    /// Who asked for it; `None`: the tuner itself.
    pub by: Option<String>,
    /// The number before: a backlog, or a somaxconn.
    pub before: u32,
    /// The number after; in observe mode, what it would be.
    pub after: u32,
    /// What would have been done without bounds.
    pub wanted: Option<u32>,
    /// The bound that decided.
    pub limit: Option<Limit>,
    /// The process through which it was done.
    pub pid: Option<u32>,
    /// Why, in one line.
    pub reason: String,
}

/// What the next run of the daemon has to know, for the same boot of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Listeners that are not as their owner left them, or not to be touched.
    pub listeners: Vec<Kept>,
    /// Namespaces whose somaxconn was raised.
    pub caps: Vec<RaisedCap>,
}

/// A mode that an operator set at run time, over the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeSetting {
    /// For which listeners.
    pub which: Selector,
    /// The mode.
    pub mode: TunerMode,
    /// Start of the process that `which` names, in clock ticks since boot: its id is given to another one some time.
    pub started: Option<u64>,
}

/// What became of a listener that an operator named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Which.
    pub listener: ListenerName,
    /// The mode that holds for it now.
    pub mode: TunerMode,
    /// Its backlog before.
    pub before: u32,
    /// Its backlog now.
    pub after: u32,
    /// Why its backlog was not restored, or cannot be raised in mode `enforce`.
    pub failure: Option<String>,
}
