//! What a proxy links: it asks governord for slots, holds a lease while it works, and reads the overload level. Holds
//! no policy of its own beyond the bounded fallback for the time the daemon is away, and no kernel code.
//!
//! - [`Governor`] is the handle; [`Governor::acquire`] gives a [`Lease`] or says why not ([`Refused`]).
//! - [`tower::GovernorLayer`] does both for an HTTP server, and holds the lease until the response body ends.
//!
//! The [`guide`] leads from zero to a protected gateway.
//!
//! # Quick start
//!
//! ```
//! use std::time::Duration;
//!
//! use governor_client::{AcquireRequest, Config, Governor};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let governor = Governor::start(Config {
//!     name: "gateway".to_owned(),
//!     // There is no daemon here: after this long the fallback decides.
//!     patience: Duration::from_millis(10),
//!     ..Config::new("/run/governor/absent.sock")
//! });
//!
//! // The raw key stays here; what is sent is a keyed hash.
//! let key = governor.key(b"sk-the-callers-own-key");
//! match governor.acquire(AcquireRequest::new("chat").key(key).label("team-a")).await {
//!     Ok(lease) => {
//!         // Call upstream on `lease.member()`, and keep the lease until the response body has ended.
//!         assert!(lease.is_fallback());
//!         drop(lease);
//!     }
//!     Err(refused) => {
//!         // Answer the client: 429 is a limit of this caller, 529 is overload of the node.
//!         println!("{} {:?}: {}", refused.status(), refused.retry_after(), refused.detail());
//!     }
//! }
//! # }
//! ```
#![forbid(unsafe_code)]

mod config;
mod governor;
#[doc = include_str!("guide.md")]
pub mod guide {}
pub mod http;
mod lease;
mod protocol;
mod signals;
mod stats;
mod sync;
pub mod tower;
mod transport;

pub use config::{Config, EmptySecret, Fallback, NodeSecret};
pub use governor::{Governor, TierAsks};
pub use lease::refused::Refused;
pub use lease::request::AcquireRequest;
pub use lease::{Lease, LeaseHandle, NotResumed, Suspended};
pub use signals::Signals;
pub use stats::Stats;

pub use governor_common::signal::{PoolSignal, Signals as PageContent};
pub use governor_common::wire::KeyHash;
pub use governor_common::wire::reply::{Level, Origin, Overload, RevokeReason, cause};
pub use governor_common::wire::request::{ClientSocket, Kind, MemberNews, Priority};
