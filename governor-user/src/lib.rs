//! The daemon and its command line as one library; the binaries are thin. Acts on what the engine decides and on what
//! the kernel plane observes; decides nothing about admission itself.

pub mod advise;
pub mod cli;
pub mod config;
pub mod control;
pub mod daemon;
pub mod driver;
pub mod findings;
mod log_limit;
pub mod metrics;
pub mod naming;
pub mod node;
pub mod process;
pub mod proxy;
pub mod recorder;
pub mod records;
pub mod state;
pub mod transport;
pub mod tuner;
