//! What a run leaves to the next one: leases, their sessions, and the number of the run.

pub mod checkpoint;
pub(in crate::daemon) mod epoch;
pub(in crate::daemon) mod former;
