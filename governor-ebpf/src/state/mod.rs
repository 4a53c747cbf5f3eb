//! The maps, what they hold, and how it changes.

pub(crate) mod atomic;
pub(crate) mod cells;
pub(crate) mod connection;
pub(crate) mod emit;
pub(crate) mod error;
pub(crate) mod leased;
pub(crate) mod listener;
pub(crate) mod maps;
pub(crate) mod overflow;
pub(crate) mod queue;
pub(crate) mod quick;
