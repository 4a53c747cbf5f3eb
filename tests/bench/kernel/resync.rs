//! Counting everything anew: one pass over 18,000 sockets against `ss` listing them, and what a counted connection
//! takes in kernel memory.

use crate::Scale;
use crate::pairs::{Arm, Series, median};
use crate::place;
use crate::progress;
use crate::report::{Bound, Row, Subject, Target};
use anyhow::{Context, Result, ensure};
use governor_common::abi::QUICK_MARKS;
use governor_kernel::programs::tracepoint::{Options, Tracepoint};
use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::machine::netns::Netns;

/// Measures.
pub(crate) fn measure(scale: &Scale, namespace: &Netns) -> Result<Vec<Row>> {
    place::inside(namespace, || {
        progress(format_args!("opening {} sockets", scale.sockets));
        let held = open(scale.sockets / 2)?;
        let [mut first, mut again] = [(); 2].map(|()| Series::default());
        let mut memory = Vec::new();
        for round in 0..scale.rounds {
            progress(format_args!("resync, round {} of {}", round + 1, scale.rounds));
            let mut programs = Tracepoint::attach(&Options::default())?;
            let once = pass(&mut programs, namespace, scale.sockets)?;
            let passes = [once, pass(&mut programs, namespace, scale.sockets)?];
            drop(programs);
            let mut programs = Tracepoint::attach(&Options { quick_marks: Some(1), ..Options::default() })?;
            let before = kernel_bytes()?;
            pass(&mut programs, namespace, scale.sockets)?;
            memory.push((kernel_bytes()? - before) / f64::from(scale.sockets));
            // Its storage would make the list slower to walk.
            drop(programs);
            let listed = list()?.as_secs_f64() * 1e3;
            for (series, pass) in [(&mut first, passes[0]), (&mut again, passes[1])] {
                series.push(Arm::Attached, pass.as_secs_f64() * 1e3);
                series.push(Arm::Detached, listed);
            }
        }
        drop(held);
        let row = |what: String, series: &Series, aim| Row {
            what,
            unit: "ms".to_owned(),
            baseline: Some(series.of(Arm::Detached)),
            value: series.of(Arm::Attached),
            ratio: Some(crate::report::Ratio { control: None, ..series.ratio(Arm::Attached) }),
            target: Some(Target { of: Subject::Ratio, bound: Bound::AtMost, limit: 0.5, aim: Some(aim) }),
        };
        Ok(vec![
            row(format!("first pass over {} sockets, by ss -tnH", scale.sockets), &first, 0.25),
            row(format!("every later pass over {} sockets, by ss -tnH", scale.sockets), &again, 0.25),
            Row {
                what: format!("kernel memory of an end beyond the first {QUICK_MARKS}"),
                unit: "B".to_owned(),
                baseline: None,
                value: median(memory),
                ratio: None,
                target: None,
            },
        ])
    })
}

/// One pass, and how long it took.
fn pass(programs: &mut Tracepoint, namespace: &Netns, sockets: u32) -> Result<Duration> {
    let begun = Instant::now();
    let scan = programs.scan(namespace.inode())?;
    let took = begun.elapsed();
    let seen: u64 = scan.cgroups.values().map(|open| open.inbound + open.outbound).sum();
    ensure!(seen == u64::from(sockets), "{seen} of {sockets} sockets were counted");
    Ok(took)
}

/// Connections, both ends held.
fn open(count: u32) -> Result<Vec<TcpStream>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let mut held = Vec::new();
    for _ in 0..count {
        held.push(TcpStream::connect(address).context("cannot open so many sockets")?);
        held.push(listener.accept()?.0);
    }
    Ok(held)
}

fn list() -> Result<Duration> {
    let begun = Instant::now();
    let status = Command::new("ss").arg("-tnH").stdout(Stdio::null()).status().context("ss is not installed")?;
    ensure!(status.success(), "ss ended with {status}");
    Ok(begun.elapsed())
}

/// Bytes in the kernel's object caches.
fn kernel_bytes() -> Result<f64> {
    let table = fs::read_to_string("/proc/slabinfo").context("cannot read the kernel's object caches")?;
    // name <active_objs> <num_objs> <objsize> …
    let bytes = table.lines().skip(2).filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let objects: f64 = fields.next()?.parse().ok()?;
        let size: f64 = fields.nth(1)?.parse().ok()?;
        Some(objects * size)
    });
    Ok(bytes.sum())
}
