//! The `governorctl` commands of the README and of the operations chapter do what they show. Those in fenced blocks are run, in their order, against one
//! daemon with the pool `chat`; each must succeed, and a table that is shown must have the columns it really has. Those
//! within a sentence or table must succeed too, or be the bare name of a subcommand.

use crate::world::busy;
use std::fs;
use support::programs::bins::root;

/// One command and the line shown below it, if any.
struct Shown {
    command: String,
    below: Option<String>,
}

/// Commands start with `governorctl`, after a prompt or `sudo` or neither; a pipe, redirection or comment ends them.
fn commands(text: &str) -> Vec<Shown> {
    let mut shown = Vec::new();
    let mut fenced = false;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if !fenced {
            let spans = line.split('`').skip(1).step_by(2).filter_map(command);
            shown.extend(spans.map(|command| Shown { command, below: None }));
            continue;
        }
        let Some(command) = command(line) else { continue };
        let below = lines.peek().filter(|below| !below.starts_with("```") && !below.trim().is_empty());
        shown.push(Shown { command, below: below.map(|below| (*below).to_owned()) });
    }
    shown
}

fn command(line: &str) -> Option<String> {
    let line = line.trim().trim_start_matches("$ ").trim_start_matches("# ").trim_start_matches("sudo ");
    let rest = line.strip_prefix("governorctl ")?;
    let end = [" |", " >", " #", "  "].iter().filter_map(|stop| rest.find(stop)).min().unwrap_or(rest.len());
    Some(rest[..end].trim().to_owned())
}

/// A line of capitals above a table.
fn is_header(line: &str) -> bool {
    line.contains("  ") && line.chars().all(|c| c.is_uppercase() || c == ' ')
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_readme_works_as_shown() {
    works_as_shown("README.md").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_operations_chapter_works_as_shown() {
    works_as_shown("governor-user/OPERATIONS.md").await;
}

async fn works_as_shown(file: &str) {
    let text = fs::read_to_string(root().join(file)).unwrap();
    let commands = commands(&text);
    assert!(!commands.is_empty(), "{file} shows no governorctl command");
    // Stands for whoever listens on port 443.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let place = format!(":{port}");
    let busy = busy().await;
    busy.daemon.wait_for("/v1/verdicts", |rows| rows.as_array().unwrap().iter().any(|row| row["port"] == port));
    for Shown { command, below } in commands {
        let meant = |word| match word {
            "ID" => busy.decision.as_str(),
            ":443" => &place,
            "chat/acct-01" => "chat/account-1",
            word => word,
        };
        let mut arguments: Vec<&str> = command.split_whitespace().map(meant).collect();
        // What a dead daemon left is not there to be removed while one runs, and leases that run on are waited for without end.
        let cannot_end = ["--clean", "--wait"].iter().any(|flag| arguments.contains(flag));
        if (arguments.len() == 1 && below.is_none()) || cannot_end {
            arguments.push("--help");
        }
        let output = busy.daemon.ctl(&arguments);
        assert!(output.status.success(), "governorctl {command}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        if let Some(header) = below.filter(|line| is_header(line)) {
            let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let real = text.lines().next().unwrap_or_default();
            assert_eq!(words(&header), words(real), "governorctl {command} has other columns");
        }
    }
}

#[test]
fn commands_are_found_in_fenced_blocks_and_in_code_spans() {
    let text = "run `governorctl keys`, `keys`\n\
                governorctl nowhere\n\
                ```console\n\
                $ governorctl pools --members   # all of them\n\
                POOL  MEMBER\n\
                $ sudo governorctl bypass on --for 30m\n\
                governorctl config --origin | head\n\
                ```\n";
    let found: Vec<String> = commands(text).into_iter().map(|shown| shown.command).collect();
    assert_eq!(found, ["keys", "pools --members", "bypass on --for 30m", "config --origin"]);
    assert!(is_header("POOL  MEMBER") && !is_header("chat  account-1"));
}
