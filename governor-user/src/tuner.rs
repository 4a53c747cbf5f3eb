//! The tuner: gives live listeners of other processes a longer backlog where bursts overflow it and drain in time, and
//! gives it back after quiet. Observes by default. Knows no request, pool or proxy.
//!
//! ```text
//!   observation ─▶ run ─▶ governor-health (decides) ─▶ run ─▶ hands ─▶ relisten (listen() through a duplicate)
//!                   ▲             ▲                     │       │
//!   control API ────┘             └─────── result ──────┼───────┘
//!                                                       └─▶ journal, memory, events
//! ```

mod hands;
mod journal;
mod memory;
mod relisten;
mod run;
mod setting;

pub(crate) use governor_health::backlog::Selector;
pub(crate) use setting::selector;

pub use journal::records;

use crate::config::{TunerConfig, TunerMode};
use crate::driver::messages::Message;
use crate::recorder::Recorder;
use crate::state::{StateDir, Stored};
use governor_api::{self as api, TunerWhich};
use governor_health::Report;
use governor_observation::Observation;
use run::Runner;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};

/// Questions and orders that wait for the tuner.
const INBOX: usize = 16;

/// Messages to the tuner.
#[derive(Debug)]
enum Ask {
    /// What it sees and would do.
    View(oneshot::Sender<api::Tuner>),
    /// Tune listeners that were left alone: those that fit.
    Resume { which: Selector, by: String, answer: oneshot::Sender<Vec<api::ListenerName>> },
    /// Set a mode for the listeners that fit, or take it away.
    SetMode { which: TunerWhich, mode: Option<TunerMode>, by: String, answer: oneshot::Sender<Ordered> },
    /// Give the listeners that fit their first backlog back, and leave them alone.
    Restore { which: Selector, by: String, answer: oneshot::Sender<api::TunerOrdered> },
    /// Obey this from now on.
    Obey(Box<TunerConfig>),
    /// Stop; a stop for good restores, if the configuration says so.
    Stop { for_good: bool, done: oneshot::Sender<()> },
}

/// What an order came to and whether it is stored, or why it was refused, in one line.
pub(crate) type Ordered = Result<(api::TunerOrdered, Stored), String>;

/// A way to ask the tuner. Every question is `None` once it has ended.
#[derive(Clone, Debug)]
pub struct Tuner(mpsc::Sender<Ask>);

impl Tuner {
    /// Starts it as a task of the runtime. Changes go to `driver` to be recorded among the events.
    #[must_use]
    pub fn spawn(
        config: TunerConfig,
        state: &StateDir,
        seen: watch::Receiver<Arc<Observation>>,
        reports: watch::Receiver<Arc<Report>>,
        recorder: Recorder,
        driver: mpsc::WeakSender<Message>,
    ) -> Self {
        let (asks, inbox) = mpsc::channel(INBOX);
        tokio::spawn(Runner::new(config, state, reports, recorder, driver).run(inbox, seen));
        Self(asks)
    }

    /// What it sees and would do.
    pub async fn view(&self) -> Option<api::Tuner> {
        let (answer, answered) = oneshot::channel();
        self.0.send(Ask::View(answer)).await.ok()?;
        answered.await.ok()
    }

    /// Gives listeners that were left alone back to it; which ones.
    pub(crate) async fn resume(&self, which: Selector, by: String) -> Option<Vec<api::ListenerName>> {
        let (answer, answered) = oneshot::channel();
        self.0.send(Ask::Resume { which, by, answer }).await.ok()?;
        answered.await.ok()
    }

    /// Sets a mode at run time for the listeners that fit, or takes away what was set for exactly them (`None`).
    pub(crate) async fn set_mode(&self, which: TunerWhich, mode: Option<TunerMode>, by: String) -> Option<Ordered> {
        let (answer, answered) = oneshot::channel();
        self.0.send(Ask::SetMode { which, mode, by, answer }).await.ok()?;
        answered.await.ok()
    }

    /// Gives listeners that the tuner raised their first backlog back, and leaves them alone until they are resumed.
    pub(crate) async fn restore(&self, which: Selector, by: String) -> Option<api::TunerOrdered> {
        let (answer, answered) = oneshot::channel();
        self.0.send(Ask::Restore { which, by, answer }).await.ok()?;
        answered.await.ok()
    }

    /// Puts settings in force. A tuner that has ended obeys nothing.
    pub async fn obey(&self, config: TunerConfig) {
        drop(self.0.send(Ask::Obey(Box::new(config))).await);
    }

    /// Ends it, after what it is doing; `for_good`: no other daemon takes over, so it restores if it is configured to.
    pub async fn stop(&self, for_good: bool) {
        let (done, stopped) = oneshot::channel();
        if self.0.send(Ask::Stop { for_good, done }).await.is_ok() {
            drop(stopped.await);
        }
    }
}
