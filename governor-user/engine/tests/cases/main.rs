//! Cases from the field, through the engine's surface only. A test that replays a whole case names its situation first.

mod anonymous;
mod caps;
mod claims;
mod idle;
mod leases;
mod limits;
mod members;
mod orders;
mod orgs;
mod parking;
mod reload;
mod retry_after;
mod shares;
mod world;
