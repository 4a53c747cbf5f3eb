//! Accept queues: depth, waits, refusals, and every way to listen and accept.

pub(crate) mod generations;
pub(crate) mod groups;
pub(crate) mod listeners;
pub(crate) mod overflow;
pub(crate) mod sojourn;
pub(crate) mod storm;
pub(crate) mod styles;
pub(crate) mod variants;
