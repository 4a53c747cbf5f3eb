//! The tier that each event reached on each series: the table of README.md. Read from there, compared with what machines
//! say, and written back; what a run did not test stays as it is. Pure.

use super::matrix::table;
use super::series;
use super::verdict::{Fate, Row};
use anyhow::{Result, bail};

/// The lines around the table.
const BEGIN: &str = "<!-- written by `cargo xtask vm --readme` -->";
const END: &str = "<!-- end -->";

/// What a cell says of an event that nothing sees.
const NOT_SEEN: &str = "no";

/// The order of events: a connection's life, then what is read besides. Others follow as they come.
const ORDER: [&str; 11] = [
    "listen",
    "enqueue",
    "accept",
    "sojourn",
    "queue_age",
    "close",
    "overflow_syn",
    "overflow_ack",
    "connections",
    "scan",
    "table",
];

/// Cells by event and series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reached {
    pub(super) events: Vec<String>,
    /// Name of the series and one cell an event; empty where it is not known.
    columns: Vec<(String, Vec<String>)>,
}

impl Reached {
    /// What the machines said. A sojourn is measured where both its ends are seen.
    pub(super) fn of(rows: &[Row]) -> Self {
        let mut reached = Self::default();
        for row in rows {
            let Fate::Tested(tested) = &row.fate else { continue };
            let hooks = &tested.said.hooks;
            // Of several hooks for one event one that fires is enough.
            let end = |event: &str| {
                let mut same = hooks.iter().filter(|hook| hook.event == event).map(|hook| hook.tier.as_deref());
                let first = same.next()?;
                Some(first.or_else(|| same.flatten().next()))
            };
            for hook in hooks {
                reached.set(&hook.event, row.series, end(&hook.event).flatten().unwrap_or(NOT_SEEN));
            }
            if let (Some(enqueue), Some(accept)) = (end("enqueue"), end("accept")) {
                reached.set("sojourn", row.series, enqueue.and(accept).unwrap_or(NOT_SEEN));
            }
        }
        reached
    }

    /// Reads the table of a README.
    ///
    /// # Errors
    /// When it is not there or not a table.
    pub(super) fn in_readme(text: &str) -> Result<Self> {
        let (_, table, _) = split(text)?;
        let mut lines = table.lines().filter(|line| line.starts_with('|')).map(cells);
        let Some(head) = lines.next() else { return Ok(Self::default()) };
        let mut reached = Self::default();
        for line in lines.skip(1) {
            for (series, cell) in head.iter().zip(&line).skip(1) {
                reached.set(&line[0], series, cell);
            }
        }
        Ok(reached)
    }

    /// The README with this table instead of its own.
    ///
    /// # Errors
    /// When the README has no place for it.
    pub(super) fn into_readme(self, text: &str) -> Result<String> {
        let (before, _, after) = split(text)?;
        Ok(format!("{before}{BEGIN}\n\n{}\n{END}{after}", table(&self.cells())))
    }

    /// Takes over the columns of a run.
    pub(super) fn update(&mut self, run: &Self) {
        self.columns.retain(|(series, _)| !run.columns.iter().any(|(other, _)| other == series));
        for (series, cells) in &run.columns {
            for (event, cell) in run.events.iter().zip(cells) {
                self.set(event, series, cell);
            }
        }
        // A plane that does not name an event does not see it.
        for cell in self.columns.iter_mut().flat_map(|(_, cells)| cells).filter(|cell| cell.is_empty()) {
            NOT_SEEN.clone_into(cell);
        }
        // What no series sees and this run does not name is no event any more.
        let gone = |index: usize| {
            !run.events.contains(&self.events[index]) && self.columns.iter().all(|(_, cells)| cells[index] == NOT_SEEN)
        };
        for index in (0..self.events.len()).rev().filter(|index| gone(*index)).collect::<Vec<_>>() {
            self.events.remove(index);
            self.columns.iter_mut().for_each(|(_, cells)| drop(cells.remove(index)));
        }
        self.columns.sort_by_key(|(series, _)| series::names().iter().position(|name| name == series));
    }

    /// Where a run differs from this table, one line each.
    pub(super) fn differences(&self, run: &Self) -> Vec<String> {
        let mut wrong = Vec::new();
        let new = run.events.iter().filter(|event| !self.events.contains(event));
        for event in self.events.iter().chain(new) {
            for (series, _) in &run.columns {
                let said = self.cell(event, series).unwrap_or("nothing");
                let is = run.cell(event, series).filter(|cell| !cell.is_empty()).unwrap_or(NOT_SEEN);
                if said != is {
                    wrong.push(format!("README.md says {said} of {event} on {series}, and it is {is}"));
                }
            }
        }
        wrong
    }

    /// The head and one line an event.
    pub(super) fn cells(&self) -> Vec<Vec<String>> {
        let mut lines = vec![vec!["event".to_owned()]];
        lines[0].extend(self.columns.iter().map(|(series, _)| series.clone()));
        let mut events: Vec<(usize, &String)> = self.events.iter().enumerate().collect();
        events.sort_by_key(|(_, event)| ORDER.iter().position(|have| have == event).unwrap_or(ORDER.len()));
        for (index, event) in events {
            let mut line = vec![event.clone()];
            line.extend(self.columns.iter().map(|(_, cells)| cells[index].clone()));
            lines.push(line);
        }
        lines
    }

    fn cell(&self, event: &str, series: &str) -> Option<&str> {
        let index = self.events.iter().position(|have| have == event)?;
        let (_, cells) = self.columns.iter().find(|(have, _)| have == series)?;
        Some(&cells[index])
    }

    fn set(&mut self, event: &str, series: &str, cell: &str) {
        let index = self.events.iter().position(|have| have == event).unwrap_or_else(|| {
            self.events.push(event.to_owned());
            self.columns.iter_mut().for_each(|(_, cells)| cells.push(String::new()));
            self.events.len() - 1
        });
        let column = self.columns.iter().position(|(have, _)| have == series).unwrap_or_else(|| {
            self.columns.push((series.to_owned(), vec![String::new(); self.events.len()]));
            self.columns.len() - 1
        });
        cell.clone_into(&mut self.columns[column].1[index]);
    }
}

/// What is before the table's place, in it, and after it.
fn split(text: &str) -> Result<(&str, &str, &str)> {
    let place = text.split_once(BEGIN).and_then(|(before, rest)| {
        let (table, after) = rest.split_once(END)?;
        Some((before, table, after))
    });
    match place {
        Some(place) => Ok(place),
        None => bail!("README.md has no lines `{BEGIN}` and `{END}` for the table of events"),
    }
}

fn cells(line: &str) -> Vec<String> {
    line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::console::{Hook, Said};
    use super::super::verdict::Tested;
    use super::*;

    const README: &str = "Kernels\n\n<!-- written by `cargo xtask vm --readme` -->\n\n\
        | event   | 6.12       | 5.10 |\n\
        |---------|------------|------|\n\
        | enqueue | tracepoint | no   |\n\
        | old     | no         | no   |\n\n\
        <!-- end -->\nmore\n";

    fn row(series: &'static str, hooks: &[(&str, Option<&str>)]) -> Row {
        let hook = |(event, tier): &(&str, Option<&str>)| Hook {
            event: (*event).into(),
            hook: String::new(),
            tier: tier.map(str::to_owned),
            note: String::new(),
        };
        let said = Said { hooks: hooks.iter().map(hook).collect(), ..Said::default() };
        let complaints = Vec::new();
        Row { series, fate: Fate::Tested(Box::new(Tested { version: "1".into(), seconds: 1.0, complaints, said })) }
    }

    #[test]
    fn a_run_that_differs_from_the_readme_is_named() {
        let readme = Reached::in_readme(README).unwrap();
        let same = Reached::of(&[row("6.12", &[("enqueue", Some("tracepoint"))]), row("5.10", &[("enqueue", None)])]);
        assert_eq!(readme.differences(&same), Vec::<String>::new());
        let better = Reached::of(&[row("6.12", &[("enqueue", Some("trampoline")), ("accept", None)])]);
        assert_eq!(
            readme.differences(&better),
            [
                "README.md says tracepoint of enqueue on 6.12, and it is trampoline",
                "README.md says nothing of accept on 6.12, and it is no",
                "README.md says nothing of sojourn on 6.12, and it is no",
            ]
        );
    }

    #[test]
    fn a_run_replaces_its_columns_and_leaves_the_others() {
        let mut readme = Reached::in_readme(README).unwrap();
        let run = Reached::of(&[
            row("5.10", &[("enqueue", None)]),
            row("7.x", &[("enqueue", Some("trampoline")), ("accept", Some("trampoline"))]),
        ]);
        readme.update(&run);
        let text = readme.clone().into_readme(README).unwrap();
        assert!(text.starts_with("Kernels\n\n<!-- written") && text.ends_with("<!-- end -->\nmore\n"), "{text}");
        let expected = "\
| event   | 6.12       | 7.x        | 5.10 |
|---------|------------|------------|------|
| enqueue | tracepoint | trampoline | no   |
| accept  | no         | trampoline | no   |
| sojourn | no         | trampoline | no   |
";
        assert!(text.contains(expected), "{text}");
        assert_eq!(Reached::in_readme(&text).unwrap().cells(), readme.cells());
        assert_eq!(readme.differences(&run), Vec::<String>::new());
    }

    #[test]
    fn a_readme_without_a_place_for_it_is_an_error() {
        assert!(Reached::in_readme("Kernels").is_err());
        let empty = Reached::in_readme(&format!("{BEGIN}\n{END}\n")).unwrap();
        assert_eq!(empty, Reached::default());
    }
}
