//! What a proxy links: it asks governord for slots, holds a lease while it works, and reads the overload level. Holds
//! no policy of its own beyond the bounded fallback for the time the daemon is away, and no kernel code.
//!
//! - [`Governor`] is the handle; [`Governor::acquire`] gives a [`Lease`] or says why not ([`Refused`]).
//! - [`tower::GovernorLayer`] does both for an HTTP server, and holds the lease until the response body ends.
#![forbid(unsafe_code)]

mod ask;
mod client;
mod config;
mod error;
mod exchange;
mod fallback;
pub mod http;
mod lease;
mod session;
pub mod tower;

pub use ask::AcquireRequest;
pub use client::{Governor, Stats};
pub use config::{Config, Fallback, NodeSecret};
pub use error::Refused;
pub use lease::{Lease, LeaseHandle};

pub use governor_common::wire::KeyHash;
pub use governor_common::wire::reply::{Level, Origin, Overload, RevokeReason, cause};
pub use governor_common::wire::request::{Kind, MemberNews};
