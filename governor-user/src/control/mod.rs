//! The control API: HTTP and JSON over a Unix socket, read by people with `curl` and by `governorctl`.

mod advice;
pub mod doctor;
mod keys;
mod listeners;
mod members;
mod problem;
mod refusals;
pub mod server;
pub mod serving;
mod tuner;
pub mod verdicts;
pub mod views;
