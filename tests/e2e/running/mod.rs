//! The daemon as a process: start, state folder, service manager, containers, restarts.

pub(crate) mod containers;
pub(crate) mod restarts;
pub(crate) mod service;
pub(crate) mod start;
pub(crate) mod state;
