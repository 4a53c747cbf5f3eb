//! What a benchmark says while it works, on standard error: its report has standard output to itself.

use std::fmt::Arguments;
use std::io::{Write, stderr};

/// Says what is being done. A reader that has gone is no error.
pub fn progress(words: Arguments<'_>) {
    drop(writeln!(stderr(), "{words}"));
}
