//! What proxies say and are sent, and what is known of their keys and clients.

pub(in crate::daemon) mod candidates;
pub mod clients;
pub mod labels;
pub(in crate::daemon) mod light;
pub(in crate::daemon) mod limits;
pub mod page;
pub(in crate::daemon) mod requests;
pub mod translate;
pub mod turns;
