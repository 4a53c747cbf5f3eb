//! What the daemon shows: metrics and overload.

pub(crate) mod metrics;
pub(crate) mod overload;
