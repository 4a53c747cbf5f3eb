//! The members that a session named in frames before its `Acquire`. One list a session, of bounded length; any other frame
//! drops it.

use governor_common::wire::codec::MAX_CANDIDATES;
use std::mem;

/// Bytes that a name takes in a frame beside its own.
const TLV: usize = 4;

/// The list that is being sent.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    /// The request it is for.
    request: u32,
    names: Vec<Box<str>>,
    /// What the names take in frames, also of those that were not kept.
    bytes: usize,
}

impl Candidates {
    /// Takes the names of one frame.
    pub(crate) fn add(&mut self, request: u32, names: &[&str]) {
        if self.request != request {
            *self = Self { request, ..Self::default() };
        }
        let bytes: usize = names.iter().map(|name| name.len() + TLV).sum();
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_CANDIDATES {
            self.names = Vec::new();
        } else {
            self.names.extend(names.iter().map(|name| Box::from(*name)));
        }
    }

    /// The names for this request; the list is empty afterwards.
    ///
    /// # Errors
    /// One sentence for the client: the list is too long.
    pub(crate) fn take(&mut self, request: u32) -> Result<Vec<Box<str>>, String> {
        let Self { request: of, names, bytes } = mem::take(self);
        if of != request {
            return Ok(Vec::new());
        }
        if bytes > MAX_CANDIDATES {
            return Err(format!(
                "the names of its candidates take {bytes} bytes, at most {MAX_CANDIDATES}: name fewer members, or a pool \
                 that has only these"
            ));
        }
        Ok(names)
    }

    /// Drops the list.
    pub(crate) fn clear(&mut self) {
        if self.bytes > 0 {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_belongs_to_one_request_and_is_taken_once() {
        let mut list = Candidates::default();
        list.add(1, &["a", "b"]);
        list.add(1, &["c"]);
        assert_eq!(list.take(1).unwrap(), ["a", "b", "c"].map(Box::from));
        assert_eq!(list.take(1).unwrap(), []);
        list.add(1, &["a"]);
        list.add(2, &["b"]);
        assert_eq!(list.take(2).unwrap(), [Box::from("b")]);
        list.add(1, &["a"]);
        assert_eq!(list.take(2).unwrap(), []);
        assert_eq!(list.take(1).unwrap(), [], "another request dropped it");
    }

    #[test]
    fn a_list_that_is_too_long_keeps_nothing_and_is_refused() {
        let mut list = Candidates::default();
        let name = "n".repeat(124);
        for _ in 0..=MAX_CANDIDATES / 128 {
            list.add(1, &[&name]);
        }
        assert!(list.names.is_empty());
        assert!(list.take(1).unwrap_err().contains("524416 bytes, at most 524288"));
        assert_eq!(list.take(1).unwrap(), []);
    }
}
