//! The backlogs of listeners: what the samples of one say ([`burst`]), what to do about it ([`policy`]) and what that comes to
//! ([`plan`]); and the [`tuner`] of all of them, which plans actions and takes their results. Pure: observations, results
//! and time come in, actions and records go out.

mod action;
pub mod burst;
pub mod plan;
pub mod policy;
mod selector;
mod settings;
pub mod tuner;

pub use action::TunerAction;
pub use selector::{ListenerPattern, Selector};
pub use settings::{AtExit, ListenerPolicy, TunerConfig, TunerMode};
