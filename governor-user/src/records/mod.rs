//! What is written down: decisions, changes, demand and rates, in bounded logs.

pub mod archive;
pub mod audit;
pub mod decision;
pub mod demand;
pub(crate) mod event_log;
pub mod explain;
pub mod journal;
pub mod rates;
pub mod ring;
pub mod sites;
