//! The library against a scripted daemon on a real socket. The real daemon is tested with it in `tests/e2e`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod fallback;
mod guide;
mod heartbeat;
mod idle;
mod interleavings;
mod layer;
mod ledger;
mod nested;
mod peer;
mod runtimes;
mod secrecy;
mod server;
mod session;
mod speculative_read;
