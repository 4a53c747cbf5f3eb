//! Raw API keys never leave the proxy (C9): planted keys are looked for wherever bytes go. The proxy socket is watched by
//! a relay between gateway and daemon that keeps every byte of both directions.

use crate::site::{accounts, chat, gateway, upstream};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use support::daemon::{Setup, free_port};

/// Keys as providers make them; the second one is refused, so that it passes every path of a refusal too.
const PLANTED: [&str; 2] = ["sk-planted-7f3a91c2e5d84b60", "sk-planted-0be4d8827c1f4e9a"];

fn relay(from: &Path, to: &Path) -> Arc<Mutex<Vec<u8>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let listener = UnixListener::bind(from).unwrap();
    let (to, all) = (to.to_owned(), Arc::clone(&seen));
    std::thread::spawn(move || {
        while let Ok((near, _)) = listener.accept() {
            let Ok(far) = UnixStream::connect(&to) else { return };
            for (mut reader, mut writer) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                let all = Arc::clone(&all);
                std::thread::spawn(move || {
                    let mut chunk = [0; 4096];
                    while let Ok(count @ 1..) = reader.read(&mut chunk) {
                        all.lock().unwrap().extend_from_slice(&chunk[..count]);
                        if writer.write_all(&chunk[..count]).is_err() {
                            break;
                        }
                    }
                    // The other side may have gone first.
                    drop(writer.shutdown(Shutdown::Both));
                });
            }
        }
    });
    seen
}

#[test]
fn planted_keys_appear_in_no_traffic_log_metric_or_state() {
    let metrics = free_port();
    let lines = "fair_share = 50\nfair_share_mode = \"enforce\"\n[pools.chat.park]\nmax_wait = \"0s\"";
    let daemon = Setup::new(&accounts(1, 2, lines)).env("GOVERNOR_LOG", "trace").metrics(metrics).start();
    let upstream = upstream(1, 2);
    let folder = tempfile::tempdir().unwrap();
    let relayed = folder.path().join("relay.sock");
    let traffic = relay(&relayed, &daemon.socket());
    let gateway = gateway(&upstream, &relayed);

    let mut held = [chat(gateway.address, PLANTED[0]), chat(gateway.address, PLANTED[0])];
    assert!(held.iter_mut().all(|answer| answer.status == 200 && answer.first_bytes() > 0));
    let refused = chat(gateway.address, PLANTED[1]);
    assert_eq!(refused.status, 429);
    let id = refused.header("x-governor-decision").unwrap().to_owned();

    let mut places = vec![
        ("proxy socket", traffic.lock().unwrap().clone()),
        ("daemon's log", daemon.log().into_bytes()),
        ("gateway's log", gateway.log().into_bytes()),
        ("refusal", (refused.head.clone() + &refused.body()).into_bytes()),
        ("metrics", crate::metrics::text(metrics).into_bytes()),
    ];
    assert!(places[0].1.len() > 200, "the relay saw the session");
    for path in ["/v1/status", "/v1/keys", "/v1/leases", "/v1/pools", "/v1/config", &format!("/v1/explain/{id}")] {
        places.push(("control API", daemon.get(path).to_string().into_bytes()));
    }
    drop(held);
    let state = daemon.state_dir();
    for entry in std::fs::read_dir(&state).unwrap() {
        places.push(("state folder", std::fs::read(entry.unwrap().path()).unwrap()));
    }
    for (place, bytes) in &places {
        for key in PLANTED {
            let found = bytes.windows(key.len()).any(|window| window == key.as_bytes());
            assert!(!found, "a raw key is in the {place}");
        }
    }
}
