//! Shortens a history that fails: leaves out what it fails without. What is left need not fail in the same way; it is
//! where to look first.

use super::History;
use super::Step;
use super::pair::Pair;
use std::any::Any;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};

/// The history as text, shortened.
pub(super) fn shortest(mut history: History) -> String {
    // From here on a panic is a step of the search.
    set_hook(Box::new(|_| {}));
    let mut size = history.steps.len().div_ceil(2);
    while size > 0 {
        let mut from = 0;
        let before = history.steps.len();
        while from < history.steps.len() {
            let mut shorter = history.clone();
            shorter.steps.drain(from..(from + size).min(history.steps.len()));
            if fails(&shorter) { history = shorter } else { from += size }
        }
        // Singles are tried until none can be left out.
        if size > 1 || history.steps.len() == before {
            size /= 2;
        }
    }
    describe(&history)
}

fn fails(history: &History) -> bool {
    replay(history).is_err()
}

/// Runs it again; what the first check that fails says.
fn replay(history: &History) -> Result<(), String> {
    let run = || {
        let mut pair = Pair::new(&history.policy);
        for step in history.steps.iter().cloned() {
            pair.step(step);
        }
        pair.drain();
    };
    let said = |panic: Box<dyn Any + Send>| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
    };
    catch_unwind(AssertUnwindSafe(run)).map_err(said)
}

fn describe(history: &History) -> String {
    let mut text = format!("{:?}\n", history.policy);
    for Step { at, input } in &history.steps {
        let input = input.as_ref().map_or_else(|| "time passes".to_owned(), |input| format!("{input:?}"));
        writeln!(text, "at {} ms: {input}", at.0 / 1_000_000).expect("a string takes all");
    }
    text + &replay(history).err().unwrap_or_default()
}
