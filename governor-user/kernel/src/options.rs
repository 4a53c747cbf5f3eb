//! How the kernel is to be observed, and why that did not begin.

use crate::programs::pin::PinOptions;
use governor_observation::Tier;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// How the kernel is to be observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Refuse to start on a lesser tier than this.
    pub require: Option<Tier>,
    /// Begin the ladder at this tier instead of the best one; it is still left downwards when it does not work.
    pub forced_tier: Option<Tier>,
    /// Time between observations, 10 ms to 10 s. Longer under load: see [`crate::spawn`].
    pub tick: Duration,
    /// Time between audits: namespaces, cgroups and holders are looked up anew and counts compared with the kernel's.
    pub audit_every: Duration,
    /// The cgroup-v2 mount; found by the mount table when `None`.
    pub cgroup_root: Option<PathBuf>,
    /// Listeners whose totals and peak can be tracked, at most 16,384, which is also the default. More are still shown
    /// with what the tables say, and counted in `health.untracked`.
    pub max_listeners: Option<u32>,
    /// Where programs and maps are pinned, so that counting outlives the plane; nowhere when `None`.
    pub pins: Option<PinOptions>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            require: None,
            forced_tier: None,
            tick: Duration::from_millis(100),
            audit_every: Duration::from_secs(10),
            cgroup_root: None,
            max_listeners: None,
            pins: None,
        }
    }
}

/// Why the kernel plane did not start.
#[derive(Debug, thiserror::Error)]
pub enum PlaneError {
    /// Less works here than the configuration requires.
    #[error("the {required} tier is required but only {available} works here: {reason}")]
    Tier {
        /// What was required.
        required: Tier,
        /// What would have been used.
        available: Tier,
        /// Why nothing better works, one clause a tier.
        reason: String,
    },
    /// Counting has to outlive the daemon and cannot.
    #[error("pins are required but not possible here: {0}")]
    Pins(String),
    /// Not even `/proc` can be read.
    #[error("sockets cannot be observed: /proc is not readable")]
    Proc(#[source] io::Error),
    /// The system refused a thread.
    #[error("cannot start the thread of the kernel plane")]
    Thread(#[source] io::Error),
    /// The thread ended while it set itself up, which is a bug.
    #[error("the kernel plane ended during its start")]
    Ended,
}
