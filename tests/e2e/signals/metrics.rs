//! Metrics as a scraper reads them: one number, one meaning, and series that stay within a bound.

use crate::world::{ask, client, lease, pool, refusal, soon};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;
use support::programs::daemon::{Setup, free_port};

/// One scrape: series with their labels, and values.
pub(crate) fn scrape(address: SocketAddr) -> BTreeMap<String, f64> {
    let text = text(address);
    assert!(text.ends_with("# EOF\n"), "{text}");
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let mut series = BTreeMap::new();
    for sample in samples {
        let (name, value) = sample.rsplit_once(' ').unwrap();
        let before = series.insert(name.to_owned(), value.parse().unwrap());
        assert_eq!(before, None, "the series {name} stands twice");
    }
    series
}

/// The body of `/metrics` as OpenMetrics.
pub(crate) fn text(address: SocketAddr) -> String {
    let (head, body) = page(address, "Accept: application/openmetrics-text\r\n");
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    body
}

/// Head and body of `/metrics`, asked with these header lines.
fn page(address: SocketAddr, lines: &str) -> (String, String) {
    page_over(TcpStream::connect(address).unwrap(), lines)
}

/// The same on this connection.
pub(crate) fn page_over(mut stream: impl Read + Write, lines: &str) -> (String, String) {
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\n{lines}Connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    (head.to_owned(), body.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn promtool_finds_nothing_wrong_with_plain_text() {
    let address = free_port();
    let daemon = Setup::new(&pool(2, 1, "")).metrics(address).start();
    let governor = client(&daemon.socket()).await;
    let _held = [lease(&governor, "a").await, lease(&governor, "b").await];
    refusal(&governor, "c", Duration::ZERO).await;
    for lines in ["Accept: text/plain\r\n", ""] {
        let (head, body) = page(address, lines);
        assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
        assert!(body.contains("\n# TYPE governor_shed_total counter\n") && !body.contains("# EOF"), "{body}");
        promtool_check(&body);
    }
}

/// `promtool check metrics`, which ends with 3 for what it would name, type or describe otherwise.
fn promtool_check(text: &str) {
    let mut promtool = match Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    {
        Ok(promtool) => promtool,
        Err(error) => return support::skip(&format!("promtool (package prometheus) cannot be run: {error}")),
    };
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_has_one_reason_and_the_reasons_add_up() {
    let address = free_port();
    let lines = "fair_share = 50\nfair_share_mode = \"enforce\"\npark.max_per_key = 1";
    let daemon = Setup::new(&pool(1, 4, lines)).metrics(address).start();
    let governor = client(&daemon.socket()).await;
    let mut held = vec![lease(&governor, "a").await, lease(&governor, "a").await, lease(&governor, "b").await];
    // Three of four in use by two keys: each may hold two.
    for _ in 0..3 {
        assert_eq!(refusal(&governor, "a", Duration::ZERO).await.reason(), "fair_share");
    }
    held.push(lease(&governor, "b").await);
    for key in ["c", "d"] {
        assert_eq!(refusal(&governor, key, Duration::ZERO).await.reason(), "pool_exhausted");
    }
    let waiting = tokio::spawn({
        let governor = governor.clone();
        async move { lease(&governor, "e").await }
    });
    daemon.wait_for("/v1/pools", |pools| pools[0]["parked"] == 1);
    assert_eq!(refusal(&governor, "e", Duration::from_secs(30)).await.reason(), "key_queue_full");

    let series = scrape(address);
    let light = |reason: &str| {
        series.get(&format!("governor_light_refusals_total{{pool=\"chat\",reason=\"{reason}\"}}")).copied()
    };
    // "a" held its share; the others held nothing.
    let by_reason = [light("fair_share"), light("pool_exhausted"), light("key_queue_full")];
    assert_eq!(by_reason, [None, Some(2.0), Some(1.0)]);
    let shed = |scope: &str, reason: &str| {
        series.get(&format!("governor_shed_total{{pool=\"chat\",reason=\"{reason}\",scope=\"{scope}\"}}")).copied()
    };
    assert_eq!(shed("key", "fair_share"), Some(3.0), "{series:#?}");
    assert_eq!(shed("pool", "pool_exhausted"), Some(2.0));
    assert_eq!(shed("key", "key_queue_full"), Some(1.0));
    let sum: f64 = series.iter().filter(|(name, _)| name.starts_with("governor_shed_total")).map(|(_, n)| n).sum();
    assert_eq!(sum, 6.0);
    assert_eq!((series["governor_in_flight"], series["governor_parked"]), (4.0, 1.0));
    assert_eq!(series["governor_bypass"], 0.0);

    held.clear();
    drop(soon(waiting).await.unwrap());
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
    let series = scrape(address);
    assert_eq!(series["governor_in_flight"], 0.0, "0 when all streams ended");
    assert_eq!(series["governor_leases_ended_total{cause=\"released\"}"], 5.0);
    assert_eq!(series["governor_park_wait_seconds_count"], 5.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn moves_and_hops_are_no_waits_for_a_slot() {
    let address = free_port();
    let daemon = Setup::new(&pool(2, 1, "")).metrics(address).start();
    let governor = client(&daemon.socket()).await;
    let work = lease(&governor, "a").await;
    let hop = soon(governor.acquire(ask(&governor, "a").hop_of(&work))).await.unwrap();
    soon(work.move_away()).await.unwrap();
    let series = scrape(address);
    assert_eq!(
        (series["governor_park_wait_seconds_count"], series["governor_granted_total{pool=\"chat\"}"]),
        (1.0, 1.0)
    );
    drop((work, hop));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_keys_do_not_make_a_thousand_series() {
    let address = free_port();
    let daemon = Setup::new(&format!("[node]\ncap = 2000\n{}", pool(1, 1500, ""))).metrics(address).start();
    let governor = client(&daemon.socket()).await;
    let mut held = Vec::new();
    for key in 0..1000 {
        held.push(soon(governor.acquire(ask(&governor, &format!("sk-secret-{key}")))).await.unwrap());
    }
    let series = scrape(address);
    let keys = series.keys().filter(|name| name.starts_with("governor_key_in_flight{")).count();
    assert_eq!(keys, 11, "ten keys and the rest as one");
    assert_eq!(series["governor_key_in_flight{pool=\"chat\",key=\"other\"}"], 990.0);
    assert!(!text(address).contains("sk-secret"), "no label of a key is a label of a series");
    drop(held);
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
    let left = scrape(address).keys().filter(|name| name.starts_with("governor_key_in_flight{")).count();
    assert_eq!(left, 1, "series of vanished keys disappear");
}

#[test]
fn counters_of_listeners_do_not_jump_when_the_daemon_restarts() {
    let address = free_port();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut daemon = Setup::new("").metrics(address).start();
    let of_listener = |series: &BTreeMap<String, f64>| -> Vec<(String, f64)> {
        let port = format!("port=\"{port}\"");
        let totals = series.iter().filter(|(name, _)| name.contains("_total{") && name.contains(&port));
        totals.map(|(name, value)| (name.clone(), *value)).collect()
    };
    daemon.wait_for("/v1/listeners", |rows| rows.as_array().unwrap().iter().any(|row| row["port"] == port));
    for (name, value) in of_listener(&scrape(address)) {
        assert_eq!(value, 0.0, "{name} counts from first sight");
    }
    daemon.restart().unwrap();
    daemon.wait_for("/v1/listeners", |rows| rows.as_array().unwrap().iter().any(|row| row["port"] == port));
    for (name, value) in of_listener(&scrape(address)) {
        assert_eq!(value, 0.0, "{name} counts from first sight");
    }
}
