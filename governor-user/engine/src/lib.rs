//! The admission engine: decides who gets a slot, who waits and who is refused. Pure: no I/O, no clock, no threads, no
//! random numbers; the same inputs give the same outputs.
#![forbid(unsafe_code)]

pub mod id;
pub mod io;
pub mod policy;
pub mod snapshot;
pub mod time;
