//! The programs under test and beside it: where they are, started, asked and stopped.

pub mod bins;
pub mod daemon;
pub mod peer;
pub mod proxy;
pub mod python;
