//! The kernel plane against the running kernel: real sockets in private network namespaces and cgroups, compared with
//! `ss`. BPF sees the whole machine, so each test first takes the machine's lock (`support::alone`). Without the rights
//! each test says what it skipped; `GOVERNOR_REQUIRE_KERNEL=1` turns that into a failure.

mod counting;
mod daemons;
mod queues;
mod recorder;
mod report;
mod tiers;
mod tuning;
mod verdicts;
mod world;
