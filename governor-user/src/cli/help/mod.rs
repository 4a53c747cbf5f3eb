//! Help, manual and completions.

pub(in crate::cli) mod command;
pub(in crate::cli) mod completions;
pub(in crate::cli) mod examples;
pub(in crate::cli) mod manual;
