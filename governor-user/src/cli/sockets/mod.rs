//! Subcommands about listening sockets and what surrounds them.

pub(in crate::cli) mod cgroups;
pub(in crate::cli) mod explain_listener;
pub(in crate::cli) mod listeners;
pub(in crate::cli) mod namespaces;
pub(in crate::cli) mod tune;
