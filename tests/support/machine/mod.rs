//! The machine under test: namespaces, cgroups, confinement, and what ss and nstat say of it.

pub mod bpffs;
pub mod cgroup;
pub mod confine;
pub mod netns;
pub mod nstat;
pub mod ss;
pub mod unit;
