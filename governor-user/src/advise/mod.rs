//! What other settings would have done: recorded demand replayed through the engine in virtual time. Pure: facts and a
//! policy in, figures out; reads no clock, no file, and touches nothing that runs.
//!
//! A replay knows when each request came and how long it ran. It does not know what clients would have done with another
//! answer: a refused request is counted and does not come back, and the retries that were recorded come as recorded.
//! Members that cooled or drained meanwhile count as they are configured now.

mod jobs;
mod replay;

pub use jobs::{Collector, Job, Jobs};
pub use replay::{Outcome, replay};
