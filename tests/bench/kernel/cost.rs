//! What the governor costs the traffic: the same work with the kernel plane running, with programs that do nothing in its
//! programs' places, and with neither, alternately.

use crate::Scale;
use crate::clock;
use crate::empty;
use crate::load::Load;
use crate::pairs::{Arm, Series, order};
use crate::place;
use crate::progress;
use crate::report::{Bound, Row, Subject, Target};
use anyhow::{Context, Result, anyhow};
use aya::Ebpf;
use governor_kernel as kernel;
use governor_kernel::Options;
use governor_kernel::Plane;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};
use support::cores;
use support::machine::netns::Netns;

/// After the plane came or went, before anything is measured.
const SETTLE: Duration = Duration::from_millis(50);

/// What one window measured.
struct Window {
    connections_a_second: f64,
    connection_ns: f64,
    message_ns: f64,
    system_call_ns: f64,
    /// CPU time of the plane's threads, by time on the wall.
    plane: f64,
}

/// Measures.
pub(crate) fn measure(scale: &Scale, namespace: &Netns) -> Result<Vec<Row>> {
    thread::scope(|scope| {
        let (go, orders) = sync_channel::<()>(0);
        let (report, windows) = sync_channel(0);
        // The plane starts its threads from this thread, the load stays on its core: so the plane is not pinned.
        let load = scope.spawn(move || place::inside(namespace, move || work(scale, &orders, &report)));
        let rows = alternate(scale, &go, &windows);
        drop(go);
        // When the load failed, that is why there are no rows.
        load.join().unwrap_or_else(|_| Err(anyhow!("the load panicked"))).and(rows)
    })
}

/// The load's side: one window at each order.
fn work(scale: &Scale, orders: &Receiver<()>, report: &SyncSender<Result<Window>>) -> Result<()> {
    cores::beside_clients()?;
    let mut load = Load::new()?;
    while orders.recv().is_ok() {
        report.send(window(&mut load, scale.window))?;
    }
    Ok(())
}

fn window(load: &mut Load, length: Duration) -> Result<Window> {
    let (begun, all, own) = (Instant::now(), clock::process_cpu(), clock::thread_cpu());
    let connections = load.connections(length)?;
    let messages = load.messages(length / 4)?;
    let system_calls = Load::system_calls(length / 8)?;
    let others = (clock::process_cpu() - all).saturating_sub(clock::thread_cpu() - own);
    Ok(Window {
        connections_a_second: connections.rate(),
        connection_ns: connections.cost_ns(),
        message_ns: messages.cost_ns(),
        system_call_ns: system_calls.cost_ns(),
        plane: others.as_secs_f64() / begun.elapsed().as_secs_f64(),
    })
}

fn alternate(scale: &Scale, go: &SyncSender<()>, windows: &Receiver<Result<Window>>) -> Result<Vec<Row>> {
    let measure = || {
        go.send(()).context("the load ended")?;
        windows.recv().context("the load ended")?
    };
    let (mut plane, mut nothing): (Option<Plane>, Vec<Ebpf>) = (None, Vec::new());
    let [mut rate, mut connection, mut message, mut call] = [(); 4].map(|()| Series::default());
    let mut own = Vec::new();
    // Warms caches and tables, and is thrown away.
    measure()?;
    let arms = [Arm::Attached, Arm::Empty, Arm::Single, Arm::Detached];
    for (done, arm) in order(scale.pairs, arms).enumerate() {
        progress(format_args!("attached and detached, window {} of {}", done + 1, arms.len() * scale.pairs));
        if arm != Arm::Attached {
            plane = None;
        }
        nothing.clear();
        if arm == Arm::Attached && plane.is_none() {
            plane = Some(kernel::spawn(Options::default())?);
        }
        nothing = match arm {
            Arm::Empty => empty::attach_to_each(empty::TWINS)?,
            Arm::Single => empty::attach_to_each(1)?,
            Arm::Attached | Arm::Detached => Vec::new(),
        };
        thread::sleep(SETTLE);
        let window = measure()?;
        rate.push(arm, window.connections_a_second);
        connection.push(arm, window.connection_ns);
        message.push(arm, window.message_ns);
        call.push(arm, window.system_call_ns);
        if arm == Arm::Attached {
            own.push(window.plane * 1000.0);
        }
    }
    let row = |what: &str, unit: &str, series: &Series, [arm, by]: [Arm; 2], target| Row {
        what: what.to_owned(),
        unit: unit.to_owned(),
        baseline: Some(series.of(by)),
        value: series.of(arm),
        ratio: Some(series.ratio_by(arm, by)),
        target,
    };
    const ALL: [Arm; 2] = [Arm::Attached, Arm::Detached];
    /// The least that any observer on these hooks costs.
    const FLOOR: [Arm; 2] = [Arm::Empty, Arm::Detached];
    /// What it would cost to miss what a twin sees.
    const LEAST: [Arm; 2] = [Arm::Single, Arm::Detached];
    /// The rest, which is the programs' own.
    const OWN: [Arm; 2] = [Arm::Attached, Arm::Empty];
    const EMPTY: &str = "  of that, empty programs on the same hooks";
    const ONE: &str = "  one empty program a hook, which would miss events";
    const PROGRAMS: &str = "  and the programs' own part, by empty ones";
    let ratio = |bound, limit, aim| Some(Target { of: Subject::Ratio, bound, limit, aim });
    let cheap = || ratio(Bound::AtMost, 1.0 / 0.97, Some(1.0 / 0.99));
    Ok(vec![
        row("connections a second", "1/s", &rate, ALL, ratio(Bound::AtLeast, 0.97, Some(0.99))),
        row(EMPTY, "1/s", &rate, FLOOR, None),
        row(ONE, "1/s", &rate, LEAST, None),
        row(PROGRAMS, "1/s", &rate, OWN, None),
        row("CPU of a connection, both ends", "ns", &connection, ALL, cheap()),
        row(EMPTY, "ns", &connection, FLOOR, None),
        row(ONE, "ns", &connection, LEAST, None),
        row(PROGRAMS, "ns", &connection, OWN, None),
        row("CPU of a message of 32 bytes, both ends", "ns", &message, ALL, None),
        row(EMPTY, "ns", &message, FLOOR, None),
        row("CPU of a plain system call", "ns", &call, ALL, ratio(Bound::AtMost, 1.02, Some(1.005))),
        Row {
            what: "governor's own threads meanwhile".to_owned(),
            unit: "‰ of a core".to_owned(),
            baseline: None,
            value: crate::pairs::median(own),
            ratio: None,
            target: Some(Target { of: Subject::Value, bound: Bound::AtMost, limit: 200.0, aim: None }),
        },
    ])
}
