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

mod abandoned;
mod assemble;
mod btf;
mod cgroup;
pub mod clients;
mod closed;
mod closings;
mod connections;
#[expect(unsafe_code, reason = "a socket option that no crate wraps")]
mod deferred;
mod events;
mod findings;
mod foreign;
pub mod groups;
mod iter;
mod ladder;
#[expect(unsafe_code, reason = "two socket calls that no crate wraps")]
pub mod listening;
mod loader;
pub mod locks;
mod maps;
mod netns;
mod netstat;
mod overflow_hooks;
pub mod own_namespaces;
mod pids;
pub mod pin;
mod plane;
pub mod preflight;
pub mod privileged;
mod procfs;
mod provoke;
mod reading;
mod reconcile;
mod refusals;
mod sampler;
mod selftest;
mod sockdiag;
mod sources;
mod stale;
mod suspicion;
mod tier;
pub mod tracepoint;
pub mod vitals;
mod waits;
pub mod walk;

pub use closings::Closings;
pub use foreign::tracing_programs;
pub use plane::{Options, Plane, PlaneError, spawn};
