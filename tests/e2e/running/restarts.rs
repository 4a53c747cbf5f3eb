//! Leases over a daemon that was killed: what the next life counts before their holders are back, and after.

use crate::raw::Raw;
use crate::world::{client, lease, pool, soon};
use governor_common::wire::reply::Reply;
use governor_common::wire::request::{HeldLease, Request};
use serde_json::json;
use support::programs::daemon::{Daemon, Setup};

/// A daemon of one pool with so many slots, whose last life's leases count for so long.
fn daemon(slots: u32, grace: &str) -> Daemon {
    Setup::new(&format!("[node]\nsession_grace = \"{grace}\"\n{}", pool(1, slots, ""))).start()
}

/// Kills the daemon when what it keeps on disk shows so many leases, and starts it again.
fn crash(daemon: &mut Daemon, kept: usize) {
    let file = daemon.state_dir().join("leases.json");
    let leases = || -> Option<usize> {
        let content: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).ok()?).ok()?;
        Some(
            content["sessions"]
                .as_array()?
                .iter()
                .filter_map(|session| session["leases"].as_array())
                .map(Vec::len)
                .sum(),
        )
    };
    let end = std::time::Instant::now() + crate::world::SOON;
    while leases() != Some(kept) {
        assert!(std::time::Instant::now() < end, "{kept} leases are not kept: {:?}", leases());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    daemon.kill();
    daemon.restart().unwrap();
}

fn granted(reply: &Reply) -> u64 {
    let Reply::Grant(grant) = reply else { panic!("no grant: {reply:?}") };
    grant.lease
}

#[test]
fn what_others_hold_is_not_handed_out_before_they_are_back() {
    let mut daemon = daemon(2, "1h");
    let mut holder = Raw::greeted(&daemon.socket());
    granted(&holder.acquire(2, |_| {}));
    granted(&holder.acquire(3, |_| {}));
    crash(&mut daemon, 2);
    let status = daemon.get("/v1/status");
    assert_eq!((&status["awaited"], &status["pools"][0]["in_flight"]), (&json!(2), &json!(2)), "{status}");
    let mut other = Raw::greeted(&daemon.socket());
    let refused = other.acquire(2, |acquire| acquire.max_wait_ms = Some(0));
    assert!(matches!(refused, Reply::Shed(ref shed) if shed.reason == "pool_exhausted"), "{refused:?}");
}

#[test]
fn who_never_comes_back_loses_his_leases_after_the_grace() {
    let mut daemon = daemon(1, "1s");
    let mut holder = Raw::greeted(&daemon.socket());
    granted(&holder.acquire(2, |_| {}));
    crash(&mut daemon, 1);
    let mut other = Raw::greeted(&daemon.socket());
    granted(&other.acquire(2, |_| {}));
    assert_eq!(daemon.get("/v1/status")["awaited"], 0);
}

#[test]
fn a_proxy_that_is_back_keeps_what_it_registers_and_no_more() {
    let mut daemon = daemon(3, "1h");
    let mut holder = Raw::greeted(&daemon.socket());
    let kept = granted(&holder.acquire(2, |acquire| acquire.label = Some("kept".into())));
    granted(&holder.acquire(3, |_| {}));
    granted(&holder.acquire(4, |_| {}));
    crash(&mut daemon, 3);
    let mut back = Raw::resuming(&daemon.socket(), holder.session);
    let held = HeldLease { lease: kept, pool: "chat".into(), ..HeldLease::default() };
    back.send(2, &Request::Register { leases: vec![held] });
    let Reply::Registered { leases } = back.reply_to(2) else { panic!("it is registered") };
    assert!(leases[0].0 == kept && leases[0].1 != kept && leases[0].1 != 0, "{leases:?}");
    assert_eq!(daemon.get("/v1/status")["awaited"], 2);
    assert_eq!(daemon.get("/v1/pools")[0]["in_flight"], 3, "counted once");
    // By asking for more it says that the other two have ended.
    granted(&back.acquire(3, |acquire| acquire.max_wait_ms = Some(0)));
    assert_eq!(daemon.get("/v1/status")["awaited"], 0);
    assert_eq!(daemon.get("/v1/pools")[0]["in_flight"], 2);
}

#[test]
fn a_lease_counts_once_though_its_holder_never_read_its_new_id() {
    let mut daemon = daemon(4, "1h");
    let mut holder = Raw::greeted(&daemon.socket());
    let (adopted, anew) = (granted(&holder.acquire(2, |_| {})), 7);
    let register = |daemon: &Daemon| {
        let mut back = Raw::resuming(&daemon.socket(), holder.session);
        let held = |lease| HeldLease { lease, pool: "chat".into(), ..HeldLease::default() };
        back.send(2, &Request::Register { leases: vec![held(adopted), held(anew)] });
        back
    };
    let mut kept = 1;
    // More deaths than ids are remembered would be the holder's own fault: it never reads.
    for _ in 0..4 {
        crash(&mut daemon, kept);
        // Kept open, and the answer is never read.
        let _unread = register(&daemon);
        daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 2);
        daemon.wait_for("/v1/status", |status| status["awaited"] == 0);
        kept = 2;
    }
    let mut back = register(&daemon);
    let Reply::Registered { leases } = back.reply_to(2) else { panic!("they are registered") };
    back.send(3, &Request::Release { leases: leases.iter().map(|(_, new)| *new).collect() });
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
}

#[test]
fn another_process_cannot_take_a_lease_over() {
    let mut daemon = daemon(2, "1h");
    let mut holder = Raw::greeted(&daemon.socket());
    let lease = granted(&holder.acquire(2, |_| {}));
    crash(&mut daemon, 1);
    let mut ids = Vec::new();
    for _ in 0..2 {
        let output = std::process::Command::new("python3")
            .args(["-c", STRANGER])
            .arg(daemon.socket())
            .args([holder.session.to_string(), lease.to_string()])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        ids.push(String::from_utf8(output.stdout).unwrap().trim().parse::<u64>().unwrap());
        assert_eq!(daemon.get("/v1/status")["awaited"], 1, "the lease waits for its own process");
    }
    assert_ne!(ids[0], ids[1], "each was entered anew: {ids:?}");
    let mut back = Raw::resuming(&daemon.socket(), holder.session);
    back.send(2, &Request::Register { leases: vec![HeldLease { lease, pool: "chat".into(), ..HeldLease::default() }] });
    assert!(matches!(back.reply_to(2), Reply::Registered { .. }));
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 1);
    assert_eq!(daemon.get("/v1/status")["awaited"], 0);
}

/// Says Hello as the session argv[2], registers the lease argv[3] and prints the id it is given.
const STRANGER: &str = r#"
import socket, struct, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
s.connect(sys.argv[1])
def frame(kind, request, body):
    s.sendall(struct.pack("<IBBHI", 8 + len(body), kind, 0, 0, request) + body)
def tlv(kind, value):
    return struct.pack("<HH", kind, len(value)) + value
def replies(kind):
    data = b""
    while True:
        data += s.recv(65536)
        while len(data) >= 4 and len(data) >= 4 + struct.unpack_from("<I", data)[0]:
            length = 4 + struct.unpack_from("<I", data)[0]
            one, data = data[:length], data[length:]
            if one[4] == kind:
                return one[12:]
frame(1, 1, struct.pack("<HH", 2, 0) + tlv(1, b"stranger") + tlv(2, struct.pack("<Q", int(sys.argv[2]))))
held = struct.pack("<QIB", int(sys.argv[3]), 0, 0) + tlv(3, b"chat")
frame(8, 2, tlv(14, held))
body = replies(0x86)
print(struct.unpack_from("<Q", body, 12)[0])
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_ours_is_counted_once_through_any_number_of_deaths() {
    let mut daemon = daemon(4, "1h");
    let governor = client(&daemon.socket()).await;
    let held = [lease(&governor, "a").await, lease(&governor, "b").await, lease(&governor, "b").await];
    for _ in 0..3 {
        daemon = tokio::task::spawn_blocking(move || {
            crash(&mut daemon, 3);
            daemon
        })
        .await
        .unwrap();
        let mut connected = governor.connected();
        soon(connected.wait_for(|connected| *connected)).await.unwrap();
        daemon.wait_for("/v1/status", |status| status["awaited"] == 0);
        assert_eq!(daemon.get("/v1/pools")[0]["in_flight"], 3);
    }
    drop(held);
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
}

#[test]
fn a_clean_stop_keeps_what_runs_and_forgets_what_does_not() {
    let mut daemon = daemon(1, "1h");
    let mut holder = Raw::greeted(&daemon.socket());
    let lease = granted(&holder.acquire(2, |_| {}));
    daemon.halt();
    daemon.restart().unwrap();
    assert_eq!(daemon.get("/v1/status")["awaited"], 1);
    let mut back = Raw::resuming(&daemon.socket(), holder.session);
    back.send(2, &Request::Register { leases: vec![HeldLease { lease, pool: "chat".into(), ..HeldLease::default() }] });
    let Reply::Registered { leases } = back.reply_to(2) else { panic!("it is registered") };
    back.send(3, &Request::Release { leases: vec![leases[0].1] });
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
    daemon.halt();
    daemon.restart().unwrap();
    assert_eq!(daemon.get("/v1/status")["awaited"], 0);
}
