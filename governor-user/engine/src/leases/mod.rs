//! Leases from grant to end, and the sessions that hold them.

pub(crate) mod lease;
pub(crate) mod revoked;
pub(crate) mod session;
