//! Sessions of proxies: who may connect, and frames as messages for the driver. Decides nothing.

pub mod accept;
pub mod census;
pub mod session;
