//! Subcommands about requests: pools, members, keys, leases, refusals and their explanations.

pub(in crate::cli) mod advise;
pub(in crate::cli) mod explain;
pub(in crate::cli) mod explain_lease;
pub(in crate::cli) mod key;
pub(in crate::cli) mod key_hash;
pub(in crate::cli) mod keys;
pub(in crate::cli) mod leases;
pub(in crate::cli) mod member;
pub(in crate::cli) mod members;
pub(in crate::cli) mod pools;
pub(in crate::cli) mod refusals;
