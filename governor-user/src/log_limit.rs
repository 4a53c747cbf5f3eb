//! Bounds how often one kind of log line is written: a peer can make it happen at any rate, and a line costs the daemon's
//! loop more than what it reports.

use std::time::{Duration, Instant};

/// Lines of one kind in a period at most.
const LINES: u32 = 20;

/// The period.
const PERIOD: Duration = Duration::from_secs(1);

/// Counts lines of one kind.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    began: Option<Instant>,
    lines: u32,
    left_out: u64,
}

impl LogLimit {
    /// Whether a line may be written now, and how many were left out since the last one that was.
    pub(crate) fn allow(&mut self, now: Instant) -> Option<u64> {
        if self.began.is_none_or(|began| now.duration_since(began) >= PERIOD) {
            self.began = Some(now);
            self.lines = 0;
        }
        if self.lines >= LINES {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_bound_are_counted_in_the_next() {
        let mut limit = LogLimit::default();
        let begin = Instant::now();
        let written = (0..100).filter(|_| limit.allow(begin).is_some()).count();
        assert_eq!(written, 20);
        assert_eq!(limit.allow(begin + PERIOD), Some(80));
        assert_eq!(limit.allow(begin + PERIOD), Some(0));
    }
}
