//! `governorctl`: asks the daemon over its control socket and shows the answer to people (tables) or programs (JSON).
//! Decides nothing and reads no state of its own, but for the local checks of `doctor`,
//! and changes nothing itself but by `doctor --clean`.
//!
//! One file a subcommand; `args` is the command line, `client` the HTTP, `table` and `render` the output, `run` the frame
//! around them. Exit codes are in `answer::Exit`.

mod advise;
mod answer;
mod args;
mod bypass;
mod candidates;
mod cgroups;
mod clean;
mod client;
mod command;
mod completions;
mod config;
mod doctor;
mod drain;
mod events;
mod examples;
mod explain;
mod explain_lease;
mod explain_listener;
mod ids;
mod key;
mod key_hash;
mod keys;
mod leases;
mod listeners;
mod local;
mod manual;
mod member;
mod members;
mod namespaces;
#[cfg(test)]
mod narrow;
mod pools;
mod refusals;
mod reload;
mod render;
mod run;
mod set;
mod status;
mod table;
mod tune;

pub use manual::daemon_page;
pub use run::main;
