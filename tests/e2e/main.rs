//! End to end: a real `governord` on sockets of its own, and real clients. One module an area.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod gateway;
mod hostile;
mod minimal;
mod official;
mod operator;
mod proxies;
mod raw;
mod requests;
mod running;
mod signals;
mod site;
mod world;
