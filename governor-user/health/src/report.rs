//! What the last observation came to: the pressure with what makes it up, and a verdict for each listener. Plain data,
//! one immutable value per observation.

use crate::listeners::evidence::{Evidence, PoolWork};
use crate::listeners::verdict::Verdict;
use crate::pressure::monitors::Pressure;
use governor_observation::ListenerView;
use std::net::IpAddr;
use std::sync::Arc;

/// Replaced at each observation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The pressure and its causes.
    pub pressure: Pressure,
    /// Every listener, by (netns, port, address, cookie).
    /// A row that says the same as in the report before is that row.
    pub listeners: Vec<Arc<Judged>>,
    /// Every pool, in policy order.
    pub pools: Vec<PoolWork>,
}

/// One listener.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// Socket cookie; `None` on the procfs tier.
    pub cookie: Option<u64>,
    /// Inode number of the network namespace.
    pub netns: u64,
    /// Local address.
    pub address: IpAddr,
    /// Local port.
    pub port: u16,
    /// Processes that hold it, where they can be read.
    pub pids: Vec<u32>,
    /// It feeds the overload level: its port is configured, or a connected proxy holds it.
    pub watched: bool,
    /// The diagnosis.
    pub verdict: Verdict,
    /// What it rests on.
    pub evidence: Evidence,
}

impl Judged {
    /// Whether this is what a listener comes to: then the row need not be made again.
    pub(super) fn is(&self, listener: &ListenerView, watched: bool, verdict: Verdict, evidence: &Evidence) -> bool {
        (self.cookie, self.netns, self.port) == (listener.cookie, listener.netns, listener.port)
            && self.address == listener.address
            && (self.watched, self.verdict) == (watched, verdict)
            && self.pids == listener.pids
            && self.evidence == *evidence
    }

    pub(super) fn of(listener: &ListenerView, watched: bool, verdict: Verdict, evidence: Evidence) -> Self {
        Self {
            cookie: listener.cookie,
            netns: listener.netns,
            address: listener.address,
            port: listener.port,
            pids: listener.pids.clone(),
            watched,
            verdict,
            evidence,
        }
    }
}
