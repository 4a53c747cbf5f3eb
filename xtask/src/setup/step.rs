//! Progress and quiet commands: a step says what it does and how long it took; a command's own output is shown only
//! when it fails.

use anyhow::{Context, Result, bail};
use std::fmt::Arguments;
use std::process::Command;
use std::time::Instant;

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

/// Runs a command to its end and returns what it wrote to standard output; a failure names the command and shows the
/// end of what it said.
pub(super) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = said.lines().collect();
        let tail = lines.get(lines.len().saturating_sub(15)..).unwrap_or_default().join("\n  ");
        bail!("{command:?} ended with {}:\n  {tail}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
