//! Processes, namespaces and cgroups: who holds what, and the acts that need a right.

pub(crate) mod cgroup;
pub mod locks;
pub(crate) mod netns;
pub mod own_namespaces;
pub(crate) mod pids;
pub mod preflight;
pub mod privileged;
pub mod vitals;
pub mod walk;
