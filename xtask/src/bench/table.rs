//! A report as a table, and the judgement on each of its rows. Knows figures, not where they come from.

use super::report::{Bound, Report, Row, Subject, Target};
use std::fmt::Write;

/// How far from 1 the ratio of two equal things may be; beyond it the run says nothing about what is near its limit.
const QUIET: f64 = 0.01;

/// What becomes of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// No target was set.
    None,
    /// As good as was hoped for.
    Aim,
    /// As good as it has to be.
    Met,
    /// Not good enough.
    NotMet,
    /// The machine was too noisy to tell.
    Noise,
}

impl Verdict {
    fn words(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Aim => "met, aim too",
            Self::Met => "met",
            Self::NotMet => "NOT MET",
            Self::Noise => "too noisy to tell",
        }
    }
}

/// For people.
pub(super) fn render(report: &Report) -> String {
    let header = ["", "baseline", "governor", "ratio (95 %)", "same/same", "target", ""].map(str::to_owned);
    let mut lines = vec![header];
    lines.extend(report.rows.iter().map(cells));
    let widths: Vec<usize> = (0..lines[0].len())
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    if report.quick {
        put(&mut text, format_args!("a smoke run: these figures mean nothing"));
    }
    for line in &lines {
        let [what, verdict] = [&line[0], &line[6]];
        let [baseline, value, ratio, control, target] =
            [1, 2, 3, 4, 5].map(|at| format!("{:>1$}", line[at], widths[at]));
        let row = format!("{what:<0$}  {baseline}  {value}  {ratio}  {control}  {target}  {verdict}", widths[0]);
        put(&mut text, format_args!("{}", row.trim_end()));
    }
    for note in &report.notes {
        put(&mut text, format_args!("- {note}"));
    }
    text
}

fn put(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a string takes what is written to it");
}

fn cells(row: &Row) -> [String; 7] {
    let with_unit = |value: f64| format!("{} {}", number(value), row.unit).trim_end().to_owned();
    [
        row.what.clone(),
        row.baseline.map(with_unit).unwrap_or_default(),
        with_unit(row.value),
        row.ratio.map(|ratio| format!("{:.3} ({:.3}-{:.3})", ratio.median, ratio.low, ratio.high)).unwrap_or_default(),
        row.ratio.and_then(|ratio| ratio.control).map(|control| format!("{control:.3}")).unwrap_or_default(),
        row.target.as_ref().map(aimed).unwrap_or_default(),
        judge(row).words().to_owned(),
    ]
}

fn aimed(target: &Target) -> String {
    let sign = match target.bound {
        Bound::AtMost => '≤',
        Bound::AtLeast => '≥',
    };
    // A ratio near 1 needs its third digit.
    let short = |limit: f64| match target.of {
        Subject::Value => number(limit),
        Subject::Ratio => format!("{limit:.3}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    };
    let aim = target.aim.map(|aim| format!(" (aim {})", short(aim))).unwrap_or_default();
    format!("{sign} {}{aim}", short(target.limit))
}

fn judge(row: &Row) -> Verdict {
    let Some(target) = &row.target else { return Verdict::None };
    let (figure, worst, noisy) = match (target.of, row.ratio) {
        (Subject::Value, _) => (row.value, row.value, false),
        (Subject::Ratio, Some(ratio)) => {
            let worst = if target.bound == Bound::AtMost { ratio.high } else { ratio.low };
            (ratio.median, worst, ratio.control.is_some_and(|control| (control - 1.0).abs() > QUIET))
        }
        (Subject::Ratio, None) => return Verdict::Noise,
    };
    let within = |figure: f64, limit: f64| match target.bound {
        Bound::AtMost => figure <= limit,
        Bound::AtLeast => figure >= limit,
    };
    // Noise decides nothing that even the worst end of the interval passes.
    if noisy && !within(worst, target.limit) || figure.is_nan() {
        Verdict::Noise
    } else if !within(figure, target.limit) {
        Verdict::NotMet
    } else if target.aim.is_some_and(|aim| within(figure, aim)) {
        Verdict::Aim
    } else {
        Verdict::Met
    }
}

/// Three digits that count, and no more.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        small if small < 10.0 => format!("{value:.2}"),
        middling if middling < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Ratio;
    use super::*;

    fn row(median: f64, low: f64, control: f64) -> Row {
        Row {
            what: "connections a second".to_owned(),
            unit: "1/s".to_owned(),
            baseline: Some(30_000.0),
            value: 30_000.0 * median,
            ratio: Some(Ratio { median, low, high: median, control: Some(control) }),
            target: Some(Target { of: Subject::Ratio, bound: Bound::AtLeast, limit: 0.97, aim: Some(0.99) }),
        }
    }

    #[test]
    fn a_target_is_judged_by_the_median_unless_noise_could_have_decided() {
        let rows = [
            (row(0.995, 0.99, 1.0), Verdict::Aim),
            (row(0.975, 0.96, 1.0), Verdict::Met),
            (row(0.95, 0.94, 1.0), Verdict::NotMet),
            (row(0.975, 0.96, 1.03), Verdict::Noise),
            (row(0.985, 0.98, 1.03), Verdict::Met),
            (Row { target: None, ..row(0.5, 0.4, 1.0) }, Verdict::None),
        ];
        for (row, verdict) in rows {
            assert_eq!(judge(&row), verdict, "{row:?}");
        }
    }

    #[test]
    fn columns_line_up_and_a_smoke_run_says_so() {
        let report = Report {
            name: "kernel".to_owned(),
            quick: true,
            rows: vec![row(0.995, 0.99, 1.0), Row { what: "x".to_owned(), ..row(0.95, 0.94, 1.0) }],
            notes: vec!["tracepoint tier".to_owned()],
        };
        let text = render(&report);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("smoke") && lines[4] == "- tracepoint tier", "{text}");
        let ends: Vec<usize> = lines[2..4].iter().map(|line| line.find('≥').unwrap()).collect();
        assert!(ends[0] == ends[1] && lines[3].ends_with("≥ 0.97 (aim 0.99)  NOT MET"), "{text}");
    }

    #[test]
    fn numbers_show_what_counts() {
        let shown = [0.0, 0.25, 2.828, 48.26, 354.4, 31_852.4].map(number);
        assert_eq!(shown, ["0", "0.25", "2.83", "48.3", "354", "31852"]);
    }
}
