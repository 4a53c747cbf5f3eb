//! Whether the clients of leases are still connected.

pub mod clients;
pub(crate) mod closings;
