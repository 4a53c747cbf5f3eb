//! Which way of observing works on this machine: every way is attached and proved by use before it is trusted.

pub(crate) mod ladder;
pub mod preflight;
pub(crate) mod provoke;
pub(crate) mod selftest;
pub(crate) mod suspicion;
pub(crate) mod tier;
