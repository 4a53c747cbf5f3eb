//! What operators order at run time, kept over restarts: bypass, drain, single keys and members.

pub mod bypass;
pub mod drain;
pub(crate) mod key_merge;
pub mod key_orders;
pub mod key_overrides;
pub mod members;
mod reason;
