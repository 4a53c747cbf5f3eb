//! A tower layer for HTTP servers: asks for a slot before a counted request reaches the handler, holds the lease until
//! the response *body* ends or is dropped, and renders refusals the way the provider's clients understand.
//!
//! # Where it goes
//!
//! Inside whatever adds CORS headers, traces and authenticates; outside routing and whatever reads the request's body. A
//! request that fails authentication asks for nothing, a refusal passes through CORS and is readable in a browser, and
//! everything refused is answered without calling the inner service, before a byte of the body is read.
//!
//! # When a lease ends
//!
//! Once, at the first of: the body's last frame or its trailers, an error or a panic in it, its drop (a client that left,
//! a reset stream, a timeout), and before there is a body, the handler's error, panic or drop. A client that shuts down
//! its sending side has left; [`Connection::watch`] sees that also behind bytes that the server does not read. What the
//! response begins
//! and does not end, a WebSocket, holds its lease until its connection does: see [`Custody`] and [`Connection`].

mod admit;
#[cfg(feature = "axum")]
pub mod axum;
mod body;
mod caller;
mod connection;
mod credential;
mod custody;
mod hold;
mod layer;
mod places;
mod service;
mod stream;

pub use admit::ChildOf;
pub use body::LeaseBody;
pub use caller::{Caller, TrustedHeaders};
pub use connection::{Attached, Connection, client_socket};
pub use credential::{CREDENTIAL_HEADERS, credential, key_from_credential};
pub use custody::Custody;
pub use layer::GovernorLayer;
pub use service::GovernorService;
pub use stream::ClientStream;
