//! Sockets of proxies: how they are bound, who is at the other end, and what waits to be sent.

pub(crate) mod descriptor;
#[expect(unsafe_code, reason = "registering a descriptor with the event loop; see its safety comment")]
mod fd;
pub mod gate;
pub mod listener;
pub mod outbox;
pub mod peer;
