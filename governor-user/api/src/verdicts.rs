//! What is wrong with listeners, and what makes the pressure.

pub use governor_health::listeners::evidence::{Evidence, PoolWork, Work};
pub use governor_health::listeners::verdict::Verdict;
pub use governor_observation::vitals::Descriptors;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// One listener with its diagnosis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListenerVerdict {
    /// Inode number of the network namespace.
    pub netns: u64,
    /// Local address.
    pub address: IpAddr,
    /// Local port.
    pub port: u16,
    /// Socket cookie; `null` on the procfs tier.
    pub cookie: Option<u64>,
    /// Processes that hold it, where they can be read.
    pub pids: Vec<u32>,
    /// Why no process is known to hold it, with the right that is missing; `null` where one is known or all were looked at.
    #[serde(default)]
    pub pids_unknown: Option<String>,
    /// It feeds the overload level.
    pub watched: bool,
    /// The diagnosis.
    pub verdict: Verdict,
    /// What the numbers say, one sentence.
    pub sentence: String,
    /// What to do, one sentence.
    pub remedy: String,
    /// The numbers.
    pub evidence: Evidence,
}

/// Which listeners `GET /v1/verdicts` answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerdictsQuery {
    /// A port (`443`, `:443`), or an address and a port (`10.0.0.1:443`, `[::]:443`); all when absent.
    pub listener: Option<String>,
}

/// A listener that needs an eye, in [`super::Status`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Troubled {
    /// Inode number of the network namespace.
    pub netns: u64,
    /// Local address.
    pub address: IpAddr,
    /// Local port.
    pub port: u16,
    /// The diagnosis.
    pub verdict: Verdict,
    /// What the numbers say, one sentence.
    pub sentence: String,
}

/// One monitor of overload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Monitor {
    /// Its cause, e.g. `accept_fill`.
    pub cause: String,
    /// 0–1000 ‰.
    pub pressure: u16,
    /// The measurement in words.
    pub detail: String,
}
