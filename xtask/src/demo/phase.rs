//! One phase: provider, gateway and load are started, one account is cooled half-way, the figures are collected, all is
//! ended. Both phases differ in one argument of the gateway and in nothing else.

use super::child::{Program, Running};
use super::figures::{ClassFigures, KernelFigures, PhaseFigures};
use super::governor::Governor;
use super::pool;
use super::progress::{LoadProgress, Part, Progress};
use super::provider::Provider;
use super::scratch::Cgroups;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::ChildStderr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// Time before the measurement: the queues fill and the first crowd is over.
const WARM_UP: Duration = Duration::from_secs(2);

/// Longest wait for open requests after the measurement.
const DRAIN: Duration = Duration::from_secs(5);

/// Beyond its own schedule the load may take this long.
const SLACK: Duration = Duration::from_secs(10);

/// Who admits requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// The gateway alone, first come, first served.
    FirstCome,
    /// The governor.
    Governor,
}

/// What both phases share.
#[derive(Debug)]
pub(super) struct Stage<'a> {
    /// Where cargo put the binaries; examples are in a folder below.
    pub(super) binaries: &'a Path,
    /// Logs.
    pub(super) folder: &'a Path,
    /// Absent without the rights for it.
    pub(super) cgroups: Option<&'a Cgroups>,
    /// Time measured.
    pub(super) measured: Duration,
    /// Set by a signal.
    pub(super) interrupted: &'a AtomicBool,
}

/// What a phase found out.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) figures: PhaseFigures,
    pub(super) kernel: KernelFigures,
}

/// The load's report, as far as it is used.
#[derive(Debug, Deserialize)]
struct LoadReport {
    light: ClassFigures,
    heavy: ClassFigures,
}

impl Stage<'_> {
    /// Runs one phase to its end.
    pub(super) fn run(&self, admission: Admission, governor: &mut Governor) -> Result<Outcome> {
        let mut upstream = self
            .example("upstream")
            .args(["--accounts", &pool::ACCOUNTS.to_string(), "--slots", &pool::SLOTS.to_string()])
            .start(self.folder)?;
        let provider = upstream.address()?;
        let mut gateway = self.gateway(admission, governor, &provider.to_string()).start(self.folder)?;
        let address = gateway.address()?;
        let (mut load, progress) = self
            .example("load")
            .args(["--target", &address.to_string(), "--progress", "json"])
            .args(["--seconds", &self.measured.as_secs().to_string()])
            .args(["--warm-up-ms", &WARM_UP.as_millis().to_string()])
            .args(["--drain-seconds", &DRAIN.as_secs().to_string()])
            .cgroup(self.cgroups.map(Cgroups::load))
            .start_watched(self.folder)?;

        let mut conductor = Conductor {
            provider: Provider(provider),
            half: WARM_UP + self.measured / 2,
            part: Part::WarmUp,
            cooled: false,
            utilisation: None,
            progress: Progress::new(admission.title(), WARM_UP + self.measured),
        };
        let deadline = Instant::now() + WARM_UP + self.measured + DRAIN + SLACK;
        let lines = lines_of(progress);
        loop {
            match lines.recv_timeout(Duration::from_millis(100)) {
                Ok(line) => conductor.follow(&line)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.interrupted.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            if Instant::now() > deadline {
                bail!("the load does not end");
            }
            upstream.ensure_alive()?;
            gateway.ensure_alive()?;
            governor.ensure_alive()?;
        }
        let report = report(&mut load)?;
        // Read while the listener is still there.
        let kernel = governor.listener(address.port())?;
        gateway.stop()?;
        upstream.stop()?;
        let figures = PhaseFigures { light: report.light, heavy: report.heavy, utilisation: conductor.utilisation };
        Ok(Outcome { figures, kernel })
    }

    fn gateway(&self, admission: Admission, governor: &Governor, provider: &str) -> Program {
        let gateway = self
            .example("gateway")
            .args(["--upstream", provider, "--backlog", &pool::BACKLOG.to_string(), "--pool", pool::NAME])
            .cgroup(self.cgroups.map(Cgroups::gateway));
        match admission {
            Admission::FirstCome => gateway.args(["--no-governor"]).args([
                "--accounts",
                &pool::ACCOUNTS.to_string(),
                "--ordinary-slots",
                &pool::ORDINARY.to_string(),
            ]),
            Admission::Governor => gateway.args(["--socket".into(), governor.socket().into_os_string()]),
        }
    }

    fn example(&self, name: &'static str) -> Program {
        Program::new(name, self.binaries.join("examples").join(name))
    }
}

impl Admission {
    fn title(self) -> &'static str {
        match self {
            Self::FirstCome => "without",
            Self::Governor => "with",
        }
    }
}

/// Acts at the turns of the load's run: measuring begins, half of it is over, draining begins.
#[derive(Debug)]
struct Conductor {
    provider: Provider,
    half: Duration,
    part: Part,
    cooled: bool,
    utilisation: Option<f64>,
    progress: Progress,
}

impl Conductor {
    fn follow(&mut self, line: &str) -> Result<()> {
        let load: LoadProgress = serde_json::from_str(line).with_context(|| format!("the load says: {line}"))?;
        let before = std::mem::replace(&mut self.part, load.part);
        if before == Part::WarmUp && load.part == Part::Measuring {
            self.provider.reset()?;
        }
        if !self.cooled && load.elapsed_seconds >= self.half.as_secs_f64() {
            self.cooled = true;
            // Longer than the rest of the phase.
            self.provider.cool(pool::COOLED, (self.half + DRAIN).as_secs())?;
            self.progress.say(format_args!("        {} refuses new requests from now on", pool::COOLED));
        }
        let stats = self.provider.stats()?;
        if before != Part::Draining && load.part == Part::Draining {
            self.utilisation = stats.utilisation(pool::ORDINARY);
        }
        self.progress.show(&load, stats.slots(pool::ORDINARY.into()));
        Ok(())
    }
}

/// The lines of a pipe as they come; the channel ends with the pipe.
fn lines_of(pipe: ChildStderr) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// The report of a load that has closed its progress and is about to end.
fn report(load: &mut Running) -> Result<LoadReport> {
    let mut text = String::new();
    load.stdout()?.read_to_string(&mut text)?;
    match load.wait(SLACK)? {
        Some(status) if status.success() => serde_json::from_str(&text).context("the load's report is not as expected"),
        Some(status) => bail!("the load ended with {status}"),
        None => bail!("the load does not end"),
    }
}
