//! Connections, clients, and the counters of whole namespaces.

pub(crate) mod campaign;
pub(crate) mod clients;
pub(crate) mod connections;
pub(crate) mod counters;
pub(crate) mod namespaces;
pub(crate) mod scale;
