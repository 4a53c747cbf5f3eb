//! The result of all series as text: Markdown tables, as in README.md. Pure.

use super::reached::Reached;
use super::verdict::{Fate, Row, Tested};
use std::fmt::Write as _;

/// Both tables, and below them what is missing where.
pub(super) fn render(rows: &[Row]) -> String {
    let mut text = table(&summary(rows));
    let reached = Reached::of(rows);
    if !reached.events.is_empty() {
        text.push('\n');
        text.push_str(&table(&reached.cells()));
    }
    for line in notes(rows) {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

fn summary(rows: &[Row]) -> Vec<Vec<String>> {
    let head = ["series", "kernel", "tier", "passed", "failed", "skipped", "seconds"];
    let mut cells = vec![head.map(str::to_owned).to_vec()];
    cells.extend(rows.iter().map(|row| match &row.fate {
        Fate::Tested(tested) => vec![
            row.series.to_owned(),
            tested.version.clone(),
            tested.said.tier.clone().unwrap_or_else(|| "unknown".to_owned()),
            tested.said.tested().to_string(),
            tested.failures().to_string(),
            tested.said.untested().to_string(),
            format!("{:.1}", tested.seconds),
        ],
        Fate::NotTested { .. } => {
            let mut cells = vec![row.series.to_owned(), "not tested".to_owned()];
            cells.resize(head.len(), String::new());
            cells
        }
    }));
    cells
}

/// What the tables have no room for: failures first, then what is known to be missing. What several series say is
/// said once.
fn notes(rows: &[Row]) -> Vec<String> {
    let mut notes: Vec<(String, Vec<&str>)> = Vec::new();
    let mut note = |series, text: String| match notes.iter_mut().find(|(have, _)| *have == text) {
        Some((_, of)) => of.push(series),
        None => notes.push((text, vec![series])),
    };
    for row in rows {
        match &row.fate {
            Fate::NotTested { reason } => note(row.series, format!("not tested: {reason}")),
            Fate::Tested(tested) => {
                tested.said.failed.iter().for_each(|test| note(row.series, format!("FAILED: {test}")));
                tested.complaints.iter().for_each(|complaint| note(row.series, format!("FAILED: {complaint}")));
            }
        }
    }
    for (series, Tested { said, .. }) in tested(rows) {
        said.degraded.iter().for_each(|line| note(series, line.clone()));
        for hook in &said.hooks {
            match hook.tier {
                Some(_) => note(series, format!("{}: {} {}", hook.event, hook.hook, hook.note).trim().to_owned()),
                None => note(series, format!("{}: not seen; lost: {}", hook.event, hook.note)),
            }
        }
        said.tried.iter().for_each(|tried| note(series, format!("{}: {}: {}", tried.event, tried.hook, tried.reason)));
    }
    let mut lines: Vec<String> = notes.into_iter().map(|(text, of)| format!("{}: {text}", of.join(", "))).collect();
    if !lines.is_empty() {
        lines.insert(0, String::new());
    }
    lines
}

fn tested(rows: &[Row]) -> impl Iterator<Item = (&'static str, &Tested)> {
    rows.iter().filter_map(|row| match &row.fate {
        Fate::Tested(tested) => Some((row.series, tested.as_ref())),
        Fate::NotTested { .. } => None,
    })
}

/// A Markdown table, its columns aligned; the first line is the head.
pub(super) fn table(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        for (cell, width) in line.iter().zip(&widths) {
            write!(text, "| {cell:width$} ").expect("a string grows");
        }
        text.push_str("|\n");
        if index == 0 {
            for width in &widths {
                write!(text, "|{:-<1$}", "", width + 2).expect("a string grows");
            }
            text.push_str("|\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::console::{Hook, Said, Tried};
    use super::*;

    fn hook(event: &str, hook: &str, tier: Option<&str>, note: &str) -> Hook {
        Hook { event: event.into(), hook: hook.into(), tier: tier.map(str::to_owned), note: note.into() }
    }

    #[test]
    fn series_and_hooks_are_shown_with_what_is_missing() {
        let newer = Said {
            tier: Some("tracepoint".into()),
            passed: 12,
            hooks: vec![
                hook("enqueue", "tp_btf/sk_data_ready", Some("tracepoint"), ""),
                hook("table", "sock_diag", Some("netlink"), "read every tick"),
            ],
            ..Said::default()
        };
        let older = Said {
            tier: Some("netlink".into()),
            passed: 11,
            failed: vec!["scale::many".into()],
            skipped: vec![("a".into(), "no BTF".into())],
            hooks: vec![
                hook("enqueue", "tp_btf/sk_data_ready", None, "the peak"),
                hook("table", "sock_diag", Some("netlink"), "read every tick"),
            ],
            tried: vec![Tried {
                event: "enqueue".into(),
                hook: "tp_btf/sk_data_ready".into(),
                reason: "not in BTF".into(),
            }],
            ..Said::default()
        };
        let tested = |version: &str, said| {
            let complaints = Vec::new();
            Fate::Tested(Box::new(Tested { version: version.into(), seconds: 20.04, complaints, said }))
        };
        let rows = [
            Row { series: "6.12", fate: tested("6.12.118-1", newer) },
            Row { series: "7.x", fate: Fate::NotTested { reason: "no kernel 7.x is in sid".into() } },
            Row { series: "5.10", fate: tested("5.10.262-1", older) },
        ];
        let expected = "\
| series | kernel     | tier       | passed | failed | skipped | seconds |
|--------|------------|------------|--------|--------|---------|---------|
| 6.12   | 6.12.118-1 | tracepoint | 12     | 0      | 0       | 20.0    |
| 7.x    | not tested |            |        |        |         |         |
| 5.10   | 5.10.262-1 | netlink    | 10     | 1      | 1       | 20.0    |

| event   | 6.12       | 5.10    |
|---------|------------|---------|
| enqueue | tracepoint | no      |
| table   | netlink    | netlink |

7.x: not tested: no kernel 7.x is in sid
5.10: FAILED: scale::many
6.12: enqueue: tp_btf/sk_data_ready
6.12, 5.10: table: sock_diag read every tick
5.10: enqueue: not seen; lost: the peak
5.10: enqueue: tp_btf/sk_data_ready: not in BTF
";
        assert_eq!(render(&rows), expected);
    }
}
