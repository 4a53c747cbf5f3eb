//! Whether it pays to look for an answer right after the question. Where proxy and daemon share a processor, the kernel
//! often runs the daemon within the write that asks; elsewhere its answer is never there so soon. This is not
//! configured: this goes by how it went.

/// Failed speculative reads that are made after the last one that paid.
const CREDIT: u8 = 8;

/// Without credit one in so many is tried.
const PROBE: u8 = 32;

/// How it went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpeculativeRead {
    credit: u8,
    asked: u8,
}

impl SpeculativeRead {
    pub(crate) fn new() -> Self {
        Self { credit: CREDIT, asked: 0 }
    }

    /// Whether to look this time.
    pub(crate) fn looks(&mut self) -> bool {
        self.asked = (self.asked + 1) % PROBE;
        self.credit > 0 || self.asked == 0
    }

    /// There was something, or nothing.
    pub(crate) fn found(&mut self, something: bool) {
        self.credit = if something { CREDIT } else { self.credit.saturating_sub(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(read: &mut SpeculativeRead, asked: u32, something: impl Fn(u32) -> bool) -> u32 {
        (0..asked).filter(|n| read.looks().then(|| read.found(something(*n))).is_some()).count().try_into().unwrap()
    }

    #[test]
    fn who_is_answered_at_once_now_and_then_looks_always_and_who_never_is_soon_gives_up() {
        let mut read = SpeculativeRead::new();
        assert_eq!(looks(&mut read, 1_000, |n| n.is_multiple_of(8)), 1_000);
        assert!((30..=45).contains(&looks(&mut read, 1_000, |_| false)), "some for credit, then one in {PROBE}");
        assert!(looks(&mut read, 1_000, |_| true) > 960, "the first that pays gives credit");
    }
}
