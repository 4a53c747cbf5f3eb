//! Runs machines, some at a time, and judges each by what its console says.

use super::console;
use super::emulator::{Emulator, End, Machine};
use super::initramfs;
use super::kernel::Kernel;
use super::progress;
use super::ready::Ready;
use super::series::Series;
use super::verdict::{self, Fate, Row, Tested};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How much of the console is shown when something failed; all of it is in the build folder.
const SHOWN_LINES: usize = 60;

/// What is the same for all machines.
#[derive(Debug)]
pub(super) struct Room<'a> {
    /// Where consoles are kept.
    pub(super) place: &'a Path,
    /// See [`initramfs::common`].
    pub(super) common: Vec<u8>,
    /// Longest silence of one machine.
    pub(super) patience: Duration,
    /// Processors of each machine.
    pub(super) processors: NonZeroUsize,
    /// Arguments of the test runner, by series.
    pub(super) arguments: BTreeMap<&'static str, &'a [String]>,
}

/// Boots every kernel there is, `at_once` at a time, and returns the series in their order.
pub(super) fn boot_all(ready: &Ready<'_>, room: &Room<'_>, at_once: NonZeroUsize) -> Result<Vec<Row>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some((series, kernel)) = ready.kernels.get(next.fetch_add(1, Ordering::Relaxed)) {
            let fate = match kernel {
                Ok(kernel) => Fate::Tested(Box::new(boot(series, kernel, &ready.emulator, room)?)),
                Err(reason) => Fate::NotTested { reason: reason.clone() },
            };
            done.push(Row { series: series.name, fate });
        }
        Ok(done)
    };
    let done: Vec<Result<Vec<Row>>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once.get()).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().expect("running a machine does not panic")).collect()
    });
    let mut rows: Vec<Row> = done.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
    rows.sort_by_key(|row| ready.kernels.iter().position(|(series, _)| series.name == row.series));
    Ok(rows)
}

/// Runs one machine and judges it.
fn boot(series: &Series, kernel: &Kernel, emulator: &Emulator, room: &Room<'_>) -> Result<Tested> {
    let folder = room.place.join(series.name);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let initramfs = folder.join("initramfs");
    let mut content = room.common.clone();
    let arguments = room.arguments.get(series.name).copied().unwrap_or_default();
    content.extend(initramfs::of_kernel(kernel, series, arguments)?);
    fs::write(&initramfs, content).with_context(|| format!("cannot write {}", initramfs.display()))?;

    progress(format_args!("boot {} ({}) …", series.name, kernel.version));
    let console = folder.join("console.log");
    let started = Instant::now();
    let machine = Machine {
        kernel: &kernel.image,
        initramfs: &initramfs,
        disk: None,
        processors: room.processors,
        patience: room.patience,
    };
    let end = emulator.run(machine, &console)?;
    let seconds = started.elapsed().as_secs_f64();
    let text = fs::read(&console).with_context(|| format!("cannot read {}", console.display()))?;
    let text = String::from_utf8_lossy(&text);
    let said = console::read(&text);
    let complaints = verdict::complaints(series, &said, end);
    let tested = Tested { version: kernel.version.clone(), seconds, complaints, said };
    progress(format_args!(
        "boot {} ({}): {} passed, {} failed in {seconds:.1} s",
        series.name,
        kernel.version,
        tested.said.tested(),
        tested.failures()
    ));
    if tested.failures() > 0 {
        show(&text, &console, end);
    }
    Ok(tested)
}

/// The end of a console, marked so that its lines are distinguished from this command's own.
pub(super) fn show(text: &str, console: &Path, end: End) {
    let lines: Vec<&str> = text.lines().collect();
    for line in lines.get(lines.len().saturating_sub(SHOWN_LINES)..).unwrap_or_default() {
        progress(format_args!("  | {}", line.trim_end()));
    }
    let how = if end == End::TimedOut { " (killed after a long silence)" } else { "" };
    progress(format_args!("the whole console is in {}{how}", console.display()));
}
