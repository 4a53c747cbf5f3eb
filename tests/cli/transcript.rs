//! One command and what came of it, as text that is the same in every run: what changes from run to run is named in
//! its place, and columns are two spaces apart.

use std::process::Output;
use support::programs::daemon::Daemon;

/// Runs `governorctl` against the daemon and writes down all of it: both outputs and an exit code that is not 0.
pub(crate) fn of(daemon: &Daemon, arguments: &[&str]) -> String {
    let folder = daemon.socket().parent().unwrap().display().to_string();
    let user = format!("uid {}", rustix::process::geteuid().as_raw());
    let own = (format!("process {}", std::process::id()), "process OWN");
    written(&daemon.ctl(arguments), &[(folder, "FOLDER"), (daemon.pid().to_string(), "PID"), (user, "uid UID"), own])
}

/// The same of an output, with texts to replace by a name.
pub(crate) fn written(output: &Output, names: &[(String, &str)]) -> String {
    let mut text = String::from_utf8(output.stdout.clone()).unwrap();
    text.push_str(std::str::from_utf8(&output.stderr).unwrap());
    for (exact, name) in names {
        text = text.replace(exact, name);
    }
    let mut lines: Vec<String> = text.lines().map(line).collect();
    match output.status.code() {
        Some(0) => {}
        Some(code) => lines.push(format!("(exit code {code})")),
        None => lines.push(format!("({})", output.status)),
    }
    lines.join("\n")
}

/// Words keep their order; runs of spaces become two, so that widths of what was named do not matter.
fn line(line: &str) -> String {
    let columns = line.split("  ").map(str::trim).filter(|column| !column.is_empty());
    let named: Vec<String> = columns.map(|column| column.split(' ').map(word).collect::<Vec<_>>().join(" ")).collect();
    named.join("  ")
}

fn word(word: &str) -> String {
    let core = word.trim_end_matches([',', '.', ';', '…']);
    let rest = &word[core.len()..];
    // The kind of an id stays.
    let (kind, core) = match core.split_once('-') {
        Some((kind @ ("d" | "l"), id)) if id.len() == 16 => (format!("{kind}-"), id),
        _ => (String::new(), core),
    };
    let hex = core.bytes().all(|byte| byte.is_ascii_hexdigit());
    let name = match core.len() {
        16 if hex => "ID",
        12 | 32 if hex => "KEY",
        _ if is_time(core) => "TIME",
        20 if core.ends_with('Z') && core.as_bytes()[10] == b'T' => "DATE",
        _ => core,
    };
    format!("{kind}{name}{rest}")
}

/// `250ms`, `4.2s`, `3m05s`.
fn is_time(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
        && word.ends_with(['s', 'm', 'h'])
        && word.chars().all(|c| c.is_ascii_digit() || ".smhd".contains(c))
}
