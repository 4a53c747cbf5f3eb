//! A load generator for a gateway: one heavy key that keeps many requests going whatever it gets, and light keys whose
//! users hold a stream or two and think in between. Counts logical requests, not tries; prints one JSON report on
//! stdout and progress on stderr; ends by itself.
//!
//! A run has three parts: warm-up (not counted), measuring, and draining, in which nothing new begins and what is open
//! may end. What is then still unanswered counts as an error.

mod client;
mod retry;
mod tally;

use clap::{Parser, ValueEnum};
use client::{Client, Target};
use rand::RngExt;
use retry::RetryPolicy;
use serde::Serialize;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tally::{ClassProgress, ClassReport, Tally};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};

/// One heavy key and some light ones against a gateway.
///
/// The defaults run about five times faster than life, like those of the simulated upstream: a back-off of 100 ms
/// stands for the 500 ms of a real client, a pause of 0.6 s for one of 3 s. A server's Retry-After is followed as it is.
#[derive(Debug, Parser)]
struct Cli {
    /// Address of the gateway
    #[arg(long)]
    target: SocketAddr,
    /// Path to post to
    #[arg(long, default_value = "/v1/chat/completions")]
    path: String,
    /// Requests the heavy key keeps going at once
    #[arg(long, default_value_t = 120)]
    heavy: u32,
    /// Mean pause of a heavy worker between two requests, in milliseconds: it stores an answer and takes its next item
    #[arg(long, default_value_t = 40)]
    pause_ms: u64,
    /// Number of light keys
    #[arg(long, default_value_t = 9)]
    light_keys: u32,
    /// Streams a light key holds at most
    #[arg(long, default_value_t = 2)]
    light_streams: u32,
    /// Mean pause of a light key's user between two requests, in milliseconds
    #[arg(long, default_value_t = 600)]
    think_ms: u64,
    /// Tries after the first one
    #[arg(long, default_value_t = 2)]
    retries: u32,
    /// Back-off before the first retry, in milliseconds; doubles with each one
    #[arg(long, default_value_t = 100)]
    backoff_ms: u64,
    /// The back-off grows no further, in milliseconds
    #[arg(long, default_value_t = 1600)]
    longest_backoff_ms: u64,
    /// A Retry-After up to this is followed, in seconds
    #[arg(long, default_value_t = 60)]
    advice_cap_seconds: u64,
    /// A try without an answer after this long failed, in seconds
    #[arg(long, default_value_t = 60)]
    patience_seconds: u64,
    /// Time before the measurement, in milliseconds
    #[arg(long, default_value_t = 2000)]
    warm_up_ms: u64,
    /// Time measured, in seconds
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Longest wait for open requests at the end, in seconds
    #[arg(long, default_value_t = 6)]
    drain_seconds: u64,
    /// Seed of think times and jitter
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Form of the progress on stderr
    #[arg(long, value_enum, default_value_t = Form::Text)]
    progress: Form,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    /// A line a second
    Text,
    /// A JSON object four times a second
    Json,
}

/// The part of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Part {
    WarmUp,
    Measuring,
    Draining,
}

/// When the parts of the run begin.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    start: Instant,
    measure: Instant,
    drain: Instant,
    end: Instant,
}

#[derive(Debug, Serialize)]
struct Report {
    /// Time measured.
    seconds: u64,
    light: ClassReport,
    heavy: ClassReport,
}

#[derive(Debug, Serialize)]
struct Progress {
    part: Part,
    elapsed_seconds: f64,
    light: ClassProgress,
    heavy: ClassProgress,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let schedule = Schedule::starting(Instant::now(), &cli);
    let (light, heavy) = (Arc::new(Tally::default()), Arc::new(Tally::default()));
    let mut workers = start_workers(&cli, schedule, &light, &heavy);
    let mut ticks = interval_at(schedule.start, cli.progress.period());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut terminate = signal(SignalKind::terminate())?;
    loop {
        tokio::select! {
            ended = workers.join_next() => match ended {
                Some(ended) => ended?,
                None => break,
            },
            now = ticks.tick() => cli.progress.print(&Progress {
                part: schedule.part(now),
                elapsed_seconds: now.duration_since(schedule.start).as_secs_f64(),
                light: light.progress(),
                heavy: heavy.progress(),
            })?,
            () = sleep_until(schedule.end) => break,
            _ = terminate.recv() => break,
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    workers.shutdown().await;
    print_report(&Report { seconds: cli.seconds, light: light.report(), heavy: heavy.report() })
}

fn start_workers(cli: &Cli, schedule: Schedule, light: &Arc<Tally>, heavy: &Arc<Tally>) -> JoinSet<()> {
    let target = Arc::new(Target {
        address: cli.target,
        path: cli.path.clone(),
        policy: RetryPolicy {
            retries: cli.retries,
            initial: Duration::from_millis(cli.backoff_ms),
            longest: Duration::from_millis(cli.longest_backoff_ms),
            advice_cap: Duration::from_secs(cli.advice_cap_seconds),
        },
        patience: Duration::from_secs(cli.patience_seconds),
    });
    let mut seeds = cli.seed..;
    let mut client =
        |key: &str| Client::new(Arc::clone(&target), key, seeds.next().expect("there are more seeds than workers"));
    let mut workers = JoinSet::new();
    for _ in 0..cli.heavy {
        let pause = Duration::from_millis(cli.pause_ms);
        workers.spawn(ask_on(client("heavy"), Arc::clone(heavy), schedule, pause));
    }
    for key in 1..=cli.light_keys {
        for _ in 0..cli.light_streams {
            let think = Duration::from_millis(cli.think_ms);
            workers.spawn(ask_on(client(&format!("light-{key}")), Arc::clone(light), schedule, think));
        }
    }
    workers
}

/// A user, person or batch worker: pauses, asks, reads the answer or puts up with none, and begins again.
async fn ask_on(mut client: Client, tally: Arc<Tally>, schedule: Schedule, pause: Duration) {
    loop {
        // Exponential, cut at five means so that nobody sleeps through the run.
        let draw: f64 = client.rng().random();
        let pause = pause.mul_f64((-(1.0 - draw).ln()).min(5.0));
        sleep_until(schedule.drain.min(Instant::now() + pause)).await;
        let Some(measured) = schedule.begin(Instant::now()) else { return };
        client.ask(tally.begin(measured)).await;
    }
}

impl Schedule {
    fn starting(start: Instant, cli: &Cli) -> Self {
        let measure = start + Duration::from_millis(cli.warm_up_ms);
        let drain = measure + Duration::from_secs(cli.seconds);
        Self { start, measure, drain, end: drain + Duration::from_secs(cli.drain_seconds) }
    }

    fn part(&self, now: Instant) -> Part {
        if now < self.measure {
            Part::WarmUp
        } else if now < self.drain {
            Part::Measuring
        } else {
            Part::Draining
        }
    }

    /// Whether a request may still begin, and if so whether it is measured.
    fn begin(&self, now: Instant) -> Option<bool> {
        match self.part(now) {
            Part::WarmUp => Some(false),
            Part::Measuring => Some(true),
            Part::Draining => None,
        }
    }
}

impl Form {
    fn period(self) -> Duration {
        match self {
            Self::Text => Duration::from_secs(1),
            Self::Json => Duration::from_millis(250),
        }
    }

    #[expect(clippy::print_stderr, reason = "progress belongs to whoever watches")]
    fn print(self, progress: &Progress) -> serde_json::Result<()> {
        match self {
            Self::Json => eprintln!("{}", serde_json::to_string(progress)?),
            Self::Text => {
                let Progress { part, elapsed_seconds, light, heavy } = progress;
                let class = |class: &ClassProgress| {
                    let ClassProgress { open, streaming, ok, refused, errors } = class;
                    format!(
                        "{open:>3} open, {streaming:>3} streaming, {ok:>5} ok, {refused:>5} refused, {errors} errors"
                    )
                };
                eprintln!("{elapsed_seconds:>5.1} s {part:?}  light: {}  heavy: {}", class(light), class(heavy));
            }
        }
        Ok(())
    }
}

#[expect(clippy::print_stdout, reason = "the report is this program's output")]
fn print_report(report: &Report) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(report)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn a_request_counts_by_the_part_of_the_run_in_which_it_begins() {
        let start = Instant::now();
        let cli = Cli::parse_from(["load", "--target", "127.0.0.1:1"]);
        let schedule = Schedule::starting(start, &cli);
        let at = |millis| schedule.begin(start + Duration::from_millis(millis));
        assert_eq!(
            [at(0), at(1999), at(2000), at(21_999), at(22_000)],
            [Some(false), Some(false), Some(true), Some(true), None]
        );
        assert_eq!(schedule.end, start + Duration::from_secs(28));
    }

    #[test]
    fn the_report_separates_the_classes() {
        let empty = Tally::default().report();
        let report = Report { seconds: 20, light: empty.clone(), heavy: empty };
        let value = serde_json::to_value(report).unwrap();
        assert_eq!(value["seconds"], 20);
        assert!(value["light"]["requests"].is_u64() && value["heavy"]["requests"].is_u64());
    }
}
