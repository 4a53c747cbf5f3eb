//! Several gateway processes, one pool: as with the workers of one server, or two versions of it during a deployment.

use crate::site::{accounts, chat, gateway, stats, upstream};
use serde_json::json;
use std::sync::mpsc;
use std::thread;
use support::programs::daemon::Setup;

#[test]
fn four_worker_processes_share_one_pool_and_one_that_dies_leaves_its_slots_to_the_others() {
    let daemon = Setup::new(&accounts(2, 4, "")).start();
    let upstream = upstream(2, 4);
    let mut workers: Vec<_> = (0..4).map(|_| gateway(&upstream, &daemon.socket())).collect();
    // The first holds more than a quarter of the pool, which no fixed division would allow.
    let mut held: Vec<Vec<_>> = workers.iter().map(|worker| vec![chat(worker.address, "sk-one")]).collect();
    held[0].extend((0..4).map(|_| chat(workers[0].address, "sk-one")));
    for stream in held.iter_mut().flatten() {
        assert!(stream.status == 200 && stream.first_bytes() > 0, "{}", stream.head);
    }
    let pool = daemon.get("/v1/pools")[0].clone();
    assert_eq!((&pool["in_flight"], &pool["capacity"]), (&json!(8), &json!(8)));
    assert_eq!(daemon.get("/v1/status")["sessions"].as_array().unwrap().len(), 4);

    let (sender, granted) = mpsc::channel();
    for worker in &workers[1..] {
        let (sender, address) = (sender.clone(), worker.address);
        thread::spawn(move || {
            let mut stream = chat(address, "sk-two");
            assert!(stream.first_bytes() > 0);
            sender.send((stream.status, stream)).unwrap();
        });
    }
    daemon.wait_for("/v1/pools", |pools| pools[0]["parked"] == 3);
    workers[0].kill();
    let streams: Vec<_> = (0..3).map(|_| granted.recv_timeout(crate::world::SOON).unwrap()).collect();
    assert!(streams.iter().all(|(status, _)| *status == 200));
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 6 && pools[0]["parked"] == 0);
    assert_eq!(stats(upstream.address)["refused_full_total"], 0, "no account was asked for more than it has");
    drop((held, streams));
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
}
