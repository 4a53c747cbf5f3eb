//! Overload signals from the kernel's own figures to a connected proxy.

use crate::signals::metrics::scrape;
use crate::world::{SOON, ask, client, lease, pool, soon};
use governor_client::{AcquireRequest, Governor, Kind, Level, MemberNews, Priority, cause};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use support::machine::cgroup::Cgroup;
use support::machine::netns::Netns;
use support::programs::daemon::{Daemon, Setup, free_port};
use support::programs::peer::Peer;

/// A listener nobody accepts from, with this backlog.
fn stalled(backlog: i32) -> (std::os::fd::OwnedFd, std::net::SocketAddr) {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with};
    // Not inherited by the daemon, which would keep it open.
    let fd = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    bind(&fd, &std::net::SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    listen(&fd, backlog).unwrap();
    let address = std::net::SocketAddr::try_from(getsockname(&fd).unwrap()).unwrap();
    (fd, address)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_accept_queue_raises_the_level_at_once_and_an_empty_one_lowers_it() {
    let (listener, address) = stalled(2);
    // Nobody accepts, which presses too after a second.
    let daemon = Setup::new(&pool(1, 1, ""))
        .env("GOVERNOR_OVERLOAD_PORTS", &address.port().to_string())
        .env("GOVERNOR_OVERLOAD_IGNORE", "acceptor_stalled,accept_sojourn,cpu_pressure,memory_pressure")
        .start();
    let governor = client(&daemon.socket()).await;
    let mut overload = governor.overload();
    assert_eq!(overload.borrow_and_update().level, Level::Normal);
    // It holds backlog + 1.
    let queued: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
    let told = *soon(overload.wait_for(|signal| signal.level == Level::Overloaded)).await.unwrap();
    assert_eq!((told.pressure, told.causes), (1000, cause::ACCEPT_FILL));
    assert!(told.retry_after_ms > 0);
    let status = daemon.get("/v1/status");
    assert_eq!((&status["level"], &status["causes"]), (&"overloaded".into(), &serde_json::json!(["accept_fill"])));
    drop((queued, listener));
    soon(overload.wait_for(|signal| signal.level == Level::Normal)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cgroup_at_its_ceiling_of_connections_raises_the_level() {
    if !rustix::process::geteuid().is_root() {
        return support::skip("private network namespaces and cgroups need root");
    }
    let namespace = Netns::create().unwrap();
    let (of_server, of_client) = (Cgroup::create("ceiling").unwrap(), Cgroup::create("clients").unwrap());
    let ceiling = format!("[cgroups.\"{}\"]\nmax_connections = 10\n", of_server.path());
    let daemon = Setup::new(&format!("{ceiling}{}", pool(1, 1, "")))
        .tier("auto")
        .env("GOVERNOR_OVERLOAD_HOLD", "0s")
        .env("GOVERNOR_KERNEL_AUDIT", "200ms")
        .start();
    let governor = client(&daemon.socket()).await;
    let mut overload = governor.overload();

    let mut server = Peer::start_in(&namespace, &of_server);
    let mut clients = Peer::start_in(&namespace, &of_client);
    let port = server.listen("127.0.0.1", 64);
    clients.connect("127.0.0.1", port, 10);
    server.accept(port, 10);
    let told = *soon(overload.wait_for(|signal| signal.level == Level::Overloaded)).await.unwrap();
    assert_eq!((told.pressure, told.causes), (1000, cause::CGROUP_CONNECTIONS));

    clients.close_connections();
    server.close_connections();
    soon(overload.wait_for(|signal| signal.level == Level::Normal)).await.unwrap();
}

#[test]
fn messages_of_the_kernel_programs_reach_the_log_at_debug_level_only() {
    if !rustix::process::geteuid().is_root() {
        return support::skip("kernel programs need root");
    }
    for (level, expected) in [("info", false), ("debug", true)] {
        let daemon = Setup::new("").tier("auto").env("GOVERNOR_LOG", level).start();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        daemon.wait_for("/v1/listeners", |rows| rows.as_array().unwrap().iter().any(|row| row["port"] == port));
        drop(listener);
        daemon.wait_for("/v1/listeners", |rows| rows.as_array().unwrap().iter().all(|row| row["port"] != port));
        if daemon.get("/v1/status")["tier"] != "tracepoint" {
            return support::skip("the tracepoint tier does not work here");
        }
        let log = daemon.log();
        assert_eq!(log.matches(&format!("port {port} listens")).count(), usize::from(expected), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_accept_queue_in_front_of_an_idle_proxy_refuses_nothing_and_is_explained() {
    let (listener, address) = stalled(2);
    let (enforce, scraped) = ("[overload]\nmode = \"enforce\"\n", free_port());
    let daemon = Setup::new(&format!("{enforce}{}", pool(1, 8, "")))
        .env("GOVERNOR_OVERLOAD_PORTS", &address.port().to_string())
        .metrics(scraped)
        .start();
    let governor = client(&daemon.socket()).await;
    let mut overload = governor.overload();
    let queued: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
    soon(overload.wait_for(|signal| signal.level == Level::Overloaded)).await.unwrap();
    let sheddable = ask(&governor, "a").priority(Priority::Sheddable);
    let granted = soon(governor.acquire(sheddable)).await.expect("refusing it would empty no queue");
    assert_eq!(daemon.get("/v1/status")["shed_level"], "normal");

    let place = format!(":{}", address.port());
    verdict_at(&daemon, &place, "acceptor_stalled");
    let explained = String::from_utf8(daemon.ctl(&["explain", "listener", &place]).stdout).unwrap();
    assert!(explained.contains("3 of at most 3 connections wait and nothing was accepted for"), "{explained}");
    let series = scrape(scraped);
    assert_eq!(series.get("governor_monitor_pressure_ratio{cause=\"accept_fill\"}"), Some(&1.0));
    let port = format!("port=\"{}\"", address.port());
    let verdicts: Vec<_> = series.keys().filter(|name| name.starts_with("governor_listener_verdict{")).collect();
    let own: Vec<_> = verdicts.iter().filter(|name| name.contains(&port)).collect();
    assert!(own.len() == 1 && own[0].contains("verdict=\"acceptor_stalled\""), "{own:?}");
    let events = daemon.get("/v1/events?last_seconds=3600");
    let judged = events.as_array().unwrap().iter().any(|event| event["action"] == "verdict");
    assert!(judged, "{events}");
    let rose = events.as_array().unwrap().iter().find(|event| event["action"] == "level").unwrap();
    assert_eq!((&rose["before"], &rose["by"]), (&"normal".into(), &"governord".into()), "{rose}");
    assert!(rose["reason"].as_str().is_some_and(|why| why.contains("accept_fill")), "{rose}");
    drop((queued, listener, granted));
}

/// How long a request holds its slot.
const HELD: Duration = Duration::from_millis(200);

/// What became of requests of one priority.
#[derive(Default)]
struct Fate {
    granted: AtomicU32,
    overload: AtomicU32,
    otherwise: AtomicU32,
}

/// Asks, and holds what it gets for [`HELD`].
async fn meet(governor: Governor, request: AcquireRequest, fates: Arc<[Fate; 3]>, index: usize) {
    let fate = &fates[index];
    match governor.acquire(request).await {
        Ok(lease) => {
            fate.granted.fetch_add(1, Relaxed);
            tokio::time::sleep(HELD).await;
            drop(lease);
        }
        Err(refused) if refused.reason() == "overload" => {
            assert_eq!(refused.status(), 529);
            fate.overload.fetch_add(1, Relaxed);
        }
        Err(_) => {
            fate.otherwise.fetch_add(1, Relaxed);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn under_sustained_overload_work_goes_by_priority_and_probes_pass() {
    // 20 slots, each held for 200 ms: 100 a second are served, and 500 a second come. As many as there are slots may wait, so
    // the node is full then.
    let limits = "[node]\ncap = 40\n[overload]\nmode = \"enforce\"\nhold = \"200ms\"\n";
    let daemon = Setup::new(&format!("{limits}{}", pool(1, 20, ""))).start();
    let governor = client(&daemon.socket()).await;
    let priorities = [Priority::Critical, Priority::Normal, Priority::Sheddable, Priority::Sheddable];
    let fates: Arc<[Fate; 3]> = Arc::default();
    let mut pace = tokio::time::interval(Duration::from_millis(2));
    let begun = Instant::now();
    for number in 0_usize.. {
        pace.tick().await;
        let priority = priorities[number % priorities.len()];
        let index = [Priority::Critical, Priority::Normal, Priority::Sheddable].iter().position(|one| *one == priority);
        let key = format!("key-{}", number % 50);
        let request = ask(&governor, &key).priority(priority).max_wait(Duration::from_secs(2));
        tokio::spawn(meet(governor.clone(), request, Arc::clone(&fates), index.unwrap()));
        if number % 50 == 0 {
            let probe = ask(&governor, "probe").kind(Kind::Exempt);
            soon(governor.acquire(probe)).await.expect("a probe passes whatever the level");
        }
        let shed = fates[2].overload.load(Relaxed);
        let critical = fates[0].granted.load(Relaxed);
        if begun.elapsed() > Duration::from_secs(2) && shed > 100 && critical > 20 {
            break;
        }
        assert!(begun.elapsed() < SOON, "{shed} sheddable refused by the level, {critical} critical granted");
    }
    assert_eq!(fates[0].overload.load(Relaxed), 0, "the level never refuses critical work");
    let status = daemon.get("/v1/status");
    let monitors = status["monitors"].as_array().unwrap();
    assert!(monitors.iter().any(|monitor| monitor["cause"] == "node_in_flight"), "{status}");
    let refused = |reason: &str| {
        let pools = daemon.get("/v1/pools");
        pools[0]["shed_total"][reason].as_u64().unwrap_or(0)
    };
    assert!(refused("overload") >= u64::from(fates[2].overload.load(Relaxed)), "what is refused is counted");
}

/// A listener of this process, which is the proxy then, and its place for `explain`.
fn own_listener() -> (std::net::TcpListener, String) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = format!(":{}", listener.local_addr().unwrap().port());
    (listener, place)
}

/// Waits until the listener at `place`, as [`own_listener`] says it, is judged so.
fn verdict_at(daemon: &Daemon, place: &str, word: &str) -> serde_json::Value {
    // Asked for by its place it is an error for as long as no report has it.
    let is_there = |row: &serde_json::Value| format!(":{}", row["port"]) == place;
    daemon.wait_for("/v1/verdicts", |rows| rows.as_array().is_some_and(|rows| rows.iter().any(is_there)));
    daemon.wait_for(&format!("/v1/verdicts?listener={place}"), |rows| rows[0]["verdict"] == word)
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_for_slots_show_at_the_proxys_listener() {
    let (_listener, place) = own_listener();
    let daemon = Setup::new(&pool(2, 1, "")).env("GOVERNOR_OVERLOAD_HOLD", "100ms").start();
    let governor = client(&daemon.socket()).await;
    let verdict = |word: &str| verdict_at(&daemon, &place, word);
    verdict("ok");
    let held = (lease(&governor, "a").await, lease(&governor, "b").await);
    let waiting = tokio::spawn({
        let request = ask(&governor, "c");
        let governor = governor.clone();
        async move { governor.acquire(request).await }
    });
    let saturated = verdict("inflight_saturated");
    let sentence = saturated[0]["sentence"].as_str().unwrap();
    assert!(
        sentence.contains("the pool chat has been full")
            && sentence.contains("1 request waits")
            && sentence.contains("2 of 2"),
        "{sentence}"
    );

    governor.member_report("chat", "m1", MemberNews::RateLimited { reset_ms: Some(60_000) });
    let slow = verdict("upstream_slow");
    assert!(slow[0]["sentence"].as_str().unwrap().contains("1 of 2 members are cooling"), "{slow}");
    let metrics = daemon.get("/v1/status");
    let troubled = metrics["troubled"].as_array().unwrap();
    assert!(troubled.iter().any(|row| row["verdict"] == "upstream_slow"), "{metrics}");
    drop(held);
    soon(waiting).await.unwrap().unwrap();
    verdict("ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_runs_out_of_descriptors_sheds_by_priority_and_lets_probes_pass() {
    // More than one in a thousand of this process's descriptors is open.
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.expect("it is limited");
    let files: Vec<std::fs::File> = (0..limit / 1000 + 10).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
    let ranges = "[overload]\nmode = \"enforce\"\nhold = \"0s\"\ndescriptors_lo = 0\ndescriptors_hi = 1\n";
    let daemon = Setup::new(&format!("{ranges}{}", pool(1, 8, ""))).start();
    let governor = client(&daemon.socket()).await;
    let mut overload = governor.overload();
    let told = *soon(overload.wait_for(|signal| signal.level == Level::Overloaded)).await.unwrap();
    assert_eq!(told.causes, cause::DESCRIPTORS);
    daemon.wait_for("/v1/status", |status| status["shed_level"] == "overloaded");
    for (priority, passes) in [(Priority::Critical, true), (Priority::Normal, false), (Priority::Sheddable, false)] {
        let answer = soon(governor.acquire(ask(&governor, "a").priority(priority))).await;
        assert_eq!(answer.as_ref().err().map(|refused| refused.reason()), (!passes).then_some("overload"));
    }
    soon(governor.acquire(ask(&governor, "probe").kind(Kind::Exempt))).await.expect("a probe passes");
    drop(files);
}
