//! How counts, errors and names from elsewhere read in what people see. Knows no sentence.

use std::error::Error;
use std::fmt;

/// An error with its causes on one line; a cause that the line already ends with is not repeated.
pub fn chain(error: &dyn Error) -> String {
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
pub fn counted<'a>(count: impl TryInto<u64>, one: &'a str, many: &'a str) -> Counted<'a> {
    Counted { count: count.try_into().unwrap_or(u64::MAX), one, many }
}

/// See [`counted`].
#[derive(Clone, Copy, Debug)]
pub struct Counted<'a> {
    count: u64,
    one: &'a str,
    many: &'a str,
}

impl fmt::Display for Counted<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.count, if self.count == 1 { self.one } else { self.many })
    }
}

/// Text from elsewhere (labels, session names, paths) as people may see it: characters that steer a terminal, change the
/// direction of what follows, or cannot be seen are written as `\u{…}`.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_deceptive(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Whether a character is a control or format character, invisible, or a space that is not one: `Cc`, `Cf`, `Zl`, `Zp`, the
/// fillers that fonts draw as nothing, variation selectors and tags.
fn is_deceptive(c: char) -> bool {
    c.is_control()
        || (c.is_whitespace() && c != ' ')
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}'
            | '\u{8e2}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
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

    #[test]
    fn characters_that_deceive_are_escaped() {
        for (text, shown) in [
            ("team-blue ä 日本", "team-blue ä 日本"),
            ("a\u{1b}[2Jb\n", "a\\u{1b}[2Jb\\u{a}"),
            ("adm\u{200b}in", "adm\\u{200b}in"),
            ("\u{202e}live", "\\u{202e}live"),
            ("\u{2066}x\u{2069}", "\\u{2066}x\\u{2069}"),
            ("a\u{a0}b\u{3164}", "a\\u{a0}b\\u{3164}"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }
}
