//! `governorctl`: asks the daemon over its control socket and shows the answer to people (tables) or programs (JSON).
//! Decides nothing and reads no state of its own, but for the local checks of `doctor`,
//! and changes nothing itself but by `doctor --clean`.
//!
//! One file a subcommand; `args` is the command line, `client` the HTTP, `render` the tables, `run` the frame
//! around them. Exit codes are in `answer::Exit`.

mod advise;
mod answer;
mod args;
mod bypass;
mod cgroups;
mod clean;
mod client;
mod completions;
mod config;
mod doctor;
mod events;
mod explain;
mod explain_listener;
mod key;
mod keys;
mod leases;
mod listeners;
mod local;
mod manual;
mod namespaces;
mod pools;
mod render;
mod run;
mod set;
mod status;
mod tune;

pub use run::main;
