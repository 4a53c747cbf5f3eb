//! Raw API keys never leave the proxy (C9): planted keys are looked for wherever bytes go. The proxy socket is watched by
//! a relay between gateway and daemon that keeps every byte of both directions.

use crate::site::{accounts, chat, gateway, upstream};
use crate::world::{client, soon};
use governor_client::AcquireRequest;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::programs::daemon::{Setup, free_port};

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
        ("metrics", crate::signals::metrics::text(metrics).into_bytes()),
    ];
    assert!(places[0].1.len() > 200, "the relay saw the session");
    for path in ["/v1/status", "/v1/keys", "/v1/leases", "/v1/pools", "/v1/config", &format!("/v1/explain/{id}")] {
        places.push(("control API", daemon.get(path).to_string().into_bytes()));
    }
    drop(held);
    places.extend(files(&daemon.state_dir()));
    assert_none(&places);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planted_org_is_as_unknown_outside_the_proxy_as_a_key() {
    let metrics = free_port();
    let setup = "[node]\ncaps_mode = \"enforce\"\n[classes.tier0]\ncap = 1\n";
    let daemon = Setup::new(&format!("{setup}{}", crate::world::pool(1, 4, ""))).env("GOVERNOR_LOG", "trace");
    let daemon = daemon.metrics(metrics).start();
    let folder = tempfile::tempdir().unwrap();
    let relayed = folder.path().join("relay.sock");
    let traffic = relay(&relayed, &daemon.socket());
    let governor = client(&relayed).await;
    let (key, org) = (governor.key(PLANTED[0].as_bytes()), governor.key(PLANTED[1].as_bytes()));
    let request = || AcquireRequest::new("chat").key(key).org(org).class("tier0").traffic("media");
    let mut asks = governor.tier_asks();
    let lease = soon(governor.acquire(request())).await.unwrap();
    assert_eq!(soon(asks.next()).await, Some(org), "it is asked for by its hash");
    let refused = soon(governor.acquire(request())).await.unwrap_err();
    governor.tier_is(org, None, Duration::from_secs(60));
    let order = serde_json::json!({ "cap": 5, "reason": "tests" });
    assert_eq!(daemon.request("PUT", &format!("/v1/overrides/{key}"), Some(&order)).0, 200);
    let child = soon(governor.acquire(request().child_of(&lease))).await;
    let suspended = lease.suspend();
    daemon.wait_for("/v1/leases", |leases| leases[0]["suspended"] == true);
    let id = refused.decision().unwrap();
    let mut places = vec![
        ("refusal", format!("{refused:?}").into_bytes()),
        ("handle", format!("{governor:?} {suspended:?}").into_bytes()),
        ("daemon's log", daemon.log().into_bytes()),
        ("metrics", crate::signals::metrics::text(metrics).into_bytes()),
    ];
    let explain = format!("/v1/explain/{id:x}");
    for path in ["/v1/orgs", "/v1/keys", "/v1/leases", "/v1/overrides", "/v1/events?last_seconds=60", &explain] {
        let said = daemon.get(path).to_string();
        places.push(("control API", said.into_bytes()));
    }
    drop((suspended, child, governor));
    drop(daemon.wait_for("/v1/leases", |leases| leases == &serde_json::json!([])));
    places.push(("proxy socket", traffic.lock().unwrap().clone()));
    places.extend(files(&daemon.state_dir()));
    assert!(places.iter().any(|(place, bytes)| *place == "state folder" && !bytes.is_empty()));
    assert_none(&places);
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<(&'static str, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(("state folder", std::fs::read(path).unwrap()));
        }
    }
    found
}

fn assert_none(places: &[(&str, Vec<u8>)]) {
    for (place, bytes) in places {
        for key in PLANTED {
            let found = bytes.windows(key.len()).any(|window| window == key.as_bytes());
            assert!(!found, "a raw key is in the {place}");
        }
    }
}
