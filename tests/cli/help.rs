//! Help and usage errors.

use crate::transcript::written;
use std::path::Path;
use std::process::{Command, Output};
use support::programs::bins::binary;
use support::programs::daemon::ctl_command;

fn ctl(arguments: &[&str]) -> Output {
    ctl_command(Path::new("/nonexistent/control.sock"), arguments).output().unwrap()
}

#[test]
fn help_lists_every_subcommand_and_the_exit_codes() {
    let output = ctl(&["--help"]);
    assert!(output.status.success());
    insta::assert_snapshot!(String::from_utf8(output.stdout).unwrap(), @"
    See, explain and steer the governor

    Usage: governorctl [OPTIONS] <COMMAND>

    Commands:
      status       The daemon at a glance: level, bypass, sessions, pools, what is degraded
      listeners    Listening sockets with their accept queues
      cgroups      Open connections per cgroup
      namespaces   What each network namespace drops and why
      pools        Pools of upstream capacity, the longest parked wait first
      members      Upstream members of each pool, the troubled ones first
      member       Take a member out, put it back, or end its cool-down; kept across restarts
      keys         Keys with anything in flight or parked, the heaviest first
      key          Cap, weigh, guarantee or suspend one key at run time; without a key, list what is
                   set. What is not named stays
      events       What operators changed, and what ended by itself
      leases       Live leases, the oldest first
      refusals     Requests that were refused: how many for which reason, and the newest ones
      explain      Why a request was refused, what a lease or session holds, by id, or what is wrong
                   with a listener
      advise       What other fair-share settings would have done with the demand that was recorded
      set          Set a value at run time, over file and environment; kept across restarts
      unset        Remove what `set` set
      bypass       Let every request pass at once, counted
      drain        Refuse new requests and let what runs end, e.g. before maintenance; kept across
                   restarts
      tune         Backlogs that the tuner raised or leaves alone, and what it did
      config       The settings in effect
      reload       Read the configuration again; an invalid one changes nothing (exit code 1)
      doctor       Check the daemon and the machine; without a daemon, only the machine (exit code 3)
      completions  Print a completion script
      help         Print this message or the help of the given subcommand(s)

    Options:
          --socket <PATH>        Control socket of the daemon [env: GOVERNOR_DAEMON_CONTROL_SOCKET]
                                 [default: /run/governor/control.sock]
          --format <table|json>  Tables for people, JSON for programs [default: table]
      -h, --help                 Print help
      -V, --version              Print version

    Exit codes: 0 ok · 1 negative answer (a problem, a failed check, unknown, refused) · 2 usage · 3
    daemon unreachable
    ");
}

#[test]
fn help_of_a_subcommand_says_what_it_takes() {
    let of = |arguments: &[&str]| String::from_utf8(ctl(arguments).stdout).unwrap();
    insta::assert_snapshot!(of(&["leases", "--help"]), @"
    Live leases, the oldest first

    Usage: governorctl leases [OPTIONS]

    Options:
          --pool <NAME>          Only this pool
          --socket <PATH>        Control socket of the daemon [env: GOVERNOR_DAEMON_CONTROL_SOCKET]
                                 [default: /run/governor/control.sock]
          --format <table|json>  Tables for people, JSON for programs [default: table]
          --idle <TIME>          Only leases that moved no byte for so long, e.g. 60s
      -h, --help                 Print help

    Examples:
      governorctl leases --pool chat --idle 60s
          leases that have moved no byte for a minute
    ");
    insta::assert_snapshot!(of(&["bypass", "on", "--help"]), @"
    Switch on

    Usage: governorctl bypass on [OPTIONS]

    Options:
          --for <TIME>           Switch off by itself after so long, e.g. 30m; without it, only `bypass
                                 off` ends it
          --socket <PATH>        Control socket of the daemon [env: GOVERNOR_DAEMON_CONTROL_SOCKET]
                                 [default: /run/governor/control.sock]
          --format <table|json>  Tables for people, JSON for programs [default: table]
      -h, --help                 Print help
    ");
}

#[test]
fn a_wrong_command_line_ends_with_2_and_a_hint() {
    let usage = |arguments: &[&str]| written(&ctl(arguments), &[]);
    insta::assert_snapshot!(usage(&["statu"]), @"
    error: unrecognized subcommand 'statu'

    tip: a similar subcommand exists: 'status'

    Usage: governorctl [OPTIONS] <COMMAND>

    For more information, try '--help'.
    (exit code 2)
    ");
    insta::assert_snapshot!(usage(&["bypass", "on", "--for", "30"]), @r#"
    error: invalid value '30' for '--for <TIME>': expected a duration with a unit, found "30": write "30s" or "30ms"

    For more information, try '--help'.
    (exit code 2)
    "#);
    for arguments in [&[][..], &["set", "node.cap"], &["bypass"], &["pools", "--format", "yaml"]] {
        assert_eq!(ctl(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn help_of_a_subcommand_is_a_command_too() {
    for subcommand in ["leases", "bypass"] {
        let (help, option) = (ctl(&["help", subcommand]), ctl(&[subcommand, "--help"]));
        assert!(help.status.success() && help.stdout == option.stdout, "{subcommand}: {help:?}");
    }
}

#[test]
fn an_error_is_written_once() {
    let nowhere = Path::new("/nonexistent/governor.toml");
    let check = |name: &str, arguments: &[&str]| {
        let output = Command::new(binary(name)).args(arguments).arg("--config").arg(nowhere).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    for said in [check("governord", &["--check"]), check("governorctl", &["doctor", "--clean"])] {
        assert_eq!(said.matches("No such file").count(), 1, "{said}");
        assert_eq!(said.matches("/nonexistent/governor.toml").count(), 1, "{said}");
    }
}

#[test]
fn a_shell_completes_pools_settings_and_subcommands() {
    let daemon = crate::world::quiet();
    let complete = |words: &[&str]| {
        let output = ctl_command(&daemon.control_socket(), &[&["--", "governorctl"][..], words].concat())
            .env("GOVERNORCTL_COMPLETE", "bash")
            .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
            .env("_CLAP_IFS", "\n")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(complete(&["keys", "--pool", ""]), ["chat"]);
    assert_eq!(complete(&["byp"]), ["bypass"]);
    let settings = complete(&["set", "pools.chat.fair_share"]);
    assert!(settings.contains(&"pools.chat.fair_share_mode".to_owned()), "{settings:?}");
    assert_eq!(complete(&["set", "daemon.sock"]), Vec::<String>::new(), "it cannot be set at run time");
}

#[test]
fn version_is_the_version_of_the_workspace() {
    assert_eq!(
        String::from_utf8(ctl(&["--version"]).stdout).unwrap(),
        format!("governorctl {}\n", env!("CARGO_PKG_VERSION"))
    );
}
