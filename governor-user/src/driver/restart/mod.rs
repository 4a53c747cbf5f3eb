//! What a run leaves to the next one: leases, their sessions, and the number of the run.

pub mod checkpoint;
pub(crate) mod epoch;
pub(crate) mod former;
