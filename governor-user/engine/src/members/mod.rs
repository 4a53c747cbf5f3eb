//! Members of a pool and kinds of traffic, each by itself.

pub(crate) mod member;
pub(crate) mod traffic;
