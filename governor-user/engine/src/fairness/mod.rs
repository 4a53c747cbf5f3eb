//! Shares: who is entitled to how much of the slots that a request may use.

pub(crate) mod demand;
pub(crate) mod reach;
pub(crate) mod scope;
pub(crate) mod set;
pub(crate) mod sets;
pub(crate) mod share;
