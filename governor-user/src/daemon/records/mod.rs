//! What is written down: decisions, changes, demand and rates, in bounded logs.

pub mod archive;
pub mod audit;
pub mod demand;
pub(in crate::daemon) mod event_log;
pub mod journal;
pub mod rates;
pub(in crate::daemon) mod recording;
pub mod ring;
pub mod sites;
