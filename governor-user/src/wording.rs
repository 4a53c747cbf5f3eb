//! How counts and errors read in a sentence for people. Knows no sentence.

use std::error::Error;
use std::fmt;

/// An error with its causes on one line; a cause that the line already ends with is not repeated.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !line.ends_with(&text) {
            line.push_str(&format!(": {text}"));
        }
        cause = error.source();
    }
    line
}

/// `count` with what is said of one, or of so many: `1 process has ended`, `2 processes have ended`.
pub(crate) fn counted<'a>(count: impl TryInto<u64>, one: &'a str, many: &'a str) -> Counted<'a> {
    Counted { count: count.try_into().unwrap_or(u64::MAX), one, many }
}

/// See [`counted`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted<'a> {
    count: u64,
    one: &'a str,
    many: &'a str,
}

impl fmt::Display for Counted<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.count, if self.count == 1 { self.one } else { self.many })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_written_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot read a.toml{0}")]
        struct Unreadable(&'static str, #[source] std::io::Error);
        let cause = || std::io::Error::other("disk on fire");
        assert_eq!(chain(&Unreadable("", cause())), "cannot read a.toml: disk on fire");
        assert_eq!(chain(&Unreadable(": disk on fire", cause())), "cannot read a.toml: disk on fire");
    }

    #[test]
    fn only_one_is_one() {
        let read = [0_u64, 1, 2].map(|count| counted(count, "slot is free", "slots are free").to_string());
        assert_eq!(read, ["0 slots are free", "1 slot is free", "2 slots are free"]);
    }
}
