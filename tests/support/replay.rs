//! Decision records put to the engine once more: from the numbers of a record a state is rebuilt that has them, the
//! request is made again, and the two answers are compared. Knows no daemon and no clock.

mod record;
mod state;

pub use record::{ReadError, read};

use governor_api::{Decision, Outcome};
use state::{Answer, State};
use std::fmt;

/// What became of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The engine decides the same on the same numbers.
    Same,
    /// It decides something else: one sentence a difference.
    Different(Vec<String>),
    /// No state with these numbers can be rebuilt: why.
    NotReplayed(&'static str),
}

/// Replays one record.
#[must_use]
pub fn replay(record: &Decision) -> Verdict {
    let mut state = match State::rebuild(record) {
        Ok(state) => state,
        Err(why) => return Verdict::NotReplayed(why),
    };
    match state.ask() {
        Answer::Decided(answer) if !has_numbers_of(&answer, record) => {
            Verdict::NotReplayed("it depends on requests that waited, which a record does not list")
        }
        Answer::Decided(answer) => compare(record, &answer),
        Answer::Granted => Verdict::Different(vec!["the request is granted".to_owned()]),
        Answer::Waits => Verdict::Different(vec!["the request waits".to_owned()]),
    }
}

/// Whether the rebuilt state was the recorded one, as far as a record tells.
fn has_numbers_of(answer: &Decision, record: &Decision) -> bool {
    let state = |decision: &Decision| {
        let n = &decision.numbers;
        (n.key_in_flight, n.in_flight, n.capacity, n.active_keys, n.filled)
    };
    state(answer) == state(record)
}

fn compare(record: &Decision, answer: &Decision) -> Verdict {
    let mut differences = Vec::new();
    let mut check = |what: &str, was: &dyn fmt::Display, is: &dyn fmt::Display| {
        if was.to_string() != is.to_string() {
            differences.push(format!("{what} was {was} and is {is}"));
        }
    };
    check("the outcome", &name(record.outcome), &name(answer.outcome));
    check("the reason", &record.reason, &answer.reason);
    check("the origin", &record.origin, &answer.origin);
    check("the status", &record.status, &answer.status);
    if record.reason == "fair_share" {
        check("the share", &record.numbers.share, &answer.numbers.share);
    }
    check("the limit", &record.numbers.limit, &answer.numbers.limit);
    check("what counted against it", &record.numbers.limited, &answer.numbers.limited);
    if differences.is_empty() { Verdict::Same } else { Verdict::Different(differences) }
}

fn name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Shed => "shed",
        Outcome::WouldPark => "would_park",
        Outcome::WouldRefuse => "would_refuse",
    }
}

#[cfg(test)]
mod tests;
