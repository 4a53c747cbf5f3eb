//! The tuner's loop: observations and orders in, the actions of `governor-health` executed one after the other, and what it
//! records written down. Decides nothing.

mod record;
mod view;

use super::hands::execute;
use super::journal::Journal;
use super::memory::Store;
use super::setting::{Settings, selector};
use super::{Ask, Ordered};
use crate::config::{TunerConfig, TunerMode};
use crate::driver::messages::Message;
use crate::process::clock;
use crate::recorder::Recorder;
use crate::records::audit::ITSELF;
use crate::state::StateDir;
use governor_api::{ListenerName, TunerAction, TunerOrdered, TunerOutcome, TunerWhich};
use governor_engine::time::Instant;
use governor_health::Report;
use governor_health::backlog::Selector;
use governor_health::backlog::tuner::{Input, Outcome, Output, Tuner};
use governor_kernel::proc::privileged;
use governor_observation::Observation;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// The pure tuner with everything that it is connected to.
#[derive(Debug)]
pub(super) struct Runner {
    tuner: Tuner,
    reports: watch::Receiver<Arc<Report>>,
    journal: Journal,
    store: Store,
    /// Modes that were set at run time.
    settings: Settings,
    recorder: Recorder,
    driver: mpsc::WeakSender<Message>,
    counts: BTreeMap<TunerAction, u64>,
}

/// What an operator's order came to.
#[derive(Debug, Default)]
struct Answers {
    outcomes: Vec<Outcome>,
    resumed: Vec<ListenerName>,
}

impl Runner {
    pub(super) fn new(
        config: TunerConfig,
        state: &StateDir,
        reports: watch::Receiver<Arc<Report>>,
        recorder: Recorder,
        driver: mpsc::WeakSender<Message>,
    ) -> Self {
        let (store, memory) = Store::open(state);
        let settings = Settings::open(state);
        Self {
            tuner: Tuner::new(config, memory, settings.modes()),
            reports,
            journal: Journal::open(state.path()),
            store,
            settings,
            recorder,
            driver,
            counts: BTreeMap::new(),
        }
    }

    /// Runs until it is to stop, or until nothing is left that could ask it.
    pub(super) async fn run(mut self, mut asks: mpsc::Receiver<Ask>, mut seen: watch::Receiver<Arc<Observation>>) {
        let mut is_over = false;
        loop {
            let due = self.tuner.poll_timeout();
            tokio::select! {
                ask = asks.recv() => match ask {
                    None => return,
                    Some(Ask::Stop { for_good, done }) => {
                        if for_good {
                            self.take(Input::Stop, clock::now()).await;
                        }
                        // The daemon waits for it, or has given up.
                        done.send(()).ok();
                        return;
                    }
                    Some(ask) => self.answer(ask).await,
                },
                changed = seen.changed(), if !is_over => {
                    if changed.is_ok() {
                        let seen = Arc::clone(&seen.borrow_and_update());
                        self.observe(seen).await;
                    } else {
                        self.take(Input::PlaneEnded, clock::now()).await;
                        is_over = true;
                    }
                }
                () = tokio::time::sleep_until(clock::to_tokio(due.unwrap_or_default())), if due.is_some() => {
                    self.tuner.handle_timeout(clock::now());
                    self.carry_out().await;
                }
            }
        }
    }

    async fn answer(&mut self, ask: Ask) {
        let now = clock::now();
        match ask {
            Ask::View(answer) => drop(answer.send(self.view())),
            Ask::Resume { which, by, answer } => {
                drop(answer.send(self.take(Input::Resume { which, by }, now).await.resumed));
            }
            Ask::SetMode { which, mode, by, answer } => drop(answer.send(self.set_mode(which, mode, by).await)),
            Ask::Restore { which, by, answer } => {
                let Answers { outcomes, .. } = self.take(Input::Restore { which, by }, now).await;
                drop(answer.send(self.ordered(outcomes)));
            }
            Ask::Obey(config) => drop(self.take(Input::Configured(config), now).await),
            Ask::Stop { .. } => {}
        }
    }

    async fn observe(&mut self, seen: Arc<Observation>) {
        let processes = self.tuner.processes(&seen);
        let started = processes.into_iter().filter_map(|pid| Some((pid, privileged::started(pid).ok()?))).collect();
        let report = Arc::clone(&self.reports.borrow());
        let now = Instant(seen.taken_ns);
        self.take(Input::Observed { seen, report, started }, now).await;
        self.recorder.tuner(self.figures());
    }

    /// Takes a fact to the tuner, and carries out what it orders.
    async fn take(&mut self, input: Input, now: Instant) -> Answers {
        self.tuner.handle_input(input, now);
        self.carry_out().await
    }

    async fn carry_out(&mut self) -> Answers {
        let mut answers = Answers::default();
        while let Some(output) = self.tuner.poll_output() {
            match output {
                Output::Act(action) => {
                    let done = execute(action).await;
                    self.tuner.handle_input(Input::Done(done), clock::now());
                }
                Output::Record(record) => self.record(record).await,
                Output::Keep(memory) => self.store.keep(memory),
                Output::Retired(which) => self.retire(&which).await,
                Output::Outcomes(outcomes) => answers.outcomes = outcomes,
                Output::Resumed(names) => answers.resumed = names,
                Output::Stopped => {}
            }
        }
        answers
    }

    /// Sets a mode for the listeners that are meant, or takes away what was set for exactly them.
    ///
    /// # Errors
    /// One line: the selector is wrong, too many settings, or there is none to take away.
    async fn set_mode(&mut self, which: TunerWhich, mode: Option<TunerMode>, by: String) -> Ordered {
        let selector = selector(&which)?;
        let before = match mode {
            Some(mode) => self.settings.set(which.clone(), mode, &by)?,
            None => {
                let none = || format!("no run-time setting is there for {which}");
                Some(self.settings.clear(&selector).ok_or_else(none)?)
            }
        };
        let stored = self.settings.keep();
        self.record_mode(&which, &by, before.as_ref(), mode).await;
        let (modes, named) = (self.settings.modes(), which.to_string());
        let input = Input::ModesSet { modes, which: selector, named, mode, by };
        let Answers { outcomes, .. } = self.take(input, clock::now()).await;
        Ok((TunerOrdered { before, ..self.ordered(outcomes) }, stored))
    }

    /// A run-time setting means nothing any more.
    async fn retire(&mut self, which: &Selector) {
        if let Some(setting) = self.settings.clear(which) {
            drop(self.settings.keep());
            self.record_mode(&setting.which, ITSELF, Some(&setting), None).await;
        }
    }

    fn ordered(&self, outcomes: Vec<Outcome>) -> TunerOrdered {
        let shown = |outcome: Outcome| TunerOutcome {
            listener: outcome.listener,
            mode: outcome.mode.as_str().to_owned(),
            before: outcome.before,
            after: outcome.after,
            failure: outcome.failure,
        };
        TunerOrdered {
            before: None,
            listeners: outcomes.into_iter().map(shown).collect(),
            unavailable: self.tuner.unavailable().map(str::to_owned),
            warning: None,
        }
    }
}
