//! The admission engine: decides who gets a slot, who waits and who is refused. Pure: no I/O, no clock, no threads, no
//! random numbers; the same inputs give the same outputs.
//!
//! [`Engine`] is the one entry point. [`io`] says what goes in and what comes out, [`policy`] what it obeys,
//! [`snapshot`] what it shows.
#![forbid(unsafe_code)]

mod collections;
mod engine;
mod fairness;
pub mod id;
mod identity;
pub mod io;
mod leases;
mod members;
pub mod policy;
mod pools;
pub mod snapshot;
pub mod time;
mod waiting;

pub use engine::Engine;
