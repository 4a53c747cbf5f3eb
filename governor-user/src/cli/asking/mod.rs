//! The daemon's control socket, asked for answers and for completions.

pub(in crate::cli) mod candidates;
pub(in crate::cli) mod client;
