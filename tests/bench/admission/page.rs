//! A look at the signal page against a plain load of the same line, while a writer on the other core writes it 100,000
//! times a second; and whether any look ever sees half a write.

use crate::Scale;
use crate::float;
use crate::pairs::{Arm, Series, order};
use crate::progress;
use crate::report::{Bound, Row, Subject, Target};
use anyhow::{Context, Result};
use governor_common::signal::{PageReader, PageWriter, Signals};
use governor_common::wire::reply::{Level, Overload};
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use support::cores;

/// Time between two writes.
const WRITE_EVERY: Duration = Duration::from_micros(10);

/// A writer later than this goes on from where it is.
const LATE: Duration = Duration::from_millis(1);

/// Looks between two looks at the clock.
const BURST: u32 = 10_000;

/// Measures.
pub(crate) fn measure(scale: &Scale) -> Result<Vec<Row>> {
    let mut writer = PageWriter::create(1)?;
    let reader = PageReader::map(writer.descriptor())?;
    let over = AtomicBool::new(false);
    let measured = thread::scope(|scope| {
        let writes = scope.spawn(|| write(&mut writer, &over));
        let reads = scope.spawn(|| read(scale, &reader));
        let measured = reads.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the reader panicked")));
        over.store(true, Ordering::Relaxed);
        let rate = writes.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the writer panicked")))?;
        measured.map(|(series, torn, busy)| (series, torn, busy, rate))
    });
    let (series, torn, busy, rate) = measured?;
    let plain = |what: String, unit: &str, value, target| Row {
        what,
        unit: unit.to_owned(),
        baseline: None,
        value,
        ratio: None,
        target,
    };
    let at_most = |of, limit| Some(Target { of, bound: Bound::AtMost, limit, aim: None });
    Ok(vec![
        Row {
            what: "read of level, causes and advice in the page, by a plain load".to_owned(),
            unit: "ns".to_owned(),
            baseline: Some(series.of(Arm::Detached)),
            value: series.of(Arm::Attached),
            ratio: Some(series.ratio(Arm::Attached)),
            target: at_most(Subject::Ratio, 4.0),
        },
        plain("writes of the page meanwhile".to_owned(), "1/s", rate, None),
        plain(format!("torn reads of {}", scale.reads), "", float(torn)?, at_most(Subject::Value, 0.0)),
        plain("reads that gave up".to_owned(), "", float(busy)?, None),
    ])
}

/// What is written n-th: every field says n.
fn said(n: u32) -> Overload {
    let level = [Level::Normal, Level::Elevated, Level::High, Level::Overloaded][(n % 4) as usize];
    let pressure = u16::try_from(n % 1000).unwrap_or(0);
    Overload { level, pressure, causes: n, retry_after_ms: n }
}

/// Writes until it is over; writes a second.
fn write(writer: &mut PageWriter, over: &AtomicBool) -> Result<f64> {
    cores::on_the_servers_core()?;
    let (begun, mut due, mut count) = (Instant::now(), Instant::now(), 0_u32);
    while !over.load(Ordering::Relaxed) {
        count = count.wrapping_add(1);
        writer.write(&Signals { overload: said(count), ..Signals::default() });
        due += WRITE_EVERY;
        // What a pause of the machine took is not caught up, what a moment took is.
        if due + LATE < Instant::now() {
            due = Instant::now();
        }
        while Instant::now() < due {
            spin_loop();
        }
    }
    Ok(f64::from(count) / begun.elapsed().as_secs_f64())
}

/// The series, torn reads, reads that gave up.
fn read(scale: &Scale, reader: &PageReader) -> Result<(Series, u64, u64)> {
    cores::beside_clients()?;
    let mut series = Series::default();
    for (done, arm) in order(scale.pairs, [Arm::Attached, Arm::Detached]).enumerate() {
        progress(format_args!("the page, window {} of {}", done + 1, 2 * scale.pairs));
        let one = if arm == Arm::Attached {
            window(scale.window, || black_box(reader).overload())?
        } else {
            window(scale.window, || black_box(reader).heartbeat())?
        };
        series.push(arm, one);
    }
    progress(format_args!("the page, {} reads looked at", scale.reads));
    let (mut torn, mut busy) = (0, 0);
    for _ in 0..scale.reads {
        match reader.overload() {
            Ok(overload) if overload == said(overload.causes) || overload == Overload::default() => {}
            Ok(_) => torn += 1,
            Err(_) => busy += 1,
        }
    }
    Ok((series, torn, busy))
}

/// Nanoseconds of one look, over a window.
fn window<T>(length: Duration, look: impl Fn() -> T) -> Result<f64> {
    let (begun, mut bursts) = (Instant::now(), 0);
    while begun.elapsed() < length {
        (0..BURST).for_each(|_| {
            black_box(look());
        });
        bursts += 1;
    }
    let looks = float(bursts).context("a short window")? * f64::from(BURST);
    Ok(begun.elapsed().as_secs_f64() * 1e9 / looks)
}
