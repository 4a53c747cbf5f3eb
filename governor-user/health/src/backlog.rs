//! The backlog of one listener: what its samples say ([`burst`]), what to do ([`policy`]), and what that comes to ([`plan`]).
//! Pure: samples and time come in, orders go out.

pub mod burst;
pub mod plan;
pub mod policy;
mod settings;

pub use settings::{ListenerPolicy, TunerMode};
