//! The tuner against real listeners.

pub(crate) mod tuner;
pub(crate) mod tuner_orders;
pub(crate) mod tuner_proxies;
pub(crate) mod tuner_world;
