//! The one comparison at the end, for people. Knows figures, not where they come from.

use super::figures::{ClassFigures, Figures, KernelFigures};
use super::pool;
use std::fmt::Write;

/// Whether the table may use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colour {
    Plain,
    Ansi,
}

/// What a cell says by its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Neutral,
    Good,
    Bad,
}

/// Both phases side by side. The JSON has only one listener; people see that of the first phase too.
pub(super) fn render(figures: &Figures, first_listener: &KernelFigures, colour: Colour) -> String {
    let Figures { without, with, kernel } = figures;
    let mut table = Table { text: String::new(), colour };
    table.row("", [("without".to_owned(), Mood::Neutral), ("with".to_owned(), Mood::Neutral)]);
    table.class("nine light keys, 0-2 streams each", [&without.light, &with.light]);
    table.class("one heavy key, 120 attempts", [&without.heavy, &with.heavy]);

    table.title(&format!("pool of {} accounts", pool::ACCOUNTS));
    table.plain("ordinary slots in use", [without.utilisation, with.utilisation].map(percent));

    let tier = kernel.tier.as_deref().unwrap_or("unknown");
    table.title(&format!("the gateway's listener, seen by the kernel (tier: {tier})"));
    let listeners = [&first_listener.listener, &kernel.listener];
    table.plain("accept queue, peak of depth", listeners.map(|listener| count(listener.depth_peak)));
    table.plain("backlog", listeners.map(|listener| count(listener.backlog)));
    table.plain("connections accepted", listeners.map(|listener| count(listener.accepted)));
    table.plain("overflows", listeners.map(|listener| count(listener.overflows)));
    table.text
}

struct Table {
    text: String,
    colour: Colour,
}

impl Table {
    fn class(&mut self, title: &str, phases: [&ClassFigures; 2]) {
        self.title(title);
        self.plain("requests", phases.map(|class| class.requests.to_string()));
        self.plain("ok", phases.map(|class| class.ok.to_string()));
        let failed = phases.map(|class| {
            let mood = if class.failed() == 0 { Mood::Good } else { Mood::Bad };
            (share(class.failed(), class.requests), mood)
        });
        self.row("failed", failed);
        self.plain("  429", phases.map(|class| class.refused_429.to_string()));
        self.plain("  529", phases.map(|class| class.refused_529.to_string()));
        self.plain("  other errors", phases.map(|class| class.errors.to_string()));
        self.plain("tries per request", phases.map(|class| tries(class.attempts, class.requests)));
        self.plain("wait p50", phases.map(|class| seconds(class.wait_p50_seconds)));
        self.plain("wait p99", phases.map(|class| seconds(class.wait_p99_seconds)));
    }

    fn title(&mut self, title: &str) {
        let line = self.paint(title, "1");
        self.line(format_args!("\n{line}"));
    }

    fn plain(&mut self, label: &str, cells: [String; 2]) {
        self.row(label, cells.map(|cell| (cell, Mood::Neutral)));
    }

    fn row(&mut self, label: &str, cells: [(String, Mood); 2]) {
        // Padded before it is painted: escape sequences have no width.
        let [first, second] = cells.map(|(cell, mood)| match mood {
            Mood::Neutral => format!("{cell:>14}"),
            Mood::Good => self.paint(&format!("{cell:>14}"), "32"),
            Mood::Bad => self.paint(&format!("{cell:>14}"), "31"),
        });
        self.line(format_args!("  {label:<30}{first}{second}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("a string takes what is written to it");
    }

    fn paint(&self, text: &str, code: &str) -> String {
        match self.colour {
            Colour::Plain => text.to_owned(),
            Colour::Ansi => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}

fn share(part: u64, whole: u64) -> String {
    match (part * 1000).checked_div(whole) {
        Some(permille) => format!("{}.{} %", permille / 10, permille % 10),
        None => "-".to_owned(),
    }
}

fn tries(attempts: u64, requests: u64) -> String {
    match (attempts * 100).checked_div(requests) {
        Some(hundredths) => format!("{}.{:02}", hundredths / 100, hundredths % 100),
        None => "-".to_owned(),
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "unknown".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

fn seconds(wait: Option<f64>) -> String {
    wait.map_or_else(|| "-".to_owned(), |wait| format!("{wait:.2} s"))
}

fn count(value: Option<u64>) -> String {
    value.map_or_else(|| "unknown".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::good;
    use super::*;

    #[test]
    fn every_line_fits_a_terminal_and_columns_line_up() {
        let text = render(&good(), &KernelFigures::default(), Colour::Plain);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        let failed: Vec<_> = text.lines().filter(|line| line.trim_start().starts_with("failed")).collect();
        assert_eq!(failed[0], format!("  {:<30}{:>14}{:>14}", "failed", "41.6 %", "0.0 %"));
        assert!(text.contains("unknown"), "what the kernel did not tell is not shown as 0");
    }

    #[test]
    fn colour_changes_nothing_but_colour() {
        let plain = render(&good(), &KernelFigures::default(), Colour::Plain);
        let ansi = render(&good(), &KernelFigures::default(), Colour::Ansi);
        assert!(ansi.contains("\x1b[31m") && ansi.contains("\x1b[32m") && !plain.contains('\x1b'));
        let stripped =
            ["\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[0m"].iter().fold(ansi, |text, code| text.replace(code, ""));
        assert_eq!(stripped, plain);
    }

    #[test]
    fn nothing_divided_by_nothing_is_a_dash() {
        assert_eq!((share(0, 0), tries(0, 0), seconds(None)), ("-".into(), "-".into(), "-".into()));
        assert_eq!((share(1, 3), tries(4, 3)), ("33.3 %".into(), "1.33".into()));
    }
}
