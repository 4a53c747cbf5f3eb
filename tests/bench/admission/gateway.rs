//! What asking adds to a request that goes through a gateway: the example gateway with the governor's layer and without,
//! Envoy with ext_authz over a Unix socket and without, 2,000 requests a second each, in turn. CPU is that of the gateway
//! and of whomever it asks, together.

use crate::Scale;
use crate::daemon;
use crate::envoy;
use crate::float;
use crate::http::Load;
use crate::pairs::{Arm, Series, median};
use crate::progress;
use crate::report::{Bound, Row, Subject, Target};
use crate::serve;
use crate::server::{Missing, Server, cpu_ns, listens};
use anyhow::{Context, Result};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;
use support::cores;
use support::programs::bins;
use support::programs::daemon::free_port;

/// One gateway, and who is paid for in its windows.
struct Way {
    load: Load,
    pids: Vec<u32>,
    /// CPU of a request, p50 and p99 of its latency, a window each; microseconds.
    cpu: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
}

impl Way {
    fn new(target: SocketAddr, pids: &[u32]) -> Result<Self> {
        Ok(Self { load: Load::new(target)?, pids: pids.to_vec(), cpu: Vec::new(), p50: Vec::new(), p99: Vec::new() })
    }

    fn window(&mut self, scale: &Scale) -> Result<()> {
        let spent = || self.pids.iter().map(|pid| cpu_ns(*pid)).sum::<Result<u64>>();
        let before = spent()?;
        let mut latencies = self.load.window(scale.gateway, scale.gap)?;
        let cpu = Duration::from_nanos(spent()?.saturating_sub(before));
        self.cpu.push(cpu.as_secs_f64() * 1e6 / float(latencies.len() as u64)?);
        latencies.sort_by(f64::total_cmp);
        let at = |hundredths: usize| latencies.get(latencies.len() * hundredths / 100).copied().context("no latencies");
        self.p50.push(at(50)?);
        self.p99.push(at(99)?);
        Ok(())
    }
}

/// Measures; without `envoy` the governor alone.
pub(crate) fn measure(scale: &Scale, envoy: Option<&Path>) -> Result<(Vec<Row>, Vec<String>)> {
    let upstream = serve::upstream()?;
    let folder = tempfile::tempdir()?;
    let daemon = daemon()?;
    let (asks, alone) = (free_port(), free_port());
    let socket = daemon.socket();
    let gateway = |listen: SocketAddr, arguments: &[&str]| {
        let mut command = Command::new(bins::example("gateway"));
        command.args(["--listen", &listen.to_string(), "--upstream", &upstream.to_string()]).args(arguments);
        command.env("RUST_LOG", "error");
        Server::start("gateway", &mut command, || TcpStream::connect(listen).is_ok())
    };
    let governed = gateway(asks, &["--socket", socket.to_str().context("a plain name")?])?;
    let plain = gateway(alone, &["--no-governor", "--accounts", "20", "--ordinary-slots", "100"])?;
    let mut ways = vec![Way::new(asks, &[governed.pid(), daemon.pid()])?, Way::new(alone, &[plain.pid()])?];

    let mut servers = Vec::new();
    let mut notes = vec!["CPU of a request is that of the gateway and of whomever it asks".to_owned()];
    match envoy {
        Some(program) => {
            let authz = folder.path().join("authz");
            let asked = Server::own("authz", &[authz.to_str().context("a plain name")?], || listens(&authz))?;
            let (asks, alone) = (free_port(), free_port());
            let asking = envoy::start(program, folder.path(), asks, upstream, Some(&authz))?;
            let plain = envoy::start(program, folder.path(), alone, upstream, None)?;
            ways.push(Way::new(asks, &[asking.pid(), asked.pid()])?);
            ways.push(Way::new(alone, &[plain.pid()])?);
            servers.extend([asked, asking, plain]);
            notes.push("Envoy asks over HTTP/1.1 a service that allows everything and does nothing else".to_owned());
        }
        None => notes.push(Missing("envoy").to_string()),
    }
    thread::scope(|scope| {
        let work = scope.spawn(|| alternate(scale, &mut ways));
        work.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the load panicked")))
    })?;
    Ok((rows(&ways), notes))
}

fn alternate(scale: &Scale, ways: &mut [Way]) -> Result<()> {
    cores::beside_clients()?;
    // Warms all, and is thrown away.
    for way in &mut *ways {
        way.window(scale)?;
        (way.cpu, way.p50, way.p99) = (Vec::new(), Vec::new(), Vec::new());
    }
    for round in 0..scale.rounds {
        progress(format_args!("through gateways, round {} of {}", round + 1, scale.rounds));
        // There and back again, so that what drifts meets all.
        if round % 2 == 0 {
            ways.iter_mut().try_for_each(|way| way.window(scale))?;
        } else {
            ways.iter_mut().rev().try_for_each(|way| way.window(scale))?;
        }
    }
    Ok(())
}

fn rows(ways: &[Way]) -> Vec<Row> {
    let row = |what: &str, baseline: &[f64], value: &[f64]| Row {
        what: what.to_owned(),
        unit: "µs".to_owned(),
        baseline: Some(median(baseline.to_vec())),
        value: median(value.to_vec()),
        ratio: None,
        target: None,
    };
    let mut rows = Vec::new();
    for (who, pair) in ["the gateway", "Envoy"].into_iter().zip(ways.chunks_exact(2)) {
        let [asking, alone] = pair else { continue };
        rows.push(row(&format!("CPU of a request through {who}, asking by not"), &alone.cpu, &asking.cpu));
        rows.push(row(&format!("its p50 through {who}"), &alone.p50, &asking.p50));
        rows.push(row(&format!("its p99 through {who}"), &alone.p99, &asking.p99));
    }
    if let [asking, alone, other_asking, other_alone] = ways {
        let mut series = Series::default();
        for round in 0..asking.cpu.len() {
            let governor = (Arm::Attached, asking.cpu[round] - alone.cpu[round]);
            let envoy = (Arm::Detached, other_asking.cpu[round] - other_alone.cpu[round]);
            let both = if round % 2 == 0 { [governor, envoy] } else { [envoy, governor] };
            both.into_iter().for_each(|(arm, added)| series.push(arm, added));
        }
        rows.push(Row {
            what: "CPU that asking adds to a request, by Envoy's ext_authz".to_owned(),
            unit: "µs".to_owned(),
            baseline: Some(series.of(Arm::Detached)),
            value: series.of(Arm::Attached),
            ratio: Some(series.ratio(Arm::Attached)),
            target: Some(Target { of: Subject::Ratio, bound: Bound::AtMost, limit: 0.5, aim: None }),
        });
    }
    rows
}
