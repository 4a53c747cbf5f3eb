//! OPERATIONS.md, the alert rules and the remedies against the code: every verdict has its section, every cause its row, every
//! alert its line, and every command that is named exists.

use governor_common::wire::reply::cause;
use governor_health::{Evidence, Verdict};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use support::programs::bins::root;
use support::programs::daemon::ctl_command;

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

fn chapter() -> String {
    read("governor-user/OPERATIONS.md")
}

/// The names in backquotes that rows or headings of a part of the chapter begin with.
fn names(from: &str, to: &str, before: &str) -> BTreeSet<String> {
    let chapter = chapter();
    let part = chapter.split_once(from).unwrap().1.split_once(to).unwrap().0;
    let named = part.lines().filter_map(|line| line.strip_prefix(before)?.split('`').next().map(str::to_owned));
    named.collect()
}

/// Subcommands that a text says to run.
fn subcommands(text: &str) -> BTreeSet<String> {
    let word = |after: &str| after.split(|c: char| !c.is_ascii_lowercase()).next().unwrap_or_default().to_owned();
    text.split("governorctl ").skip(1).map(word).collect()
}

fn exists(subcommand: &str) -> bool {
    let nowhere = Path::new("/nonexistent/control.sock");
    ctl_command(nowhere, &[subcommand, "--help"]).output().is_ok_and(|output| output.status.success())
}

#[test]
fn every_verdict_has_its_section_and_no_other_word_has_one() {
    let verdicts: BTreeSet<String> = Verdict::ALL.iter().map(|verdict| verdict.as_str().to_owned()).collect();
    assert_eq!(names("\n## Verdicts\n", "\n## Alerts\n", "### `"), verdicts);
}

#[test]
fn every_cause_is_listed() {
    let causes: BTreeSet<String> = cause::NAMES.iter().map(|(_, name)| (*name).to_owned()).collect();
    assert_eq!(names("\n## Level and pressure\n", "\n## Verdicts\n", "| `"), causes);
}

#[test]
fn every_alert_is_listed_with_its_command_and_names_a_verdict() {
    let rules = read("governor-user/dist/alerts.yml");
    let values = |key: &str| -> Vec<String> {
        let lines = rules.lines().filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix(key));
        lines.map(|value| value.trim().trim_matches('"').to_owned()).collect()
    };
    let (alerts, commands) = (values("alert:"), values("command:"));
    assert_eq!((alerts.len(), commands.len()), (5, 5), "exactly five rules, each with its command");
    assert_eq!(names("\n## Alerts\n", "\n## Remove every trace\n", "| `"), alerts.iter().cloned().collect());
    for verdict in values("verdict:") {
        assert!(Verdict::ALL.iter().any(|known| verdict.contains(known.as_str())), "{verdict}");
    }
    for command in commands {
        assert!(subcommands(&command).iter().all(|word| exists(word)), "{command}");
    }
}

/// Units that a text manages, without `.service`.
fn units(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter_map(|line| line.split_once("systemctl ")?.1.split(" #").next());
    let last = |words: &str| words.split_whitespace().last().unwrap_or_default().to_owned();
    lines.map(|words| last(words.split('`').next().unwrap_or_default())).collect()
}

#[test]
fn documents_manage_the_unit_that_is_shipped() {
    for file in ["README.md", "governor-user/OPERATIONS.md"] {
        let units = units(&read(file));
        assert!(!units.is_empty(), "{file} manages no unit");
        for unit in units {
            let shipped = format!("governor-user/dist/{}.service", unit.trim_end_matches(".service"));
            assert!(root().join(&shipped).is_file(), "{file}: systemctl … {unit}, and there is no {shipped}");
        }
    }
}

#[test]
fn remedies_name_commands_that_exist() {
    for verdict in Verdict::ALL {
        for word in subcommands(verdict.remedy(&Evidence::default())) {
            assert!(exists(&word), "{verdict}: governorctl {word}");
        }
    }
}
