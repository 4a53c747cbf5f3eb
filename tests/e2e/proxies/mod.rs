//! Proxies: their sessions, versions of the protocol, secrets, and the shared page.

pub(crate) mod page;
pub(crate) mod quickstart;
pub(crate) mod secrets;
pub(crate) mod sessions;
pub(crate) mod versions;
