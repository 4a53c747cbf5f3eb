//! What a raise does for the clients of a burst: `cargo xtask bench tuner` builds and runs this. The time from `connect()`
//! to an established connection, before and after a real governord has raised the backlog of a server with 5, on a server
//! of ours and on nginx. Prints one JSON report on standard output, progress on standard error. Needs root.

mod clients;
#[path = "../../../xtask/src/bench/report.rs"]
mod report;

use anyhow::{Context, Result, ensure};
use clients::{Latencies, burst};
use report::{Report, Row};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;
use support::machine::netns::Netns;
use support::programs::daemon::{Daemon, Setup};
use support::programs::peer::Peer;
use support::programs::proxy::{Proxy, signal};
use support::progress;

/// An address on loopback that nobody else uses: the daemon sees every listener of the machine.
const ADDRESS: &str = "127.77.0.2";
const PORT: u16 = 8080;

/// What both servers ask for.
const BACKLOG: u32 = 5;

/// Accepts a second of our server: its clients queue for a tenth of a second.
const RATE: u32 = 2000;

/// For so long nginx is busy with something else when a burst comes.
const BUSY: Duration = Duration::from_millis(20);

/// Between two bursts, several times what the slower server needs for one.
const PAUSE: Duration = Duration::from_millis(500);

/// How much is done.
#[derive(Debug)]
struct Scale {
    /// Clients of a burst.
    clients: u32,
    /// Bursts before and after.
    bursts: usize,
}

const FULL: Scale = Scale { clients: 200, bursts: 10 };
const QUICK: Scale = Scale { clients: 60, bursts: 1 };

fn main() -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "private network namespaces and eBPF need root");
    let quick = std::env::args().any(|argument| argument == "--quick");
    let scale = if quick { QUICK } else { FULL };
    let mut report = Report { name: "tuner".to_owned(), quick, ..Report::default() };

    let namespace = Netns::create().context("cannot make a network namespace")?;
    let mut server = Peer::start(&namespace);
    let port = server.listen(ADDRESS, BACKLOG);
    server.serve(port, RATE);
    let target = SocketAddr::new(ADDRESS.parse()?, port);
    report.rows.extend(measure("our server", &namespace, target, &scale, || {})?);

    let namespace = Netns::create().context("cannot make a network namespace")?;
    let target = SocketAddr::new(ADDRESS.parse()?, PORT);
    match Proxy::nginx(&namespace, target, BACKLOG) {
        Some(nginx) => {
            let pause = || {
                let workers = nginx.titled("nginx: worker");
                workers.iter().for_each(|pid| signal(*pid, Signal::STOP));
                thread::spawn(move || {
                    thread::sleep(BUSY);
                    workers.iter().for_each(|pid| signal(*pid, Signal::CONT));
                });
            };
            report.rows.extend(measure("nginx", &namespace, target, &scale, pause)?);
        }
        None => report.notes.push("nginx is not installed: not measured".to_owned()),
    }
    report.notes.push(format!(
        "{} clients at once, {} bursts each way; the baseline is a backlog of {BACKLOG}, the value what the tuner made of it; \
         who was not connected after {} s counts as that",
        scale.clients,
        scale.bursts,
        clients::PATIENCE.as_secs()
    ));
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&report)?)?;
    Ok(())
}

/// Bursts before, a raise, bursts after. `busy` happens at the start of each burst.
fn measure(
    name: &str,
    namespace: &Netns,
    target: SocketAddr,
    scale: &Scale,
    mut busy: impl FnMut(),
) -> Result<Vec<Row>> {
    let config = format!(
        "[tuner]\nmode = \"off\"\n[[tuner.listener]]\nlisten = \"{target}\"\nmode = \"observe\"\nmax_wait = \"2s\"\n"
    );
    let daemon = Setup::new(&config).tier("auto").start();
    daemon.wait_for("/v1/tuner", |tuner| backlog(tuner, namespace).is_some());
    let mut bursts = |what: &str, count: usize| -> Result<Latencies> {
        let mut all = Latencies::default();
        for round in 0..count {
            progress(format_args!("{name}, {what}: burst {} of {count}", round + 1));
            busy();
            all.extend(burst(namespace, target, scale.clients)?);
            // Connected at once, they still queue: the next burst is to find the queue empty.
            thread::sleep(PAUSE);
        }
        Ok(all)
    };
    let before = bursts("before", scale.bursts)?;
    let (status, answer) = daemon.request(
        "PUT",
        &format!("/v1/settings/tuner.listener.{target}.mode"),
        Some(&json!({ "value": "enforce" })),
    );
    ensure!(status == 200, "{answer}");
    raise(&daemon, namespace, scale.clients.into(), || bursts("raising", 1).map(drop))?;
    let after = bursts("after", scale.bursts)?;
    let row = |what: &str, of: &dyn Fn(&Latencies) -> f64| Row {
        what: format!("connect of a burst, {name}, {what}"),
        unit: "ms".to_owned(),
        baseline: Some(of(&before)),
        value: of(&after),
        ratio: None,
        target: None,
    };
    Ok(vec![row("p50", &|all| all.quantile(0.5)), row("p99", &|all| all.quantile(0.99))])
}

/// Sends bursts until the queue has room for one.
fn raise(daemon: &Daemon, namespace: &Netns, clients: u64, mut burst: impl FnMut() -> Result<()>) -> Result<()> {
    for _ in 0..20 {
        burst()?;
        // The daemon looks ten times a second, and an order is a second from the next.
        thread::sleep(Duration::from_millis(1200));
        if backlog(&daemon.get("/v1/tuner"), namespace).is_some_and(|backlog| backlog + 1 >= clients) {
            return Ok(());
        }
    }
    anyhow::bail!("the backlog was not raised far enough: {}", daemon.log())
}

/// The backlog of the one listener of the namespace.
fn backlog(tuner: &Value, namespace: &Netns) -> Option<u64> {
    let listeners = tuner["listeners"].as_array()?;
    listeners.iter().find(|one| one["netns"] == namespace.inode())?["backlog"].as_u64()
}
