//! What the configuration says about backlogs.

use super::selector::ListenerPattern;
use std::net::IpAddr;
use std::time::Duration;

/// The settings of the tuner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunerConfig {
    /// For every listener that has nothing of its own.
    pub global: ListenerPolicy,
    /// For single ones; the more precise pattern first.
    pub listeners: Vec<(ListenerPattern, ListenerPolicy)>,
    /// Kernel memory that all raises together may lead to, in MiB.
    pub memory_mib: u32,
    /// Raise `net.core.somaxconn` where it limits a raise.
    pub raise_somaxconn: bool,
    /// What a stop does.
    pub at_exit: AtExit,
}

impl TunerConfig {
    /// What holds for the listener on this address and port.
    #[must_use]
    pub fn policy(&self, address: IpAddr, port: u16) -> ListenerPolicy {
        let own = self.listeners.iter().find(|(pattern, _)| pattern.fits(address, port));
        own.map_or(self.global, |(_, policy)| *policy)
    }
}

/// What a stop does with raised backlogs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtExit {
    /// They stay.
    Keep,
    /// They go back to what their owners asked for.
    Restore,
}

/// What holds for one listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerPolicy {
    /// Whether anything is done.
    pub mode: TunerMode,
    /// Backlog that a raise aims at.
    pub target: u32,
    /// Backlog at most.
    pub max: u32,
    /// Longest that a connection may have to wait in the queue.
    pub max_wait: Duration,
    /// Time without need after which a raise is taken back.
    pub quiet: Duration,
}

/// Off, observe or enforce.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TunerMode {
    /// Nothing is looked at.
    Off,
    /// Decide and record.
    #[default]
    Observe,
    /// Decide and act.
    Enforce,
}

impl TunerMode {
    /// Stable name, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Observe => "observe",
            Self::Enforce => "enforce",
        }
    }

    /// The mode of this name; `None` for anything else.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Off, Self::Observe, Self::Enforce].into_iter().find(|mode| mode.as_str() == word)
    }
}
