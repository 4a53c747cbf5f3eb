//! Pure bookkeeping: what the sources say becomes one row a listener, a namespace and a cgroup.

pub(crate) mod abandoned;
pub(crate) mod assemble;
pub(crate) mod closed;
pub(crate) mod connections;
pub(crate) mod findings;
pub mod groups;
pub(crate) mod reconcile;
pub(crate) mod refusals;
pub(crate) mod suspicion;
pub(crate) mod waits;
