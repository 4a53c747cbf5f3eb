//! The BPF programs: what is loaded and attached, the maps it fills, and what outlives the daemon.

pub(crate) mod closings;
pub(crate) mod events;
pub(crate) mod iter;
pub(crate) mod ladder;
pub(crate) mod loader;
pub(crate) mod maps;
pub(crate) mod overflow_hooks;
pub mod pin;
pub(crate) mod provoke;
pub(crate) mod reading;
pub(crate) mod selftest;
pub(crate) mod stale;
pub mod tracepoint;
pub(crate) mod waits;
