//! Decisions of a real daemon, replayed from what it wrote.

use crate::world::{client, daemon, lease, refusal};
use std::fs;
use std::time::Duration;
use support::replay::{Verdict, read, replay};

#[tokio::test(flavor = "multi_thread")]
async fn refusals_of_a_daemon_are_decided_the_same_by_a_replay_of_its_archive_and_of_explain() {
    let mut daemon = daemon(1, 10, "fair_share = 80\nfair_share_mode = \"enforce\"");
    let governor = client(&daemon.socket()).await;
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(lease(&governor, "heavy").await);
    }
    held.push(lease(&governor, "light").await);
    let over_share = refusal(&governor, "heavy", Duration::ZERO).await;
    held.push(lease(&governor, "light").await);
    let full = refusal(&governor, "other", Duration::ZERO).await;
    assert_eq!((over_share.reason(), full.reason()), ("fair_share", "pool_exhausted"));

    let id = over_share.decision().expect("a refusal has an id");
    let explained = read(daemon.get(&format!("/v1/explain/{id:x}")).to_string().as_bytes()).unwrap();
    drop((held, governor));
    // All is on disk at the latest when it stops.
    daemon.restart().unwrap();
    let segments = fs::read_dir(daemon.state_dir().join("decisions")).unwrap();
    let archived: Vec<_> =
        segments.map(|entry| fs::read(entry.unwrap().path()).unwrap()).filter(|bytes| !bytes.is_empty()).collect();
    let archived: Vec<_> = archived.iter().flat_map(|bytes| read(bytes).unwrap()).collect();
    assert_eq!((explained.len(), archived.len()), (1, 2));
    for record in explained.iter().chain(&archived) {
        assert_eq!(replay(record), Verdict::Same, "{record:?}");
    }
}
