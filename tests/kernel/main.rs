//! The kernel plane against the running kernel: real sockets in private network namespaces and cgroups, compared with
//! `ss`. BPF sees the whole machine, so each test first takes the machine's lock (`support::alone`). Without the rights
//! each test says what it skipped; `GOVERNOR_REQUIRE_KERNEL=1` turns that into a failure.

mod campaign;
mod clients;
mod connections;
mod counters;
mod failing;
mod generations;
mod groups;
mod life;
mod listeners;
mod namespaces;
mod overflow;
mod recorder;
mod report;
mod restart;
mod scale;
mod sojourn;
mod storm;
mod styles;
mod surroundings;
mod tiers;
mod tuner;
mod tuner_orders;
mod tuner_proxies;
mod tuner_world;
mod variants;
mod verdicts;
mod world;
