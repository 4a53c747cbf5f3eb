//! The proxy socket: who connects, what bytes come and go. Translates between frames and the driver's messages; decides
//! nothing.

pub mod accept;
pub mod census;
mod descriptor;
#[expect(unsafe_code, reason = "registering a descriptor with the event loop; see its safety comment")]
mod fd;
pub mod gate;
pub mod listener;
pub mod outbox;
pub mod peer;
pub mod session;
