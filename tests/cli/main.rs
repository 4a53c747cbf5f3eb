//! `governorctl` as people and scripts meet it: transcripts against a real `governord`, help, exit codes, pipes and
//! colours. One module a concern.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod help;
mod levers;
mod operations;
mod output;
mod readme;
mod status;
mod transcript;
mod transcripts;
mod unreachable;
mod world;
