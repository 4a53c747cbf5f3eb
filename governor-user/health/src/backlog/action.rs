//! What the tuner does, as its journal names it.

use serde::{Deserialize, Serialize};

/// What the tuner does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TunerAction {
    /// Observe mode: it would have been raised.
    WouldRaise,
    /// The backlog was raised.
    Raise,
    /// More would help, and the namespace's somaxconn does not allow it.
    Clamped,
    /// The backlog went back to what its owner asked for, after quiet.
    Lower,
    /// The application brought its first value back.
    Reverted,
    /// The raise was made again after that.
    Reapply,
    /// It is left alone from now on.
    StandDown,
    /// An operator gave it back to the tuner.
    Resume,
    /// An operator set the mode for it, or took that away.
    SetMode,
    /// It went back to what its owner asked for, at a stop or because an operator asked for it.
    Restore,
    /// `net.core.somaxconn` of the listener's namespace was set.
    Somaxconn,
    /// Something could not be done.
    Failed,
}

impl TunerAction {
    /// Every action.
    pub const ALL: [Self; 12] = [
        Self::WouldRaise,
        Self::Raise,
        Self::Clamped,
        Self::Lower,
        Self::Reverted,
        Self::Reapply,
        Self::StandDown,
        Self::Resume,
        Self::SetMode,
        Self::Restore,
        Self::Somaxconn,
        Self::Failed,
    ];

    /// Stable name, as in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WouldRaise => "would_raise",
            Self::Raise => "raise",
            Self::Clamped => "clamped",
            Self::Lower => "lower",
            Self::Reverted => "reverted",
            Self::Reapply => "reapply",
            Self::StandDown => "stand_down",
            Self::Resume => "resume",
            Self::SetMode => "set_mode",
            Self::Restore => "restore",
            Self::Somaxconn => "somaxconn",
            Self::Failed => "failed",
        }
    }

    /// Whether the system is another one afterwards.
    #[must_use]
    pub fn acts(self) -> bool {
        match self {
            Self::Raise | Self::Lower | Self::Reapply | Self::Restore | Self::Somaxconn => true,
            Self::WouldRaise
            | Self::Clamped
            | Self::Reverted
            | Self::StandDown
            | Self::Resume
            | Self::SetMode
            | Self::Failed => false,
        }
    }
}
