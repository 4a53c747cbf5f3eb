//! What is said to the daemon and what its answers mean, without I/O: the session as a state machine, and the fallback that
//! decides while no daemon answers.

pub(crate) mod exchange;
pub(crate) mod fallback;
