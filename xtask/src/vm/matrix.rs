//! The result of all series as text: Markdown tables, because they also go into README.md. Pure.

use super::verdict::{Fate, Row, Tested};
use std::fmt::Write as _;

/// Both tables, and below them what is missing where.
pub(super) fn render(rows: &[Row]) -> String {
    let mut text = table(&summary(rows));
    let hooks = hooks(rows);
    if hooks.len() > 1 {
        text.push('\n');
        text.push_str(&table(&hooks));
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

/// One line a hook, one column a series that was tested.
fn hooks(rows: &[Row]) -> Vec<Vec<String>> {
    let tested: Vec<_> = tested(rows).collect();
    let mut known: Vec<(&str, &str)> = Vec::new();
    for hook in tested.iter().flat_map(|(_, tested)| &tested.said.hooks) {
        let name = (hook.purpose.as_str(), hook.hook.as_str());
        if !known.contains(&name) {
            known.push(name);
        }
    }
    let mut cells = vec![vec!["purpose".to_owned(), "hook".to_owned()]];
    cells[0].extend(tested.iter().map(|(series, _)| (*series).to_owned()));
    for (purpose, hook) in known {
        let mut line = vec![purpose.to_owned(), format!("`{hook}`")];
        line.extend(tested.iter().map(|(_, tested)| {
            let mut same = tested.said.hooks.iter().filter(|have| have.purpose == purpose && have.hook == hook);
            let state = match same.next() {
                Some(hook) if hook.active => "active",
                Some(_) => "no",
                None => "",
            };
            state.to_owned()
        }));
        cells.push(line);
    }
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
        for hook in said.hooks.iter().filter(|hook| !hook.active && !hook.note.is_empty()) {
            note(series, format!("{} ({}): {}", hook.hook, hook.purpose, hook.note));
        }
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
fn table(lines: &[Vec<String>]) -> String {
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
    use super::super::console::{Hook, Said};
    use super::*;

    fn hook(purpose: &str, hook: &str, active: bool, note: &str) -> Hook {
        Hook { purpose: purpose.into(), hook: hook.into(), active, note: note.into() }
    }

    #[test]
    fn series_and_hooks_are_shown_with_what_is_missing() {
        let newer = Said {
            tier: Some("tracepoint".into()),
            passed: 12,
            hooks: vec![hook("enqueue", "tp_btf/sk_data_ready", true, "")],
            ..Said::default()
        };
        let older = Said {
            tier: Some("netlink".into()),
            passed: 11,
            failed: vec!["scale::many".into()],
            skipped: vec![("a".into(), "no BTF".into())],
            hooks: vec![
                hook("enqueue", "tp_btf/sk_data_ready", false, "not in BTF"),
                hook("poll", "sock_diag", true, ""),
            ],
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

| purpose | hook                   | 6.12   | 5.10   |
|---------|------------------------|--------|--------|
| enqueue | `tp_btf/sk_data_ready` | active | no     |
| poll    | `sock_diag`            |        | active |

7.x: not tested: no kernel 7.x is in sid
5.10: FAILED: scale::many
5.10: tp_btf/sk_data_ready (enqueue): not in BTF
";
        assert_eq!(render(&rows), expected);
    }
}
