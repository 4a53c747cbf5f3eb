//! The reason that an operator gives with an order: how long it may be, and as what it is kept.

/// Characters at most.
const LONGEST: usize = 500;

/// Why a reason is not taken; `None` if it is short enough.
pub(super) fn fault(reason: Option<&str>) -> Option<String> {
    (reason?.chars().count() > LONGEST).then(|| format!("a reason has at most {LONGEST} characters"))
}

/// One line of text: control characters could steer the terminal of the next operator.
pub(super) fn plain(reason: &str) -> String {
    reason.chars().filter(|c| !c.is_control()).collect()
}

/// The same, cut where it is too long: for orders that no reason may hold up.
pub(super) fn cut(reason: &str) -> String {
    reason.chars().filter(|c| !c.is_control()).take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_of_bounded_length() {
        let long = "é".repeat(LONGEST + 1);
        assert_eq!(fault(Some(&long)).as_deref(), Some("a reason has at most 500 characters"));
        assert_eq!((fault(Some(&long[2..])), fault(None)), (None, None));
        assert_eq!((plain("new\n\u{1b}[2Jkernel"), cut(&long).chars().count()), ("new[2Jkernel".to_owned(), LONGEST));
    }
}
