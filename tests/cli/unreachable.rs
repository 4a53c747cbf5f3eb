//! No daemon: one clear sentence that names the socket and the remedy, and exit code 3 from every subcommand.

use crate::transcript::written;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::Path;
use support::programs::daemon::ctl_command;
use tempfile::TempDir;

fn transcript(socket: &Path, arguments: &[&str]) -> String {
    let folder = socket.parent().unwrap().display().to_string();
    written(&ctl_command(socket, arguments).output().unwrap(), &[(folder, "FOLDER")])
}

#[test]
fn the_sentence_names_the_socket_the_reason_and_the_remedy() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("control.sock");
    insta::assert_snapshot!(transcript(&socket, &["status"]), @"
    governorctl: cannot reach governord at FOLDER/control.sock: there is no such socket; start governord (systemctl start governord), or name its socket with --socket; if it runs and the file was removed, systemctl kill --signal=HUP --kill-whom=main governord makes it again
    (exit code 3)
    ");
    drop(UnixListener::bind(&socket).unwrap());
    insta::assert_snapshot!(transcript(&socket, &["status"]), @"
    governorctl: cannot reach governord at FOLDER/control.sock: nobody listens there, it was left by a governord that is gone; start governord (systemctl start governord)
    (exit code 3)
    ");
}

#[test]
fn every_subcommand_that_asks_ends_with_3() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("control.sock");
    for arguments in [
        &["status"][..],
        &["listeners"],
        &["cgroups"],
        &["pools"],
        &["keys"],
        &["leases"],
        &["explain", "1"],
        &["set", "node.cap", "1"],
        &["unset", "node.cap"],
        &["bypass", "off"],
        &["config"],
        &["doctor"],
        &["--format", "json", "pools"],
    ] {
        let output = ctl_command(&socket, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {output:?}");
    }
}

#[test]
fn the_option_wins_over_the_environment() {
    let folder = TempDir::new().unwrap();
    let (environment, option) = (folder.path().join("environment"), folder.path().join("option"));
    let output = ctl_command(&environment, &["status", "--socket", option.to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(option.to_str().unwrap()) && !said.contains(environment.to_str().unwrap()), "{said}");
}

#[test]
fn somebody_else_on_the_socket_is_not_taken_for_the_daemon() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("control.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let stranger = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 mail.example ESMTP\r\n").unwrap();
    });
    let said = transcript(&socket, &["status"]);
    stranger.join().unwrap();
    assert!(said.starts_with("governorctl: what answers at FOLDER/control.sock is not governord"), "{said}");
    assert!(said.ends_with("(exit code 3)"), "{said}");
}

#[test]
fn doctor_checks_the_machine_all_the_same() {
    let folder = TempDir::new().unwrap();
    let said = transcript(&folder.path().join("control.sock"), &["doctor"]);
    assert!(said.starts_with("FAIL  daemon  cannot reach governord at FOLDER/control.sock"), "{said}");
    for name in ["rights", "kernel BTF", "lockdown", "cgroup v2"] {
        assert!(said.lines().any(|line| line.split("  ").nth(1) == Some(name)), "{name} is not in\n{said}");
    }
}

#[test]
fn what_a_dead_daemon_left_is_removed_without_one() {
    let mut daemon = support::programs::daemon::Setup::new("").start();
    let folder = daemon.socket().parent().unwrap().display().to_string();
    let said = |output| written(&output, &[(folder.clone(), "FOLDER")]);
    insta::assert_snapshot!(said(daemon.clean()), @"
    nothing is removed: another governord is running on FOLDER/proxy.sock: stop it first or choose another path
    (exit code 1)
    ");
    daemon.kill();
    insta::assert_snapshot!(said(daemon.clean()), @"
    removed FOLDER/proxy.sock
    removed FOLDER/control.sock
    ");
    insta::assert_snapshot!(said(daemon.clean()), @"there is nothing to remove");
}
