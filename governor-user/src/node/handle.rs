//! What the control API and the metrics hold of the daemon: a way to ask the driver, the newest observation, and the
//! settings. Cheap to clone.

use crate::config::Config;
use crate::driver::messages::{Ask, Message};
use crate::driver::operator::key_orders::KeyRefused;
use crate::driver::operator::members::MemberRefused;
use crate::driver::operator::members::levers::Place;
use crate::driver::view::View;
use crate::node::settings::Settings;
use crate::node::sockets::Sockets;
use crate::recorder::Recorder;
use crate::records::journal::Entry;
use crate::state::{StateDir, Stored};
use crate::tuner::Tuner;
use governor_api as api;
use governor_engine::snapshot::LeaseView;
use governor_engine::time::Instant;
use governor_health::Report;
use governor_observation::Observation;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use tokio::sync::{Mutex, mpsc, oneshot, watch};

/// The daemon as its surfaces see it. Every question is `None` once the driver has ended.
#[derive(Clone, Debug)]
pub struct Handle {
    driver: mpsc::Sender<Message>,
    seen: watch::Receiver<Arc<Observation>>,
    reports: watch::Receiver<Arc<Report>>,
    settings: Arc<Mutex<Settings>>,
    recorder: Recorder,
    tuner: Tuner,
    state: StateDir,
    sockets: Arc<StdMutex<Sockets>>,
    started: Instant,
}

impl Handle {
    /// Joins the parts.
    #[must_use]
    pub fn new(
        driver: mpsc::Sender<Message>,
        seen: watch::Receiver<Arc<Observation>>,
        reports: watch::Receiver<Arc<Report>>,
        settings: Settings,
        recorder: Recorder,
        tuner: Tuner,
        started: Instant,
    ) -> Self {
        let state = settings.state().clone();
        let (settings, sockets) = (Arc::new(Mutex::new(settings)), Arc::default());
        Self { driver, seen, reports, settings, recorder, tuner, state, sockets, started }
    }

    /// Everything at a glance.
    pub async fn view(&self) -> Option<View> {
        self.ask(Ask::View).await
    }

    /// All leases with a view of the same moment.
    pub async fn leases(&self) -> Option<(View, Vec<LeaseView>)> {
        self.ask(Ask::Leases).await
    }

    /// One decision and the time now.
    pub async fn explain(&self, id: u64) -> Option<Option<(Entry, Instant)>> {
        self.ask(|answer| Ask::Explain(id, answer)).await
    }

    /// Decisions that may not be on disk yet, the newest first, and the time now.
    pub async fn recent_decisions(&self) -> Option<(Vec<Entry>, Instant)> {
        self.ask(Ask::Recent).await
    }

    /// Puts what may change at run time in force.
    pub async fn obey(&self, config: &Config) -> Option<()> {
        self.tuner.obey(config.tuner.clone()).await;
        let policy = config.policy.clone();
        self.ask(|answer| Ask::Policy(Box::new(policy), answer)).await
    }

    /// Switches the bypass; whether that is stored.
    pub async fn bypass(&self, on: bool, for_seconds: Option<u64>, by: String) -> Option<Stored> {
        self.ask(|answer| Ask::Bypass { on, for_seconds, by, answer }).await
    }

    /// Every override of a key.
    pub async fn key_overrides(&self) -> Option<Vec<api::KeyOverride>> {
        self.ask(Ask::KeyOverrides).await
    }

    /// Sets or takes away the override of a key.
    pub async fn order_key(
        &self,
        name: String,
        order: Option<api::KeyOverrideRequest>,
        by: String,
    ) -> Option<Result<(api::KeyOverrideChange, Stored), KeyRefused>> {
        self.ask(|answer| Ask::Key { name, order, by, answer }).await
    }

    /// Carries out an order for a member.
    pub async fn order_member(
        &self,
        place: Place,
        request: api::MemberRequest,
        by: String,
    ) -> Option<Result<(api::MemberChange, Stored), MemberRefused>> {
        self.ask(|answer| Ask::Member { place, request, by, answer }).await
    }

    /// Begins or ends the drain of the node; whether that is stored.
    pub async fn order_drain(&self, on: bool, reason: Option<String>, by: String) -> Option<Stored> {
        self.ask(|answer| Ask::Drain { on, reason, by, answer }).await
    }

    /// Keeps a record of a change. A driver that is gone keeps none.
    pub async fn record(&self, event: api::Event) {
        self.driver.send(Message::Ask(Ask::Record(Box::new(event)))).await.ok();
    }

    /// The newest observation.
    #[must_use]
    pub fn observation(&self) -> Arc<Observation> {
        Arc::clone(&self.seen.borrow())
    }

    /// What the newest observation came to, or the one before it.
    #[must_use]
    pub fn report(&self) -> Arc<Report> {
        Arc::clone(&self.reports.borrow())
    }

    /// The settings; locked across a change, so that two changes cannot mix.
    #[must_use]
    pub fn settings(&self) -> &Mutex<Settings> {
        &self.settings
    }

    /// What only the driver counts.
    #[must_use]
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// What tunes backlogs.
    #[must_use]
    pub fn tuner(&self) -> &Tuner {
        &self.tuner
    }

    /// The state folder that is in use, whatever the settings say by now.
    #[must_use]
    pub fn state(&self) -> &StateDir {
        &self.state
    }

    /// The Unix sockets that are served.
    pub fn sockets(&self) -> MutexGuard<'_, Sockets> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the daemon started.
    #[must_use]
    pub fn started(&self) -> Instant {
        self.started
    }

    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.driver.send(Message::Ask(question(answer))).await.ok()?;
        answered.await.ok()
    }
}
