//! Ids as people see them: each carries its kind, because a decision and a lease can have the same number. Knows no
//! daemon.

/// What an id names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Id {
    /// `d-` and hexadecimal digits: a refusal or delay.
    Decision(String),
    /// `l-` and hexadecimal digits.
    Lease(String),
    /// `s-` and a number: a proxy's session.
    Session(u64),
    /// Without a kind, as in headers and JSON.
    Plain(String),
}

impl Id {
    /// Reads an id; what is none is left to the daemon to refuse.
    pub(in crate::cli) fn parse(text: &str) -> Self {
        let text = text.trim();
        match (text.split_once('-'), text.strip_prefix("s-").and_then(|number| number.parse().ok())) {
            (_, Some(session)) => Self::Session(session),
            (Some(("d", rest)), _) => Self::Decision(rest.to_owned()),
            (Some(("l", rest)), _) => Self::Lease(rest.to_owned()),
            _ => Self::Plain(text.to_owned()),
        }
    }
}

/// A decision's id with its kind.
pub(in crate::cli) fn decision(id: &str) -> String {
    format!("d-{id}")
}

/// A lease's id with its kind.
pub(in crate::cli) fn lease(id: &str) -> String {
    format!("l-{id}")
}

/// A session's id with its kind.
pub(in crate::cli) fn session(id: u64) -> String {
    format!("s-{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_what_it_names() {
        assert_eq!(Id::parse("d-0001000000000007"), Id::Decision("0001000000000007".into()));
        assert_eq!(Id::parse("l-0001000000000007"), Id::Lease("0001000000000007".into()));
        assert_eq!(Id::parse("s-12"), Id::Session(12));
        assert_eq!(Id::parse(" 0001000000000007\n"), Id::Plain("0001000000000007".into()));
        assert_eq!(Id::parse("s-x"), Id::Plain("s-x".into()));
        for (shown, id) in [(decision("1f"), Id::Decision("1f".into())), (lease("1f"), Id::Lease("1f".into()))] {
            assert_eq!(Id::parse(&shown), id);
        }
        assert_eq!(Id::parse(&session(7)), Id::Session(7));
    }
}
