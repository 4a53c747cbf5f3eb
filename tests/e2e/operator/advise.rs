//! `governorctl advise` on the demand a real daemon recorded.

use crate::world::{client, daemon, lease, pool, refusal};
use governor_user::records::demand::{self, Fact};
use serde_json::Value;
use std::collections::VecDeque;
use std::time::Duration;
use support::programs::daemon::{Daemon, Setup};

fn advice(daemon: &Daemon) -> Value {
    let output = daemon.ctl(&["advise", "--last", "1h", "--format", "json"]);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Waits until so many requests are on disk.
fn recorded(daemon: &Daemon, requests: u64) -> Value {
    daemon.wait_for("/v1/advise?last_seconds=3600", |advice| advice["pools"][0]["requests"] == requests)
}

#[tokio::test(flavor = "multi_thread")]
async fn advice_names_whom_each_threshold_would_have_held_back() {
    let mut daemon = daemon(1, 10, "fair_share = 80");
    let governor = client(&daemon.socket()).await;
    let mut held = vec![lease(&governor, "light").await];
    for _ in 0..9 {
        held.push(lease(&governor, "heavy").await);
    }
    refusal(&governor, "light", Duration::ZERO).await;
    recorded(&daemon, 11);
    let pool = advice(&daemon)["pools"][0].clone();
    assert_eq!((&pool["pool"], &pool["keys"]), (&"chat".into(), &2.into()));
    let settings = pool["settings"].as_array().unwrap();
    let of = |rule: Value| settings.iter().find(|row| row["fair_share"] == rule).expect("the setting is tried").clone();
    // Without a rule only the light key's second request found no slot. From 80 % on, two of the heavy key's would
    // have been over its share of 5 and waited, and left room for it.
    assert_eq!(
        (of("off".into())["refused_requests"].as_u64(), of("off".into())["refused_keys"].as_u64()),
        (Some(1), Some(1))
    );
    let at_80 = of(80.into());
    assert_eq!((at_80["current"].as_bool(), at_80["refused_requests"].as_u64()), (Some(true), Some(0)), "{at_80}");
    assert_eq!(settings.len(), 10, "off, 60 to 95 and max-min");

    // Another life of the daemon knows it too.
    drop((held, governor));
    daemon.restart().unwrap();
    assert_eq!(advice(&daemon)["pools"][0]["requests"], 11);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_recorded_when_it_is_switched_off_and_no_label_ever() {
    let on = daemon(1, 1, "");
    let governor = client(&on.socket()).await;
    drop(lease(&governor, "planted-label").await);
    recorded(&on, 1);
    let folder = on.state_dir().join("demand");
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!String::from_utf8_lossy(&text).contains("planted"), "labels stay out");
    }
    let off = Setup::new(&pool(1, 1, "")).env("GOVERNOR_DAEMON_RECORD", "off").start();
    let governor = client(&off.socket()).await;
    drop(lease(&governor, "a").await);
    assert!(!off.state_dir().join("demand").exists());
    let output = off.ctl(&["advise"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("no demand was recorded"), "{output:?}");
}

fn segments(daemon: &Daemon) -> Vec<Vec<Fact>> {
    demand::recorded(&daemon.state_dir()).unwrap()
}

fn asked(segments: &[Vec<Fact>]) -> usize {
    segments.iter().flatten().filter(|fact| matches!(fact, Fact::Asked { .. })).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_segment_says_what_ran_when_it_began() {
    let setup = Setup::new(&pool(1, 50, "")).env("GOVERNOR_DAEMON_RECORD_MIB", "1");
    let mut daemon = setup.start();
    let governor = client(&daemon.socket()).await;
    // Each runs while 20 others come, so that some run from one segment into the next.
    let mut held = VecDeque::new();
    let mut requests = 0;
    while segments(&daemon).len() < 3 {
        assert!(requests < 30_000, "a segment is an eighth of a MiB");
        requests += 600;
        for _ in 0..600 {
            held.push_back(lease(&governor, "a").await);
            if held.len() > 20 {
                held.pop_front();
            }
        }
        daemon.wait_for("/v1/status", |_| asked(&segments(&daemon)) == requests);
    }
    daemon.halt();
    let ran: Vec<_> = segments(&daemon)
        .iter()
        .map(|segment| {
            assert!(matches!(segment[0], Fact::Opened { .. }), "the first of a segment is {:?}", segment[0]);
            segment.iter().filter(|fact| matches!(fact, Fact::Running { .. })).count()
        })
        .collect();
    // Releases wait for company: a few more may be counted still.
    assert!(ran[1..].iter().all(|ran| (19..=30).contains(ran)), "{ran:?}");
}
