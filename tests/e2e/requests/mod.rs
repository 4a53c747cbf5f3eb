//! Requests and the leases they get: granted, parked, refused, moved and ended.

pub(crate) mod admission;
pub(crate) mod clients;
pub(crate) mod connections;
pub(crate) mod endings;
pub(crate) mod idle;
pub(crate) mod large;
pub(crate) mod pipeline;
pub(crate) mod plans;
