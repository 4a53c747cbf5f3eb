//! The manual: a page for each subcommand of `governorctl` and the page of `governord`, made from the command lines
//! themselves and from the facts of both programs below. For packages.

use crate::cli::answer::{Answer, Error};
use crate::cli::help::command::command;
use crate::cli::help::examples;
use clap::Command;
use clap_mangen::Man;
use std::io::{self, Write};
use std::path::Path;

/// Rows of a section: a term and what it means.
type Rows = &'static [(&'static str, &'static str)];

const CONTROL_EXIT: Rows = &[
    ("0", "The answer is positive, or there was nothing to answer."),
    (
        "1",
        "The answer is negative: status has a PROBLEM line, doctor a failed check; an id, pool or key is unknown; a change was refused.",
    ),
    ("2", "The command line is wrong."),
    ("3", "No governord answers on the control socket."),
];

const CONTROL_ENVIRONMENT: Rows = &[
    ("GOVERNOR_DAEMON_CONTROL_SOCKET", "Control socket of the daemon; --socket wins over it."),
    ("GOVERNOR_CONFIG", "Configuration file that doctor --clean reads."),
    ("NODE_SECRET", "Node secret of key --hash; --secret-file wins over it."),
    ("NO_COLOR", "Set and not empty: no colour on a terminal."),
    ("GOVERNORCTL_COMPLETE", "Set by completion scripts."),
];

const CONTROL_FILES: Rows = &[("/run/governor/control.sock", "Control socket (HTTP and JSON).")];

const CONTROL_SEE: &str = "governord(8)";

const DAEMON_EXIT: Rows = &[
    ("0", "Stopped by a signal; with --check: the configuration is valid."),
    ("1", "It could not start or run: the last line on standard error names the reason and the remedy."),
    ("2", "The command line is wrong."),
];

const DAEMON_ENVIRONMENT: Rows = &[
    ("GOVERNOR_SECTION_KEY", "A setting over the file's, e.g. GOVERNOR_NODE_CAP=500 for node.cap."),
    ("GOVERNOR_CONFIG", "Configuration file; --config wins over it."),
    ("GOVERNOR_LOG", "What is logged; --log wins over it."),
    ("NO_COLOR", "Set: no colour on a terminal."),
];

const DAEMON_FILES: Rows = &[
    ("/etc/governor/governor.toml", "Configuration, where --config names no other."),
    ("/run/governor/proxy.sock", "Socket of the proxies (daemon.socket)."),
    ("/run/governor/control.sock", "Socket of governorctl (daemon.control_socket)."),
    (
        "/var/lib/governor/",
        "State that outlives a restart (daemon.state_dir): run-time settings, key overrides, leases, decisions, events.",
    ),
    ("/sys/fs/bpf/governor/", "Programs and maps that count on while the daemon is away (kernel.pin_dir)."),
];

const DAEMON_SIGNALS: Rows = &[
    ("SIGHUP", "Read file and environment again. An invalid configuration changes nothing; status and events show it."),
    (
        "SIGTERM, SIGINT",
        "Stop: announce it, wait daemon.drain_timeout for leases, remove what is pinned. A second one stops at once.",
    ),
    ("SIGUSR2", "Stop for a successor: what is pinned in the kernel goes on counting."),
];

/// Writes `governorctl.1` and a page for each subcommand; asks no daemon.
pub(in crate::cli) fn run(folder: &Path) -> Result<Answer, Error> {
    let mut command = command().disable_help_subcommand(true);
    command.build();
    pages(&command, None, folder).map_err(|source| Error::Local { doing: "write the manual", source })?;
    Ok(Answer::ok(String::new()))
}

/// Writes the page of `governord` in section 8, from its command line.
///
/// # Errors
/// `out` cannot be written.
pub fn daemon_page(command: Command, out: &mut impl Write) -> io::Result<()> {
    let man = Man::new(command).section("8");
    head(&man, out)?;
    man.render_options_section(out)?;
    table(out, "EXIT STATUS", DAEMON_EXIT)?;
    table(out, "SIGNALS", DAEMON_SIGNALS)?;
    table(out, "ENVIRONMENT", DAEMON_ENVIRONMENT)?;
    table(out, "FILES", DAEMON_FILES)?;
    section(out, "SEE ALSO", "governorctl(1)")
}

/// `under`: the subcommand of `governorctl` that this one belongs to.
fn pages(command: &Command, under: Option<&str>, folder: &Path) -> io::Result<()> {
    let is_root = command.get_name() == "governorctl";
    let mut below = Vec::new();
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        pages(subcommand, if is_root { None } else { under.or_else(|| Some(command.get_name())) }, folder)?;
        below.extend(subcommand.get_display_name().map(|name| format!("{name}(1)")));
    }
    let man = Man::new(command.clone());
    let mut out = Vec::new();
    head(&man, &mut out)?;
    man.render_options_section(&mut out)?;
    if !below.is_empty() {
        man.render_subcommands_section(&mut out)?;
    }
    let shown = examples::of(under.unwrap_or_else(|| command.get_name()));
    if !shown.is_empty() {
        writeln!(out, ".SH EXAMPLES")?;
        for (line, what) in shown {
            writeln!(out, ".TP\n\\fB{}\\fR\n{}", roff(line), roff(what))?;
        }
    }
    table(&mut out, "EXIT STATUS", CONTROL_EXIT)?;
    table(&mut out, "ENVIRONMENT", CONTROL_ENVIRONMENT)?;
    table(&mut out, "FILES", CONTROL_FILES)?;
    let also = if is_root { CONTROL_SEE.to_owned() } else { format!("governorctl(1), {CONTROL_SEE}") };
    section(&mut out, "SEE ALSO", &also)?;
    std::fs::write(folder.join(man.get_filename()), out)
}

fn head(man: &Man, out: &mut impl Write) -> io::Result<()> {
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)
}

fn table(out: &mut impl Write, title: &str, rows: Rows) -> io::Result<()> {
    writeln!(out, ".SH {title}")?;
    rows.iter().try_for_each(|(term, what)| writeln!(out, ".TP\n\\fB{}\\fR\n{}", roff(term), roff(what)))
}

fn section(out: &mut impl Write, title: &str, text: &str) -> io::Result<()> {
    writeln!(out, ".SH {title}\n{}", roff(text))
}

/// Text of one line as roff shows it: a backslash, a hyphen, and a line's first dot or quote mean something there.
fn roff(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    if escaped.starts_with(['.', '\'']) { format!("\\&{escaped}") } else { escaped }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_has_a_page_with_examples_and_exit_status() {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path()).unwrap();
        let command = command();
        let names =
            command.get_subcommands().filter(|command| !command.is_hide_set()).map(|command| command.get_name());
        for name in names {
            let page = std::fs::read_to_string(folder.path().join(format!("governorctl-{name}.1"))).unwrap();
            for section in ["NAME", "SYNOPSIS", "EXAMPLES", "EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"] {
                assert_eq!(page.matches(&format!(".SH {section}\n")).count(), 1, "{name}: {section}\n{page}");
            }
        }
        assert!(folder.path().join("governorctl.1").exists() && folder.path().join("governorctl-bypass-on.1").exists());
    }

    #[test]
    fn the_daemons_page_names_its_signals_and_files() {
        let mut page = Vec::new();
        daemon_page(Command::new("governord").about("Governs"), &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        for words in [".SH SIGNALS", "SIGHUP", "SIGUSR2", ".SH FILES", "/etc/governor/governor.toml", ".SH EXIT STATUS"]
        {
            assert!(page.contains(words), "{words} is not in\n{page}");
        }
    }

    #[test]
    fn text_does_not_become_a_request_of_roff() {
        assert_eq!(roff(".profile a-b \\n"), "\\&.profile a\\-b \\en");
    }
}
