//! A whole site on loopback: the example upstream, the example gateway, and clients that read streams by hand.

use crate::world::SOON;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use support::machine::cgroup::Cgroup;
use support::programs::bins::example;

/// A program that prints `listening on ADDRESS` and is killed with this value.
pub(crate) struct Program {
    child: Child,
    pub(crate) address: SocketAddr,
    _output: BufReader<ChildStdout>,
    log: std::path::PathBuf,
    _folder: tempfile::TempDir,
}

impl Program {
    fn start(name: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(example(name));
        command.args(arguments);
        Self::run(name, command)
    }

    fn run(name: &str, mut command: Command) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut child = command
            .env("RUST_LOG", "trace")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{name} said {line:?}"));
        Self { child, address: address.parse().unwrap(), _output: output, log, _folder: folder }
    }

    /// SIGTERM, as an operator would.
    pub(crate) fn terminate(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    /// Whether it has ended by itself, and how.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for it to end by itself.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let bound = Instant::now() + SOON;
        loop {
            match self.ended() {
                Some(status) => return status,
                None => assert!(Instant::now() < bound, "it does not end\n{}", self.log()),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// SIGKILL, as a crash would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Everything it logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Fails only for a child that has ended, which is what is wanted.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// An upstream with accounts `acct-01`… whose streams last for as long as a test may need.
pub(crate) fn upstream(accounts: u32, slots: u32) -> Program {
    Program::start(
        "upstream",
        &[
            "--accounts",
            &accounts.to_string(),
            "--slots",
            &slots.to_string(),
            "--median-ms",
            "600000",
            "--sigma",
            "0.0",
            "--longest-ms",
            "600000",
        ],
    )
}

/// A gateway in front of it.
pub(crate) fn gateway(upstream: &Program, socket: &Path) -> Program {
    gateway_with(upstream, socket, &[])
}

/// A gateway in front of it with more arguments.
pub(crate) fn gateway_with(upstream: &Program, socket: &Path, more: &[&str]) -> Program {
    let (upstream, socket) = (upstream.address.to_string(), socket.to_str().unwrap());
    let arguments = [&["--upstream", &upstream, "--socket", socket], more].concat();
    Program::start("gateway", &arguments)
}

/// A gateway whose sockets are this cgroup's from the first on.
pub(crate) fn gateway_in(cgroup: &Cgroup, upstream: &Program, socket: &Path) -> Program {
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""]).arg(cgroup.folder()).arg(example("gateway"));
    command.args(["--upstream", &upstream.address.to_string(), "--socket"]).arg(socket);
    Program::run("gateway", command)
}

/// The pool that stands for such an upstream.
pub(crate) fn accounts(count: u32, slots: u32, lines: &str) -> String {
    let members: String = (1..=count)
        .map(|n| format!("[[pools.chat.members]]\nname = \"acct-{n:02}\"\nslots = {slots}\nreserve = 0\n"))
        .collect();
    format!("[pools.chat]\n{lines}\n{members}")
}

/// An answer whose body has not been read.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    reader: BufReader<TcpStream>,
}

impl Answer {
    /// Reads the head of an answer.
    pub(crate) fn read(stream: TcpStream) -> Self {
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "the server closed: {head:?}");
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head, reader }
    }

    /// Waits for the first bytes of the body.
    pub(crate) fn first_bytes(&mut self) -> usize {
        self.reader.fill_buf().unwrap().len()
    }

    /// Reads the body to its end.
    pub(crate) fn body(mut self) -> String {
        let mut text = String::new();
        self.reader.read_to_string(&mut text).unwrap();
        text
    }

    /// Reads a body of JSON to its end.
    pub(crate) fn json(self) -> serde_json::Value {
        let text = self.body();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
    }

    /// The connection, for what follows the head of an answer that was upgraded.
    pub(crate) fn into_stream(self) -> TcpStream {
        assert!(self.reader.buffer().is_empty(), "nothing was sent yet");
        self.reader.into_inner()
    }

    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (have, value) = line.split_once(':')?;
            have.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// One chat request with this API key, up to the end of the answer's head. The answer is a stream.
pub(crate) fn chat(gateway: SocketAddr, key: &str) -> Answer {
    Answer::read(send_chat(gateway, key))
}

/// The same without waiting for an answer, which comes by what is returned.
pub(crate) fn send_chat(gateway: SocketAddr, key: &str) -> TcpStream {
    let body = r#"{"model":"m","stream":true,"messages":[]}"#;
    send(gateway, "POST /v1/chat/completions", &head(key), body)
}

/// One request with this API key, up to the end of the answer's head.
pub(crate) fn post(gateway: SocketAddr, path: &str, key: &str, body: &str) -> Answer {
    request(gateway, &format!("POST {path}"), &head(key), body)
}

/// One request with these headers, up to the end of the answer's head.
pub(crate) fn request(server: SocketAddr, line: &str, headers: &str, body: &str) -> Answer {
    Answer::read(send(server, line, headers, body))
}

fn head(key: &str) -> String {
    format!("Authorization: Bearer {key}\r\nContent-Type: application/json\r\nConnection: close")
}

fn send(server: SocketAddr, line: &str, headers: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let length = body.len();
    write!(stream, "{line} HTTP/1.1\r\nHost: gateway\r\n{headers}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    stream
}

/// From now on an account of the upstream answers 429 to new requests, for so many seconds.
pub(crate) fn cool(upstream: SocketAddr, account: &str, seconds: u32) {
    cool_with(upstream, account, seconds, 429);
}

/// The same with another status.
pub(crate) fn cool_with(upstream: SocketAddr, account: &str, seconds: u32, status: u16) {
    let query = format!("account={account}&seconds={seconds}&status={status}");
    let answer = status_of(upstream, &format!("POST /admin/cool?{query}"));
    assert!((200..300).contains(&answer), "{answer}");
}

/// What the upstream counted.
pub(crate) fn stats(upstream: SocketAddr) -> serde_json::Value {
    request(upstream, "GET /admin/stats", "Connection: close", "").json()
}

/// The status of the answer to a request without a body, `METHOD PATH`.
pub(crate) fn status_of(address: SocketAddr, line: &str) -> u16 {
    request(address, line, "Connection: close", "").status
}

/// The guide's own ten lines.
pub(crate) fn quickstart(socket: &Path, secret: &str) -> Program {
    let mut command = Command::new(example("quickstart"));
    command.arg(socket).env("NODE_SECRET", secret);
    Program::run("quickstart", command)
}
