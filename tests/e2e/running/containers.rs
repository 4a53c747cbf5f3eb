//! Daemon and proxy in different namespaces, as containers have them: pids, users and clocks are relative to their reader.

use crate::world::pool;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use support::programs::daemon::{Daemon, Setup};

const OWN_PIDS: &str = "exec unshare --pid --fork --kill-child";

/// A process that takes one lease and keeps it until its input ends.
struct Proxy {
    child: Child,
    /// `granted`, or what the daemon answered instead.
    answer: String,
}

impl Proxy {
    /// Starts it by this command, such as `unshare --pid --fork`, as this user.
    fn start(socket: &Path, wrapper: &[&str], uid: u32) -> Self {
        let program = [wrapper, &["python3", "-c", PROXY]].concat();
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).arg(socket).stdin(Stdio::piped()).stdout(Stdio::piped()).uid(uid);
        let mut child = command.spawn().unwrap();
        let mut answer = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut answer).unwrap();
        Self { child, answer: answer.trim().to_owned() }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Says Hello, asks for a slot of the pool `chat`, prints what came of it and waits.
const PROXY: &str = r#"
import socket, struct, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
s.connect(sys.argv[1])
def frame(kind, request, body):
    try:
        s.sendall(struct.pack("<IBBHI", 8 + len(body), kind, 0, 0, request) + body)
    except OSError:
        pass
def tlv(kind, value):
    return struct.pack("<HH", kind, len(value)) + value
frame(1, 1, struct.pack("<HH", 2, 0) + tlv(1, b"python"))
frame(2, 2, b"\0" + tlv(3, b"chat"))
data = b""
while True:
    chunk = s.recv(65536)
    if not chunk:
        print("closed", flush=True)
        sys.exit()
    data += chunk
    while len(data) >= 4 and len(data) >= 4 + struct.unpack_from("<I", data)[0]:
        length = 4 + struct.unpack_from("<I", data)[0]
        one, data = data[:length], data[length:]
        if one[4] == 0x82:
            print("granted", flush=True)
            sys.stdin.read()
        if one[4] == 0x8b:
            print("refused", one[18:].decode(), flush=True)
            sys.exit()
"#;

fn is_root() -> bool {
    if !rustix::process::geteuid().is_root() {
        support::skip("namespaces of their own need root");
        return false;
    }
    true
}

fn setup(grace: &str) -> Setup {
    Setup::new(&format!("[node]\nsession_grace = \"{grace}\"\n{}", pool(1, 1, "")))
}

fn check(daemon: &Daemon, name: &str) -> Option<String> {
    let checks = daemon.get("/v1/doctor");
    let check = checks.as_array()?.iter().find(|check| check["name"] == name)?;
    Some(check["detail"].as_str()?.to_owned())
}

fn ends_without_leases(daemon: &Daemon) {
    daemon.wait_for("/v1/leases", |leases| leases == &json!([]));
}

/// Changes a setting as root of the machine.
fn may_write(daemon: &Daemon) -> (u16, Value) {
    daemon.request("PUT", "/v1/settings/node.cap", Some(&json!({ "value": 7 })))
}

#[test]
fn a_proxy_outside_the_daemons_pid_namespace_is_served() {
    if !is_root() {
        return;
    }
    for (script, foreign_proc) in [(format!("{OWN_PIDS} --mount-proc"), false), (OWN_PIDS.to_owned(), true)] {
        let daemon = setup("300ms").within(&script).start();
        let proxy = Proxy::start(&daemon.socket(), &["env"], 0);
        assert_eq!(proxy.answer, "granted", "{}", daemon.log());
        let session = &daemon.get("/v1/status")["sessions"][0];
        assert_eq!((&session["pid"], &session["uid"]), (&Value::Null, &json!(0)));
        let said = check(&daemon, "pid namespaces").expect("the doctor counts such proxies");
        assert!(said.contains("1 of 1 proxies") && said.contains("300ms"), "{said}");
        assert_eq!(check(&daemon, "/proc").is_some(), foreign_proc);
        let (status, answer) = may_write(&daemon);
        assert_eq!(status, 200, "root outside may change settings: {answer}");
        proxy.kill();
        ends_without_leases(&daemon);
    }
}

#[test]
fn a_proxy_in_a_pid_namespace_ends_with_its_process() {
    if !is_root() {
        return;
    }
    let daemon = setup("1h").start();
    let proxy = Proxy::start(&daemon.socket(), &["unshare", "--pid", "--fork", "--kill-child"], 0);
    assert_eq!(proxy.answer, "granted");
    assert!(daemon.get("/v1/status")["sessions"][0]["pid"].as_u64().is_some_and(|pid| pid > 1));
    assert_eq!(check(&daemon, "pid namespaces"), None);
    proxy.kill();
    ends_without_leases(&daemon);
}

#[test]
fn an_unmapped_user_is_never_taken_for_a_listed_one() {
    if !is_root() {
        return;
    }
    let in_user_namespace = || setup("1h").within("exec unshare --user --map-root-user");
    for (allowed, answer) in [("", "granted"), ("65534", "refused uid 65534 is not in daemon.allow_users")] {
        let setup = in_user_namespace().env("GOVERNOR_DAEMON_SOCKET_MODE", "0666");
        let setup = setup.env("GOVERNOR_DAEMON_CONTROL_MODE", "0666");
        let daemon = setup.env("GOVERNOR_DAEMON_ALLOW_USERS", allowed).start();
        let socket = daemon.socket();
        std::fs::set_permissions(socket.parent().unwrap(), PermissionsExt::from_mode(0o755)).unwrap();
        // Neither 65533 nor its stand-in inside is a user of the namespace.
        let proxy = Proxy::start(&socket, &["env"], 65533);
        assert_eq!(proxy.answer, answer, "{}", daemon.log());
        assert_eq!(may_write(&daemon).0, 200, "root is mapped");
        let mut curl = Command::new("python3");
        curl.args(["-c", WRITE]).arg(daemon.control_socket()).uid(65533).stdout(Stdio::piped());
        let mut refusal = String::new();
        curl.spawn().unwrap().stdout.unwrap().read_to_string(&mut refusal).unwrap();
        assert!(refusal.contains("403") && refusal.contains("outside governord's user namespace"), "{refusal}");
    }
}

/// Tries to change a setting.
const WRITE: &str = r#"
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
s.connect(sys.argv[1])
body = b'{"value": 8}'
s.sendall(b"PUT /v1/settings/node.cap HTTP/1.1\r\nHost: governor\r\nConnection: close\r\nContent-Type: application/json\r\n"
          + b"Content-Length: %d\r\n\r\n" % len(body) + body)
while (data := s.recv(65536)):
    sys.stdout.write(data.decode())
"#;

#[test]
fn a_proxy_in_a_user_namespace_is_its_user_outside() {
    if !is_root() {
        return;
    }
    let daemon = setup("1h").start();
    let proxy = Proxy::start(&daemon.socket(), &["unshare", "--user", "--map-user=1234"], 0);
    assert_eq!(proxy.answer, "granted");
    assert_eq!(daemon.get("/v1/status")["sessions"][0]["uid"], 0);
}

#[test]
fn kernel_times_are_read_right_in_a_time_namespace() {
    if !is_root() {
        return;
    }
    let apart = "exec unshare --time --monotonic 100000 --boottime 100000 --fork --kill-child";
    let daemon = setup("1h").tier("auto").within(apart).start();
    if ["netlink", "procfs"].iter().any(|tier| daemon.get("/v1/status")["tier"] == *tier) {
        return support::skip("no kernel program stamps connections here");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let row = |rows: &Value| rows.as_array()?.iter().find(|row| row["port"] == address.port()).cloned();
    daemon.wait_for("/v1/listeners", |rows| row(rows).is_some());
    let _waits = TcpStream::connect(address).unwrap();
    let age = |rows: &Value| row(rows)?["oldest_queued_seconds"].as_f64();
    let rows = daemon.wait_for("/v1/listeners", |rows| age(rows).is_some());
    assert!(age(&rows).is_some_and(|age| age < 1000.0), "{rows:#}");
}
