//! Progress and quiet commands: a step says what it does and how long it took; a command's own output is shown only
//! when it fails.

use anyhow::Result;
use std::fmt::Arguments;
use std::time::Instant;

pub(super) use crate::exec::output;

/// Says one line on standard error.
#[expect(clippy::print_stderr, reason = "progress of a command-line program")]
pub(super) fn say(line: Arguments<'_>) {
    eprintln!("setup: {line}");
}

/// Runs one step, naming it before and its duration after.
pub(super) fn timed<T>(what: Arguments<'_>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    say(format_args!("{what} …"));
    let started = Instant::now();
    let done = work()?;
    say(format_args!("{what}: done in {:.1} s", started.elapsed().as_secs_f64()));
    Ok(done)
}
