//! Pools, their members and kinds of traffic.

pub(crate) mod member;
pub(crate) mod pool;
pub(crate) mod traffic;
