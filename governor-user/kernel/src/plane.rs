//! The thread of the kernel plane: its options, its start and its end. Everything that touches the kernel happens on
//! this thread (and on the walking thread it owns); the daemon only ever sees finished observations.

use super::sampler::{Fatal, Sampler};
use crate::options::{Options, PlaneError};
use crate::programs::closings::Closings;
use governor_observation::Observation;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// The plane rests at least this many times as long as a tick took: at most a fifth of one CPU.
const REST: u32 = 4;

/// Ends the thread and leaves the pins.
#[derive(Debug)]
struct HandOver;

/// The running kernel plane. Dropping it stops it.
#[derive(Debug)]
pub struct Plane {
    observations: watch::Receiver<Arc<Observation>>,
    closings: Option<Closings>,
    /// Dropped to stop the thread.
    running: Option<mpsc::Sender<HandOver>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Plane {
    /// The newest observation, replaced every tick. When the plane ends early the channel closes after a last
    /// observation whose `degraded` says why.
    #[must_use]
    pub fn observations(&self) -> watch::Receiver<Arc<Observation>> {
        self.observations.clone()
    }

    /// The ends of connections, as the programs report them, for one reader; `None` where there are no programs and
    /// when they were taken before.
    pub fn take_closings(&mut self) -> Option<Closings> {
        self.closings.take()
    }

    /// Detaches everything, removes every pin and waits for the thread: at most the tick in progress.
    pub fn stop(mut self) {
        self.end();
    }

    /// As [`Self::stop`], but what is pinned stays and goes on counting for the next plane.
    pub fn hand_over(mut self) {
        if let Some(running) = &self.running {
            // A thread that has ended has detached already.
            drop(running.send(HandOver));
        }
        self.end();
    }

    fn end(&mut self) {
        self.running = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the kernel plane panicked while it detached");
        }
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.end();
    }
}

/// Chooses a tier, takes the first observation and goes on observing on a thread of its own until the [`Plane`] is
/// stopped. Blocks until the first observation is there (a second where programs are loaded), so call it outside the
/// async runtime or on a blocking thread. Ticks that take long make the plane slower, never the daemon.
///
/// # Errors
/// See [`PlaneError`]; a tier that does not work is no error unless `options.require` says so.
pub fn spawn(options: Options) -> Result<Plane, PlaneError> {
    let (running, stopped) = mpsc::channel();
    let (ready, started) = mpsc::sync_channel(1);
    let thread = thread::Builder::new()
        .name("kernel-plane".to_owned())
        .spawn(move || {
            let tick = options.tick.clamp(Duration::from_millis(10), Duration::from_secs(10));
            let begun = Sampler::start(&options).map(|mut sampler| {
                let first = sampler.tick(Instant::now());
                (sampler, first)
            });
            let (mut sampler, first) = match begun {
                Ok(begun) => begun,
                Err(error) => {
                    // The caller waits for exactly this message, or is gone.
                    drop(ready.send(Err(error)));
                    return;
                }
            };
            let (publish, observations) = watch::channel(Arc::new(first.unwrap_or_else(Fatal::last_words)));
            drop(ready.send(Ok((observations, sampler.take_closings()))));
            run(sampler, tick, &stopped, &publish);
        })
        .map_err(PlaneError::Thread)?;
    match started.recv() {
        Ok(Ok((observations, closings))) => {
            Ok(Plane { observations, closings, running: Some(running), thread: Some(thread) })
        }
        Ok(Err(error)) => Err(error),
        Err(mpsc::RecvError) => Err(PlaneError::Ended),
    }
}

/// Ticks until it is stopped or until the plane cannot go on.
fn run(
    mut sampler: Sampler,
    tick: Duration,
    stopped: &mpsc::Receiver<HandOver>,
    publish: &watch::Sender<Arc<Observation>>,
) {
    let mut next = Instant::now() + tick;
    loop {
        match stopped.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(HandOver) => return sampler.hand_over(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let begun = Instant::now();
        // A panic here is a bug of the plane; it must not take admission down with it.
        let outcome = catch_unwind(AssertUnwindSafe(|| sampler.tick(begun)));
        match outcome {
            Ok(Ok(observation)) => drop(publish.send_replace(Arc::new(observation))),
            Ok(Err(fatal)) => {
                tracing::error!(error = %fatal, "the kernel plane stopped");
                drop(publish.send_replace(Arc::new(fatal.last_words())));
                return;
            }
            Err(_panic) => {
                tracing::error!("the kernel plane stopped: it panicked");
                drop(publish.send_replace(Arc::new(Fatal::Panicked.last_words())));
                return;
            }
        }
        let cost = begun.elapsed();
        next = (begun + tick).max(begun + cost + cost * REST);
    }
}
