//! Subcommands about the daemon as a whole: its state, settings, switches and records.

pub(in crate::cli) mod bypass;
pub(in crate::cli) mod clean;
pub(in crate::cli) mod config;
pub(in crate::cli) mod doctor;
pub(in crate::cli) mod drain;
pub(in crate::cli) mod events;
pub(in crate::cli) mod local;
pub(in crate::cli) mod reload;
pub(in crate::cli) mod set;
pub(in crate::cli) mod status;
