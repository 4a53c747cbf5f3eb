//! The driver: the one loop that owns all state, its messages, and its views.

mod answers;
mod event_loop;
pub(crate) mod levels;
pub mod messages;
pub mod operator;
mod orders;
mod recording;
pub mod restart;
pub mod sessions;
mod upkeep;
pub mod view;

pub use event_loop::{Driver, Parts};
