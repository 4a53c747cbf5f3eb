//! What the whole-system tests share: the programs under test and how to run them. Knows no test.

pub mod bins;
pub mod daemon;
mod skip;

pub use skip::skip;
