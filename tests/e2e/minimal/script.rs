//! A client written from PROTOCOL.md alone, `client.py`, against a real daemon: each answer that the text promises.

use crate::world::daemon;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use support::programs::python;
use support::skip;

/// The running client; it ends when its input does.
struct Script {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Script {
    /// `None` without an interpreter.
    fn start(socket: &Path) -> Option<Self> {
        let mut python = python::command()?;
        let mut child = python.arg(source()).arg(socket).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Some(Self { child, input, output })
    }

    fn run(&mut self, command: &str) -> Value {
        writeln!(self.input, "{command}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{command}: {line:?}"))
    }

    fn end(self) {
        let Self { mut child, input, .. } = self;
        drop(input);
        assert!(child.wait().unwrap().success());
    }
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/minimal/client.py")
}

#[test]
fn it_has_at_most_seventy_lines() {
    let source = std::fs::read_to_string(source()).unwrap();
    let lines = source.lines().filter(|line| !line.is_empty()).count();
    assert!(lines <= 70, "{lines}");
}

#[test]
fn every_refusal_has_its_answer_over_http_and_an_id_that_explain_knows() {
    let daemon = daemon(1, 1, "");
    let Some(mut script) = Script::start(&daemon.socket()) else { return skip("there is no python3") };
    let granted = script.run("acquire chat team-a 0");
    assert_eq!((&granted["status"], &granted["member"]), (&json!(200), &json!("m1")), "{granted}");

    let full = script.run("acquire chat team-b 0");
    assert_eq!((&full["status"], &full["reason"]), (&json!(429), &json!("pool_exhausted")), "{full}");
    let headers = &full["headers"];
    let id = headers["x-governor-decision"].as_str().unwrap();
    assert!(id.len() == 16 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{full}");
    assert_eq!(daemon.get(&format!("/v1/explain/{id}"))["reason"], "pool_exhausted");
    assert_eq!(headers["x-governor-origin"], "pool", "{full}");
    let number = |name: &str| headers[name].as_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(number("retry-after"), number("retry-after-ms").div_ceil(1000), "{full}");

    let key = daemon.get("/v1/keys")[0]["key"].as_str().unwrap().to_owned();
    let set = daemon.ctl(&["key", &key, "--suspend", "--for", "10m", "--reason", "test"]);
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
    let suspended = script.run("acquire chat team-a 0");
    assert_eq!((&suspended["status"], &suspended["headers"]["x-should-retry"]), (&json!(403), &json!("false")));
    assert!(suspended["headers"].get("retry-after").is_none(), "{suspended}");

    let never = script.run("acquire nowhere team-a 0");
    assert!(never["status"] == 400 && never["message"].as_str().unwrap().contains("nowhere"), "{never}");
    script.end();
}

#[test]
fn an_error_ends_its_request_and_the_session_lives_on() {
    let daemon = daemon(1, 1, "");
    let Some(mut script) = Script::start(&daemon.socket()) else { return skip("there is no python3") };
    let unknown = script.run("unknown");
    assert_eq!(
        (&unknown["status"], &unknown["headers"]["x-should-retry"]),
        (&json!(400), &json!("false")),
        "{unknown}"
    );
    let malformed = script.run(&format!("acquire {} team-a 0", "p".repeat(129)));
    assert_eq!(malformed["status"], 400, "{malformed}");
    assert_eq!(script.run("acquire chat team-a 0")["status"], 200);
    script.end();
}

#[test]
fn a_withdrawn_request_gets_no_answer_and_a_release_may_carry_no_id() {
    let daemon = daemon(1, 1, "");
    let Some(mut script) = Script::start(&daemon.socket()) else { return skip("there is no python3") };
    let lease = script.run("acquire chat team-a 0")["lease"].clone();
    assert_eq!(script.run("withdraw chat team-b 20000"), json!([]));
    script.run(&format!("release {lease}"));
    daemon.wait_for("/v1/pools", |pools| pools[0]["parked"] == 0 && pools[0]["in_flight"] == 0);
    assert_eq!(script.run("acquire chat team-b 0")["status"], 200, "the slot is free and nothing waits");
    script.end();
}
