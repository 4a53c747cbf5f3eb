//! End to end: a real `governord` on sockets of its own, and real clients. One module an area.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod admission;
mod advise;
mod clients;
mod connections;
mod containers;
mod drain;
mod endings;
mod gateway;
mod hostile;
mod idle;
mod keys;
mod large;
mod members;
mod metrics;
mod minimal;
mod official;
mod overload;
mod page;
mod pipeline;
mod plans;
mod quickstart;
mod raw;
mod replay;
mod restarts;
mod secrets;
mod service;
mod sessions;
mod settings;
mod site;
mod start;
mod state;
mod versions;
mod world;
