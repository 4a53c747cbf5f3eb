//! The admission engine: decides who gets a slot, who waits and who is refused. Pure: no I/O, no clock, no threads, no
//! random numbers; the same inputs give the same outputs.
//!
//! [`Engine`] is the one entry point. [`io`] says what goes in and what comes out, [`policy`] what it obeys,
//! [`snapshot`] what it shows.
#![forbid(unsafe_code)]

mod admit;
mod class;
mod demand;
mod engine;
pub mod id;
mod invariants;
pub mod io;
mod lease;
mod load;
mod lookup;
mod member;
mod park;
pub mod policy;
mod pool;
mod reload;
mod retry;
mod session;
mod set;
mod share;
pub mod snapshot;
pub mod time;
mod traffic;
mod view;

pub use engine::Engine;
