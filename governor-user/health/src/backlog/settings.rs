//! What the configuration says about the backlog of one listener.

use std::time::Duration;

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
