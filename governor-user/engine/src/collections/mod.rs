//! Containers without allocation on the decision path and without an order that could be seen.

pub(crate) mod chain;
pub(crate) mod heap;
pub(crate) mod line;
pub(crate) mod slots;
pub(crate) mod table;
