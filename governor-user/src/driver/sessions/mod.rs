//! What proxies say and are sent, and what is known of their keys and clients.

pub(crate) mod candidates;
pub(crate) mod client_rounds;
pub mod clients;
pub mod labels;
pub(crate) mod light;
pub(crate) mod limits;
pub mod page;
pub(crate) mod requests;
pub mod translate;
pub mod turns;
