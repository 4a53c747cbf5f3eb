//! The settings of the kernel plane: how the kernel is observed, how often, and what is pinned.

use super::HOUR;
use super::declare::section;
use super::form::{Choice, Integer, Text, Time, Words};
use governor_common::abi::MAX_LISTENERS;
use governor_observation::Tier;

section! {
    /// The kernel plane.
    Kernel in "kernel" {
        /// How the kernel is observed; auto takes the best tier that passes its self-test.
        tier: Choice<UsedTier> = "auto", Restart;
        /// Refuse to start on a lower tier than this.
        require: Choice<LeastTier> = "none", Restart;
        /// How often listeners are read.
        tick: Time<10, 10_000> = "100ms", Restart;
        /// How often counts are compared with the kernel's truth.
        audit: Time<100, HOUR> = "10s", Restart;
        /// Listeners whose totals are tracked; more are shown without them and counted as untracked.
        max_listeners: Integer<1, MAX_LISTENERS> = "16384", Restart;
        /// Pin programs and maps, so that a restart after a crash loses no count; require refuses to start where that is not
        /// possible.
        pins: Choice<Pins> = "auto", Restart;
        /// Folder of the pins, for one governord; its parent is on a bpffs that is already mounted.
        pin_dir: Text = "/sys/fs/bpf/governor", Restart;
    }
}

/// The only tier to use; `None`: the best that works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) struct UsedTier(pub(in crate::config) Option<Tier>);

impl Words for UsedTier {
    const WORDS: &'static [&'static str] = &["auto", "tracepoint", "netlink", "procfs"];

    fn of(word: &str) -> Option<Self> {
        match word {
            "auto" => Some(Self(None)),
            "tracepoint" => Some(Self(Some(Tier::Tracepoint))),
            "netlink" => Some(Self(Some(Tier::Netlink))),
            "procfs" => Some(Self(Some(Tier::Procfs))),
            _ => None,
        }
    }
}

/// The least tier to start with; `None`: any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) struct LeastTier(pub(in crate::config) Option<Tier>);

impl Words for LeastTier {
    const WORDS: &'static [&'static str] = &["none", "procfs", "netlink", "tracepoint", "trampoline"];

    fn of(word: &str) -> Option<Self> {
        match word {
            "none" => Some(Self(None)),
            "procfs" => Some(Self(Some(Tier::Procfs))),
            "netlink" => Some(Self(Some(Tier::Netlink))),
            "tracepoint" => Some(Self(Some(Tier::Tracepoint))),
            "trampoline" => Some(Self(Some(Tier::Trampoline))),
            _ => None,
        }
    }
}

/// Whether programs and maps are pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum Pins {
    Auto,
    Off,
    Require,
}

impl Words for Pins {
    const WORDS: &'static [&'static str] = &["auto", "off", "require"];

    fn of(word: &str) -> Option<Self> {
        match word {
            "auto" => Some(Self::Auto),
            "off" => Some(Self::Off),
            "require" => Some(Self::Require),
            _ => None,
        }
    }
}
