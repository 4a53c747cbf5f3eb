//! Pools, their members and kinds of traffic.

pub(crate) mod judge;
pub(crate) mod pool;
pub(crate) mod retry;
