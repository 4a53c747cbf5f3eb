//! How a count reads in a sentence for people. Knows no sentence.

use std::fmt;

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
    fn only_one_is_one() {
        let read = [0_u64, 1, 2].map(|count| counted(count, "slot is free", "slots are free").to_string());
        assert_eq!(read, ["0 slots are free", "1 slot is free", "2 slots are free"]);
    }
}
