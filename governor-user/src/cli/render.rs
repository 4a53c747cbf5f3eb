//! How answers look to people: tables without rules that fit the terminal, aligned facts, times with units, `-` for
//! what is not known, colour only on a terminal. Knows no subcommand and asks nobody.

use comfy_table::{CellAlignment, ContentArrangement, presets};
use rustix::termios::tcgetwinsize;
use serde_json::Value;
use std::io::IsTerminal;

/// What the output can carry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    colour: bool,
    /// Columns of the terminal; `None`: lines may have any length (a file or a pipe).
    width: Option<u16>,
}

impl Style {
    /// For pipes, files and tests: no colour, no limit.
    #[cfg(test)]
    pub(super) const PLAIN: Self = Self { colour: false, width: None };

    /// For tests: colour, no limit.
    #[cfg(test)]
    pub(super) const COLOURED: Self = Self { colour: true, width: None };

    /// What standard output can carry, now.
    pub(super) fn of_stdout() -> Self {
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
    pub(super) fn red(self, text: &str) -> String {
        self.painted("31", text)
    }

    /// `text` as a caution.
    pub(super) fn yellow(self, text: &str) -> String {
        self.painted("33", text)
    }

    /// `text` as all well.
    pub(super) fn green(self, text: &str) -> String {
        self.painted("32", text)
    }

    fn painted(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Rows under a header.
#[derive(Debug)]
pub(super) struct Table {
    table: comfy_table::Table,
    rows: usize,
}

impl Table {
    /// A table with these column titles; a leading `>` aligns the column to the right.
    pub(super) fn new(titles: &[&str]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(titles.iter().map(|title| title.trim_start_matches('>')));
        for (column, title) in table.column_iter_mut().zip(titles) {
            column.set_padding((0, 2));
            if title.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        Self { table, rows: 0 }
    }

    /// Adds a row, one text a column.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.table.add_row(cells.into_iter().map(comfy_table::Cell::new_owned));
        self.rows += 1;
    }

    /// The lines; `empty` in place of a table without rows.
    pub(super) fn text(mut self, style: Style, empty: &str) -> String {
        if self.rows == 0 {
            return format!("{empty}\n");
        }
        if let Some(width) = style.width {
            self.table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        format!("{}\n", self.table.trim_fmt())
    }
}

/// Labels with a value each, aligned.
#[derive(Debug, Default)]
pub(super) struct Facts {
    rows: Vec<(&'static str, String)>,
}

impl Facts {
    /// Adds one; a repeated label is written once.
    pub(super) fn add(&mut self, label: &'static str, value: String) {
        self.rows.push((label, value));
    }

    /// The lines.
    pub(super) fn text(&self) -> String {
        let width = self.rows.iter().map(|(label, _)| label.len()).max().unwrap_or_default();
        let mut out = String::new();
        let mut before = "";
        for (label, value) in &self.rows {
            let shown = if *label == before { "" } else { label };
            out.push_str(&format!("{shown:width$}  {value}\n"));
            before = label;
        }
        out
    }
}

/// A value that may be unknown.
pub(super) fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Seconds as people say them, to two figures or the two largest units: `61µs`, `4.2ms`, `250ms`, `4.2s`, `42s`, `3m05s`,
/// `2h10m`, `3d04h`.
pub(super) fn duration(seconds: f64) -> String {
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

/// A key for a table: its label, else the first digits of its hash; `-` for a request without one.
pub(super) fn key_name(key: Option<&str>, label: Option<&str>) -> String {
    match (label, key) {
        (Some(label), _) => printable(label),
        (None, Some(key)) => {
            key.char_indices().nth(12).map_or_else(|| key.to_owned(), |(at, _)| format!("{}…", &key[..at]))
        }
        (None, None) => "-".to_owned(),
    }
}

/// A setting's value as it would be typed.
pub(super) fn value(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "\"\"".to_owned(),
        Value::String(text) => printable(text),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// Text from elsewhere (labels, session names, paths) without what could steer a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
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
    fn a_table_fits_the_terminal_and_a_pipe_gets_whole_lines() {
        let table = || {
            let mut table = Table::new(&["NAME", ">COUNT"]);
            table.row(["/system.slice/a-service-with-a-very-long-name.service".to_owned(), "12".to_owned()]);
            table
        };
        let narrow = table().text(Style { colour: false, width: Some(40) }, "");
        assert!(narrow.lines().all(|line| line.chars().count() <= 40), "{narrow}");
        assert_eq!(table().text(Style::PLAIN, "").lines().count(), 2);
        assert_eq!(Table::new(&["NAME"]).text(Style::PLAIN, "nothing there"), "nothing there\n");
    }

    #[test]
    fn colour_is_used_only_where_it_can_be_seen() {
        assert_eq!(Style::PLAIN.red("on"), "on");
        assert_eq!(Style::COLOURED.red("on"), "\x1b[31mon\x1b[0m");
    }

    #[test]
    fn a_label_cannot_steer_the_terminal() {
        assert_eq!(key_name(None, Some("a\x1b[2Jb")), "a\u{fffd}[2Jb");
        assert_eq!(key_name(Some("0123456789abcdef"), None), "0123456789ab…");
        assert_eq!(key_name(None, None), "-");
    }
}
