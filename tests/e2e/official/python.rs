//! One of the official clients, in a process of its own that is asked line by line.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use support::programs::bins;

/// Whose client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Provider {
    OpenAi,
    Anthropic,
}

/// A running client. It ends with this value.
pub(super) struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Client {
    pub(super) fn start(provider: Provider, gateway: SocketAddr) -> Self {
        let name = match provider {
            Provider::OpenAi => "openai",
            Provider::Anthropic => "anthropic",
        };
        let mut child = Command::new(bins::python())
            .arg(bins::root().join("tests/e2e/official/client.py"))
            .args([name, &format!("http://{gateway}")])
            .env("NO_PROXY", "*")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut client = Self { child, input, output: BufReader::new(output) };
        assert_eq!(client.line().trim(), "ready");
        client
    }

    /// One request for an answer of so many words, tried again at most so often, and what came of it.
    pub(super) fn ask(&mut self, stream: bool, words: u32, retries: u32) -> Value {
        self.tell(&json!({"key": "sk-official", "stream": stream, "words": words, "retries": retries}))
    }

    /// So many events over a WebSocket, and what came back. OpenAI's only.
    pub(super) fn talk(&mut self, events: u32) -> Value {
        self.tell(&json!({"key": "sk-official", "events": events}))
    }

    fn tell(&mut self, line: &Value) -> Value {
        writeln!(self.input, "{line}").unwrap();
        let answer = self.line();
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Fails only for a child that has ended, which is what is wanted.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
