//! A tower layer for HTTP servers: asks for a slot before a counted request reaches the handler, holds the lease until
//! the response *body* ends or is dropped, and renders refusals the way the provider's clients understand.
//!
//! The layer sits inside whatever adds CORS and tracing, and outside the handler that calls upstream. Everything it
//! refuses is answered without calling the inner service.

mod body;
mod layer;
mod service;

pub use body::LeaseBody;
pub use layer::{GovernorLayer, bearer_or_api_key};
pub use service::GovernorService;
