//! Read-only answers for display and for the caller's loop.

pub(crate) mod lookup;
pub(crate) mod view;
