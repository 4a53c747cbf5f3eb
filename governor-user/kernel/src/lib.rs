//! The kernel plane: observes sockets by the best tier that works here and publishes [`governor_observation::Observation`]s. Knows
//! nothing about leases, pools or HTTP.
//!
//! ```text
//!   spawn ─▶ plane (one OS thread) ─▶ sampler ─┬─ sockdiag / procfs   depth, backlog, drops now
//!                │ watch channel               ├─ netstat             counters of a whole namespace
//!                │                             ├─ BPF maps            peak, enqueued, connections
//!                ▼                             ├─ netns, cgroup, pids names for what was seen
//!            Arc<Observation>                  └─ assemble            one row a listener
//! ```

pub mod accounting;
mod btf;
pub mod clients;
mod foreign;
mod options;
mod plane;
pub mod proc;
pub mod programs;
mod rows;
mod sampler;
mod sources;
pub mod tables;
mod tier;

pub use foreign::tracing_programs;
pub use options::{Options, PlaneError};
pub use plane::{Plane, spawn};
pub use programs::closings::Closings;
