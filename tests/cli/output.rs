//! Where the output goes: pipes that break, terminals and files.

use crate::world::quiet;
use std::path::Path;
use std::process::{Command, Stdio};
use support::programs::bins::binary;
use support::programs::daemon::ctl_command;

#[test]
fn a_reader_that_has_gone_is_no_error() {
    let daemon = quiet();
    for arguments in [&["config"][..], &["completions", "bash"], &["--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = ctl_command(&daemon.control_socket(), arguments)
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
            .wait_with_output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
        assert!(output.stderr.is_empty(), "{arguments:?}: {output:?}");
    }
}

#[test]
fn colour_is_for_terminals_that_want_it() {
    let daemon = quiet();
    assert!(daemon.ctl(&["bypass", "on"]).status.success());
    let piped = String::from_utf8(daemon.ctl(&["status"]).stdout).unwrap();
    assert!(piped.contains("on: every request passes") && !piped.contains('\x1b'), "{piped:?}");
    let red = "\x1b[31mon: every request passes";
    let shown = on_terminal(&daemon.control_socket(), |command| command.env_remove("NO_COLOR"));
    assert!(shown.contains(red), "{shown:?}");
    let refused = on_terminal(&daemon.control_socket(), |command| command.env("NO_COLOR", "1"));
    assert!(refused.contains("on: every request passes") && !refused.contains('\x1b'), "{refused:?}");
}

/// What `governorctl status` writes to a terminal, which `script` of util-linux makes for it.
fn on_terminal(socket: &Path, environment: impl Fn(&mut Command) -> &mut Command) -> String {
    let mut command = Command::new("script");
    command
        .args(["--quiet", "--return", "--command"])
        .arg(format!("'{}' status", binary("governorctl").display()))
        .arg("/dev/null")
        .env("GOVERNOR_DAEMON_CONTROL_SOCKET", socket)
        .env("TERM", "xterm")
        .stdin(Stdio::null());
    let output = environment(&mut command).output().expect("util-linux is there");
    assert_eq!(output.status.code(), Some(1), "a bypass is a problem: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}
