//! What the whole-system tests share: the programs under test and how to run them. Knows no test.

pub mod bins;
pub mod cgroup;
pub mod daemon;
pub mod netns;
pub mod nstat;
pub mod peer;
pub mod random;
mod skip;
pub mod ss;
pub mod workload;

pub use skip::skip;
