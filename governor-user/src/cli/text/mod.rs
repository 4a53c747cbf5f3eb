//! How answers look: tables, facts, ids.

pub(in crate::cli) mod ids;
#[cfg(test)]
pub(in crate::cli) mod narrow;
pub(in crate::cli) mod render;
pub(in crate::cli) mod table;
