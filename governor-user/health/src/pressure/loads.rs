//! What the engine carries at one moment, as far as overload and verdicts look at it. Plain data, written by the driver.

use governor_engine::time::Duration;
use std::collections::BTreeSet;

/// The node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loads {
    /// Counted requests, granted or parked.
    pub counted: u32,
    /// At most so many; 0 is no cap.
    pub cap: u32,
    /// Processes of connected proxies, where the kernel names them.
    pub proxies: BTreeSet<u32>,
    /// The pools in policy order.
    pub pools: Vec<NamedLoad>,
}

/// One pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedLoad {
    /// Its name.
    pub name: String,
    /// What it carries.
    pub load: governor_engine::snapshot::PoolFigures,
    /// How long its oldest parked request has waited; `None` when none is parked.
    pub oldest: Option<Duration>,
}
