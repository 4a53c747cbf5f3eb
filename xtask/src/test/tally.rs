//! Runs a step's program and counts what came of it. The program's output passes through, line by line.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

/// How many tests, or checks that count as one, ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: u64,
    pub(super) failed: u64,
    /// What could not run here: lines that start with `SKIP:`.
    pub(super) skipped: u64,
}

impl Tally {
    /// One check that failed.
    pub(super) const FAILED: Self = Self { passed: 0, failed: 1, skipped: 0 };

    /// Both together.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }

    /// Takes account of one line of a test runner's output.
    fn read(&mut self, line: &str) {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += count(result, " passed");
            self.failed += count(result, " failed");
        } else if line.trim_start().starts_with("SKIP:") {
            self.skipped += 1;
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

/// Runs a check that has no tests in it: it counts only when it fails.
pub(super) fn check(command: &mut Command) -> Tally {
    match command.status() {
        Ok(status) if status.success() => Tally::default(),
        Ok(_) => Tally::FAILED,
        Err(error) => not_started(command, &error),
    }
}

/// Runs a test runner. One that fails without naming a failed test (it did not compile, it crashed) counts as one.
pub(super) fn tests(command: &mut Command) -> Tally {
    let mut child = match command.stdout(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => return not_started(command, &error),
    };
    let mut tally = Tally::default();
    if let Some(output) = child.stdout.take() {
        pass_through(output, &mut tally);
    }
    let success = child.wait().is_ok_and(|status| status.success());
    if !success && tally.failed == 0 {
        tally.failed = 1;
    }
    tally
}

/// Tests may write bytes that are no text; those lines pass through like the others.
fn pass_through(output: impl Read, tally: &mut Tally) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    let mut out = std::io::stdout().lock();
    while output.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        // Counting goes on when the output has no reader any more.
        drop(out.write_all(&line));
        tally.read(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    drop(out.flush());
}

#[expect(clippy::print_stderr, reason = "the command's own report")]
fn not_started(command: &Command, error: &std::io::Error) -> Tally {
    eprintln!("cannot start {command:?}: {error}");
    Tally::FAILED
}

/// The number before `word`, e.g. 3 in `ok. 3 passed; 0 failed` for ` passed`.
fn count(result: &str, word: &str) -> u64 {
    result
        .split_once(word)
        .and_then(|(before, _)| before.rsplit(|c: char| !c.is_ascii_digit()).next())
        .and_then(|digits| digits.parse().ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.read(line));
        tally
    }

    #[test]
    fn results_of_several_binaries_add_up() {
        let tally = read(&[
            "running 31 tests",
            "test a ... ok",
            "test result: ok. 31 passed; 0 failed; 0 ignored; 0 measured; 2 filtered out; finished in 0.13s",
            "test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s",
        ]);
        assert_eq!(tally.to_string(), "35 passed, 2 failed");
    }

    #[test]
    fn skips_are_counted_only_where_they_happened() {
        let tally = read(&["SKIP: not root", "  SKIP: no BTF", "a line that mentions SKIP: in passing"]);
        assert_eq!(tally.to_string(), "0 passed, 0 failed, 2 skipped");
    }

    #[test]
    fn a_runner_that_fails_without_a_failed_test_counts_as_one() {
        assert_eq!(tests(&mut Command::new("false")), Tally::FAILED);
        assert_eq!(tests(&mut Command::new("/nonexistent/runner")), Tally::FAILED);
        assert_eq!(check(&mut Command::new("true")), Tally::default());
    }
}
