//! Hostile bytes: whatever crosses a boundary is read from arbitrary bytes, and a property that must hold for all of them is
//! checked. Every run replays the committed corpus and adds a fixed number of changed inputs, the same each time;
//! `GOVERNOR_FULL=1` goes on for a minute a target with inputs of its own. `GOVERNOR_BLESS=1` keeps what it found new.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod campaign;
mod mutate;
mod targets;

use campaign::run;
use targets::{config, events, frames, leases, page};

#[test]
fn frames_come_out_the_same_however_the_stream_is_cut_and_what_is_accepted_can_be_said_again() {
    run("frames", frames::hold, &frames::seeds());
}

#[test]
fn a_page_of_any_bytes_is_read_or_refused() {
    run("page", page::hold, &page::seeds());
}

#[test]
fn a_configuration_is_accepted_or_every_problem_has_its_place() {
    run("config", config::hold, &config::seeds());
}

#[test]
fn events_of_any_bytes_are_parsed_or_passed_over() {
    run("events", events::hold, &events::seeds());
}

#[test]
fn leases_follow_the_model_whatever_sessions_do() {
    run("leases", leases::hold, &leases::seeds());
}
