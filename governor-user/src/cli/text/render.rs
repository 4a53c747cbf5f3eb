//! How answers look to people: aligned facts, lines wrapped between words, times with units, `-` for what is not known,
//! colour only on a terminal. Tables are in `table`. Knows no subcommand and sends no request.

pub(in crate::cli) use crate::cli::text::table::{Cell, Column, Table};
pub(in crate::cli) use governor_observation::wording::printable;
use rustix::termios::tcgetwinsize;
use serde_json::Value;
use std::io::IsTerminal;
use unicode_width::UnicodeWidthChar;

/// What the output can carry.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Style {
    colour: bool,
    /// Columns of the terminal; `None`: lines may have any length (a file or a pipe).
    width: Option<u16>,
}

impl Style {
    /// For pipes, files and tests: no colour, no limit.
    #[cfg(test)]
    pub(in crate::cli) const PLAIN: Self = Self { colour: false, width: None };

    /// For tests: colour, no limit.
    #[cfg(test)]
    pub(in crate::cli) const COLOURED: Self = Self { colour: true, width: None };

    /// For tests: a terminal of so many columns without colour.
    #[cfg(test)]
    pub(in crate::cli) const fn narrow(columns: u16) -> Self {
        Self { colour: false, width: Some(columns) }
    }

    /// Columns of the terminal; `None`: lines may have any length.
    pub(in crate::cli) fn width(self) -> Option<usize> {
        self.width.map(usize::from)
    }

    /// What standard output can carry, now.
    pub(in crate::cli) fn of_stdout() -> Self {
        let out = std::io::stdout();
        if !out.is_terminal() {
            return Self { colour: false, width: None };
        }
        // An empty NO_COLOR counts as absent (no-color.org).
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        // Some terminals (serial lines, editors) report a width of 0: not known.
        let width = tcgetwinsize(&out).ok().map(|size| size.ws_col).filter(|columns| *columns > 0);
        Self { colour: !refused && !dumb, width }
    }

    /// `text` as an alarm.
    pub(in crate::cli) fn red(self, text: &str) -> String {
        self.painted("31", text)
    }

    /// `text` as a caution.
    pub(in crate::cli) fn yellow(self, text: &str) -> String {
        self.painted("33", text)
    }

    /// `text` as all well.
    pub(in crate::cli) fn green(self, text: &str) -> String {
        self.painted("32", text)
    }

    fn painted(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Labels with a value each, aligned.
#[derive(Debug, Default)]
pub(in crate::cli) struct Facts {
    rows: Vec<(&'static str, String)>,
}

impl Facts {
    /// Adds one; a repeated label is written once.
    pub(in crate::cli) fn add(&mut self, label: &'static str, value: String) {
        self.rows.push((label, value));
    }

    /// The lines; a long value goes on below its beginning.
    pub(in crate::cli) fn text(&self, style: Style) -> String {
        let width = self.rows.iter().map(|(label, _)| label.len()).max().unwrap_or_default();
        let mut out = String::new();
        let mut before = "";
        for (label, value) in &self.rows {
            let shown = if *label == before { "" } else { label };
            out.push_str(&wrapped(&format!("{shown:width$}  {value}"), width + 2, style.width()));
            before = label;
        }
        out
    }
}

/// A line broken between words where the terminal ends, the rest indented by so many columns. A word that is longer
/// than a line stays whole. Colours take no room.
pub(in crate::cli) fn wrapped(line: &str, indent: usize, terminal: Option<usize>) -> String {
    let Some(terminal) = terminal.filter(|terminal| visible(line) > *terminal && indent + 10 <= *terminal) else {
        return format!("{line}\n");
    };
    let mut out = String::new();
    let (mut used, mut is_start) = (0, true);
    for word in line.split_inclusive(' ') {
        let bare = visible(word.trim_end_matches(' '));
        if !is_start && bare > 0 && used + bare > terminal {
            out.truncate(out.trim_end_matches(' ').len());
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            used = indent;
        }
        out.push_str(word);
        used += visible(word);
        // The label's own spaces are no place to break at.
        is_start = used <= indent;
    }
    out.truncate(out.trim_end_matches(' ').len());
    out.push('\n');
    out
}

/// Terminal columns of a text, without the colours that [`Style`] puts around it.
pub(in crate::cli) fn visible(text: &str) -> usize {
    let mut is_colour = false;
    let shown = text.chars().filter(|c| {
        let was = is_colour;
        is_colour = *c == '\x1b' || (is_colour && *c != 'm');
        !was && *c != '\x1b'
    });
    shown.map(|c| c.width().unwrap_or(0)).sum()
}

/// A value that may be unknown.
pub(in crate::cli) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Seconds as people say them, to two figures or the two largest units: `61µs`, `4.2ms`, `250ms`, `4.2s`, `42s`,
/// `3m05s`, `2h10m`, `3d04h`.
pub(in crate::cli) fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "-".to_owned();
    }
    if seconds == 0.0 {
        return "0s".to_owned();
    }
    if seconds < 0.000_999_5 {
        return format!("{:.0}µs", seconds * 1e6);
    }
    if seconds < 0.9995 {
        let shown = seconds * 1000.0;
        return if shown < 9.95 && shown.fract() != 0.0 { format!("{shown:.1}ms") } else { format!("{shown:.0}ms") };
    }
    if seconds < 9.95 {
        return if seconds.fract() == 0.0 { format!("{seconds:.0}s") } else { format!("{seconds:.1}s") };
    }
    let whole = std::time::Duration::try_from_secs_f64(seconds.round()).unwrap_or(std::time::Duration::MAX).as_secs();
    let (days, hours, minutes, rest) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60, whole % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest}s"),
        (0, 0, _) => format!("{minutes}m{rest:02}s"),
        (0, _, _) => format!("{hours}h{minutes:02}m"),
        (_, _, _) => format!("{days}d{hours:02}h"),
    }
}

/// The first digits of a hash for a table; `-` without one.
pub(in crate::cli) fn short_hash(hash: Option<&str>) -> String {
    let short =
        |hash: &str| hash.char_indices().nth(12).map_or_else(|| hash.to_owned(), |(at, _)| format!("{}…", &hash[..at]));
    hash.map_or_else(|| "-".to_owned(), short)
}

/// A key in a sentence: the first digits of its hash, and its label in quotes, because a label may look like a hash.
pub(in crate::cli) fn key_name(key: Option<&str>, label: Option<&str>) -> String {
    let hash = short_hash(key);
    label.map_or_else(|| hash.clone(), |label| format!("{hash} \"{}\"", printable(label)))
}

/// An org for a table: its name in the configuration, else the first digits of its hash.
pub(in crate::cli) fn org_name(org: Option<&str>, name: Option<&str>) -> String {
    name.map_or_else(|| short_hash(org), printable)
}

/// A setting's value as it would be typed.
pub(in crate::cli) fn value(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "\"\"".to_owned(),
        Value::String(text) => printable(text),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_no_more_figures_than_they_deserve() {
        for (seconds, text) in [
            (0.0, "0s"),
            (0.0004, "400µs"),
            (0.004_23, "4.2ms"),
            (0.25, "250ms"),
            (0.9999, "1.0s"),
            (1.0, "1s"),
            (4.21, "4.2s"),
            (9.96, "10s"),
            (59.4, "59s"),
            (59.6, "1m00s"),
            (185.0, "3m05s"),
            (7800.0, "2h10m"),
            (273_600.0, "3d04h"),
            (f64::NAN, "-"),
            (-1.0, "-"),
        ] {
            assert_eq!(duration(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn a_long_fact_goes_on_below_its_beginning() {
        let mut facts = Facts::default();
        facts.add("level", "normal".to_owned());
        facts.add("degraded", Style::COLOURED.red("the tracepoint tier is not used: no kernel BTF"));
        assert_eq!(
            facts.text(Style::narrow(32)),
            "level     normal\ndegraded  \x1b[31mthe tracepoint tier is\n          not used: no kernel\n          BTF\x1b[0m\n"
        );
        assert_eq!(facts.text(Style::PLAIN).lines().count(), 2);
        assert_eq!(wrapped("a-word-that-is-longer-than-the-line is whole", 0, Some(12)).lines().count(), 2);
    }

    #[test]
    fn colour_is_used_only_where_it_can_be_seen() {
        assert_eq!(Style::PLAIN.red("on"), "on");
        assert_eq!(Style::COLOURED.red("on"), "\x1b[31mon\x1b[0m");
    }

    #[test]
    fn a_label_cannot_steer_the_terminal() {
        assert_eq!(key_name(Some("9f".repeat(16).as_str()), Some("a\x1b[2Jb")), "9f9f9f9f9f9f… \"a\\u{1b}[2Jb\"");
        assert_eq!(printable("user\u{202e}nimda\u{200b}"), "user\\u{202e}nimda\\u{200b}");
        assert_eq!(key_name(Some("0123456789abcdef"), None), "0123456789ab…");
        assert_eq!(key_name(None, None), "-");
    }

    #[test]
    fn a_label_cannot_pass_for_the_hash_of_a_key() {
        let (own, other) = ("9f".repeat(16), "c4".repeat(16));
        assert_eq!(key_name(Some(&own), Some(&other)), format!("9f9f9f9f9f9f… \"{other}\""));
    }
}
