//! Tables that fit the terminal: one mechanism for every subcommand. Where the columns do not fit, long texts are
//! shortened at their end (`…`), then whole columns are left out by rank and named below the table. A value is never
//! broken over lines. Knows no subcommand.

use crate::cli::text::render::{Style, printable, wrapped};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Spaces between two columns.
const GAP: usize = 2;

/// A column that stays and still does not fit is shortened to this many terminal columns at least.
const NARROWEST: usize = 4;

/// A left-aligned column without [`Column::least`] may be shortened to this many terminal columns.
const LEAST: usize = 12;

/// A column: its title, its alignment and what happens to it in a narrow terminal.
#[derive(Clone, Copy, Debug)]
pub(in crate::cli) struct Column {
    title: &'static str,
    right: bool,
    /// Columns of higher rank are left out first, those of rank 0 never. `None`: the position in the table.
    rank: Option<usize>,
    /// Values may be shortened to this many terminal columns; `None`: only where nothing else is left.
    least: Option<usize>,
}

impl Column {
    /// A left-aligned column of texts, which may be shortened.
    pub(in crate::cli) const fn text(title: &'static str) -> Self {
        Self { title, right: false, rank: None, least: Some(LEAST) }
    }

    /// A left-aligned column of words that are never shortened, e.g. states and times.
    pub(in crate::cli) const fn word(title: &'static str) -> Self {
        Self { title, right: false, rank: None, least: None }
    }

    /// A right-aligned column of numbers and durations, which are never shortened.
    pub(in crate::cli) const fn number(title: &'static str) -> Self {
        Self { title, right: true, rank: None, least: None }
    }

    /// When it is left out: the highest rank first, 0 never.
    pub(in crate::cli) const fn rank(mut self, rank: usize) -> Self {
        self.rank = Some(rank);
        self
    }

    /// How short its values may become, in terminal columns.
    pub(in crate::cli) const fn least(mut self, least: usize) -> Self {
        self.least = Some(least);
        self
    }
}

impl From<&'static str> for Column {
    /// A leading `>` makes a column of numbers.
    fn from(title: &'static str) -> Self {
        title.strip_prefix('>').map_or_else(|| Self::text(title), Self::number)
    }
}

/// One value. Characters that could steer the terminal are replaced, wherever the value comes from.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Cell {
    text: String,
    paint: Option<fn(Style, &str) -> String>,
}

impl Cell {
    /// An alarm.
    pub(in crate::cli) fn red(text: impl Into<String>) -> Self {
        Self { paint: Some(Style::red), ..Self::from(text.into()) }
    }

    /// A caution.
    pub(in crate::cli) fn yellow(text: impl Into<String>) -> Self {
        Self { paint: Some(Style::yellow), ..Self::from(text.into()) }
    }

    fn width(&self) -> usize {
        self.text.width()
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text: printable(&text), paint: None }
    }
}

/// Rows under a header.
#[derive(Debug)]
pub(in crate::cli) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table with these columns, by rank or, where they have none, the last one left out first.
    #[cfg_attr(test, track_caller)]
    pub(in crate::cli) fn new<C: Into<Column> + Copy>(columns: &[C]) -> Self {
        #[cfg(test)]
        rendered::note(std::panic::Location::caller());
        Self { columns: columns.iter().map(|column| (*column).into()).collect(), rows: Vec::new() }
    }

    /// Adds a row, one value a column.
    pub(in crate::cli) fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The lines; `empty` in place of a table without rows.
    pub(in crate::cli) fn text(&self, style: Style, empty: &str) -> String {
        if self.rows.is_empty() {
            return wrapped(empty, 0, style.width());
        }
        let shown = self.layout(style.width());
        let mut out = String::new();
        let titles: Vec<Cell> = self.columns.iter().map(|column| Cell::from(column.title.to_owned())).collect();
        for row in std::iter::once(&titles).chain(&self.rows) {
            out.push_str(&self.line(row, &shown, style));
            out.push('\n');
        }
        let left_out: Vec<&str> = (0..self.columns.len())
            .filter(|at| shown.iter().all(|(column, _)| column != at))
            .filter_map(|at| self.columns.get(at).map(|column| column.title))
            .collect();
        if !left_out.is_empty() {
            let note =
                format!("left out: {}; a wider terminal, a pipe or --format json shows all", left_out.join(", "));
            out.push_str(&wrapped(&note, 0, style.width()));
        }
        out
    }

    fn line(&self, row: &[Cell], shown: &[(usize, usize)], style: Style) -> String {
        let mut line = String::new();
        let mut pending = 0;
        for (at, width) in shown {
            let (Some(column), Some(cell)) = (self.columns.get(*at), row.get(*at)) else { continue };
            let text = shortened(&cell.text, *width);
            let room = width.saturating_sub(text.width());
            let before = pending + if column.right { room } else { 0 };
            if !text.is_empty() {
                line.extend(std::iter::repeat_n(' ', before));
                line.push_str(&cell.paint.map_or_else(|| text.clone(), |paint| paint(style, &text)));
                pending = 0;
            } else {
                pending = before;
            }
            pending += GAP + if column.right { 0 } else { room };
        }
        line
    }

    /// The columns to show with their widths.
    fn layout(&self, terminal: Option<usize>) -> Vec<(usize, usize)> {
        let widest = |at: usize| self.rows.iter().filter_map(|row| row.get(at)).map(Cell::width).max().unwrap_or(0);
        let natural: Vec<(usize, usize)> =
            self.columns.iter().enumerate().map(|(at, column)| (at, column.title.width().max(widest(at)))).collect();
        let Some(terminal) = terminal else { return natural };
        let rank = |at: usize| self.columns.get(at).and_then(|column| column.rank).unwrap_or(at);
        let least = |at: usize| {
            let column = self.columns.get(at)?;
            Some(column.least?.max(column.title.width()))
        };
        let mut kept = natural.clone();
        loop {
            let mut shown = kept.clone();
            if shorten(&mut shown, terminal, least) {
                return shown;
            }
            let last = kept.iter().map(|(at, _)| *at).filter(|at| rank(*at) > 0).max_by_key(|at| (rank(*at), *at));
            match last {
                Some(last) => kept.retain(|(at, _)| *at != last),
                None => {
                    // Numbers last: a part of one is no number.
                    let is_text = |at: usize| self.columns.get(at).is_some_and(|column| !column.right);
                    if !shorten(&mut kept, terminal, |at| is_text(at).then_some(NARROWEST)) {
                        shorten(&mut kept, terminal, |_| Some(NARROWEST));
                    }
                    return kept;
                }
            }
        }
    }
}

/// Makes the widest columns narrower until all fit; false where they cannot.
fn shorten(shown: &mut [(usize, usize)], terminal: usize, least: impl Fn(usize) -> Option<usize>) -> bool {
    let total = |shown: &[(usize, usize)]| {
        shown.iter().map(|(_, width)| width).sum::<usize>() + GAP * shown.len().saturating_sub(1)
    };
    loop {
        let over = total(shown).saturating_sub(terminal);
        if over == 0 {
            return true;
        }
        let spare = |(at, width): &(usize, usize)| width.saturating_sub(least(*at).unwrap_or(*width));
        let Some(widest) = shown.iter_mut().filter(|column| spare(column) > 0).max_by_key(|(_, width)| *width) else {
            return false;
        };
        widest.1 -= spare(widest).min(over.div_ceil(2));
    }
}

/// The first characters of a text, with `…` for the rest, in at most so many terminal columns.
pub(in crate::cli) fn shortened(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let more = c.width().unwrap_or(0);
        if used + more + 1 > width {
            break;
        }
        out.push(c);
        used += more;
    }
    out.truncate(out.trim_end().len());
    out.push('…');
    out
}

/// Which tables this thread made, for the test that renders every one of them in a narrow terminal.
#[cfg(test)]
pub(in crate::cli) mod rendered {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::panic::Location;

    thread_local!(static PLACES: RefCell<BTreeSet<(String, u32)>> = RefCell::default());

    pub(in crate::cli) fn note(place: &Location<'_>) {
        PLACES.with_borrow_mut(|places| places.insert((place.file().to_owned(), place.line())));
    }

    /// File and line of each `Table::new` that was called.
    pub(in crate::cli) fn places() -> BTreeSet<(String, u32)> {
        PLACES.with_borrow(Clone::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[
            Column::text("NAME").rank(0),
            Column::number("COUNT").rank(0),
            Column::text("WHY").rank(1).least(10),
            Column::number("IDS").rank(2),
        ]);
        table.row([
            "/system.slice/gateway.service".to_owned(),
            "12".to_owned(),
            "the upstream is slow".to_owned(),
            "7".to_owned(),
        ]);
        table
    }

    fn narrow(width: u16) -> String {
        table().text(Style::narrow(width), "")
    }

    #[test]
    fn a_pipe_gets_whole_lines() {
        insta::assert_snapshot!(table().text(Style::PLAIN, ""), @"
        NAME                           COUNT  WHY                   IDS
        /system.slice/gateway.service     12  the upstream is slow    7
        ");
        assert_eq!(Table::new(&["NAME"]).text(Style::PLAIN, "nothing there"), "nothing there\n");
    }

    #[test]
    fn long_texts_are_shortened_before_columns_are_left_out() {
        insta::assert_snapshot!(narrow(50), @"
        NAME                COUNT  WHY                 IDS
        /system.slice/gat…     12  the upstream is s…    7
        ");
        insta::assert_snapshot!(narrow(34), @"
        NAME           COUNT  WHY
        /system.slic…     12  the upstrea…
        left out: IDS; a wider terminal, a
        pipe or --format json shows all
        ");
        insta::assert_snapshot!(narrow(12), @"
        NAME   COUNT
        /sys…     12
        left out:
        WHY, IDS; a
        wider
        terminal, a
        pipe or
        --format
        json shows
        all
        ");
    }

    #[test]
    fn a_value_cannot_steer_the_terminal_or_look_like_another_column() {
        let mut table = Table::new(&["LABEL", ">N"]);
        table.row(["a\x1b[2J\r\nb".to_owned(), "1".to_owned()]);
        let text = table.text(Style::COLOURED, "");
        assert!(!text.contains('\x1b') && !text.contains('\r') && text.lines().count() == 2, "{text:?}");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(shortened("鍵鍵鍵鍵", 5), "鍵鍵…");
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("abcd", 3), "ab…");
    }

    #[test]
    fn colour_does_not_change_the_layout() {
        let mut table = Table::new(&["STATE", "NAME"]);
        table.row([Cell::red("down"), Cell::from("a".to_owned())]);
        assert_eq!(table.text(Style::PLAIN, ""), "STATE  NAME\ndown   a\n");
        assert_eq!(table.text(Style::COLOURED, ""), "STATE  NAME\n\x1b[31mdown\x1b[0m   a\n");
    }
}
