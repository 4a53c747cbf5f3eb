//! The admission engine: decides who gets a slot, who waits and who is refused. Pure: no I/O, no clock, no threads, no
//! random numbers; the same inputs give the same outputs.
//!
//! [`Engine`] is the one entry point. [`io`] says what goes in and what comes out, [`policy`] what it obeys,
//! [`snapshot`] what it shows.
#![forbid(unsafe_code)]

mod admit;
mod answer;
mod caps;
mod chain;
mod class;
mod deadline;
mod demand;
mod engine;
mod entitle;
mod heap;
pub mod id;
mod invariants;
pub mod io;
mod judge;
mod lane;
mod lease;
mod line;
mod lookup;
mod member;
mod nested;
mod overload;
mod park;
mod party;
pub mod policy;
mod pool;
mod reach;
mod reload;
mod relocate;
mod retry;
mod revoked;
mod scope;
mod session;
mod set;
mod sets;
mod share;
mod slots;
pub mod snapshot;
mod stand;
mod suspend;
mod table;
mod terms;
pub mod time;
mod traffic;
mod view;
mod wake;

pub use engine::Engine;
