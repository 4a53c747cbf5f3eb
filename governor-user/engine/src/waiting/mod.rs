//! Requests that wait, in the order in which they deserve a slot, and who goes when something changed.

pub(crate) mod lane;
pub(crate) mod park;
pub(crate) mod stand;
