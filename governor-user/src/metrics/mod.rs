//! Metrics: what a view, an observation and the [`Recorder`](crate::recorder::Recorder) say at each scrape. Labels are bounded; no raw key and no client
//! address is ever one.

pub mod families;
mod kernel;
pub mod negotiate;
mod overload;
mod page;
pub mod serve;
mod sojourn;
mod tuner;
