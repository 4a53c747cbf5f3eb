//! What the driver does at the end of every turn and when time has passed: timers, what is due from time to time, and
//! what was queued for sessions.

use crate::driver::Driver;
use crate::process::clock;
use crate::records::audit::{ITSELF, event};
use governor_engine::id::SessionId;
use governor_engine::io::Input;
use governor_engine::time::{Duration, Instant};

/// So much later than due a timer of its own is set for what any turn may do: while requests come there always is one,
/// and to be woken costs more than what there is to do.
pub(super) const COMPANY: Duration = Duration::from_millis(5);

impl Driver {
    /// Serves the sessions that wait for their turn, runs timers, and sends sessions what changed.
    pub fn tick(&mut self, now: Instant) {
        self.now = now;
        self.watchdog.feed(now);
        self.serve_waiting(now);
        if self.parts.engine.poll_timeout().is_some_and(|at| at <= now) {
            self.parts.engine.handle_timeout(now);
        }
        if self.parts.bypass.is_timed() && self.parts.bypass.take_expired(clock::wall_seconds()) {
            self.parts.audit.record(&event(ITSELF, "bypass", "", &"on", &"off", Some("its time is over".to_owned())));
            self.parts.engine.handle_input(Input::Bypass { on: false }, now);
        }
        if self.parts.key_overrides.next_end().is_some_and(|end| end <= clock::wall_seconds()) {
            self.expire_key_overrides(clock::wall_seconds());
        }
        self.log_minute(now);
        self.tick_members(now);
        self.look_for_clients(now);
        self.deliver();
        self.forget_ended_sessions();
        self.publish_limits(now);
        self.show_page(now);
        self.send_queued();
        self.record_running();
        self.flush(now);
        self.checkpoint(now);
    }

    /// When there is something to do, with or without a message.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        let bypass = self.parts.engine.is_bypassed().then(|| {
            let wall = clock::wall_seconds();
            self.parts.bypass.remaining(wall).map(|left| clock::now().after(Duration::from_secs(left)))
        });
        let key = self.parts.key_overrides.next_end().map(|end| {
            let left = Duration::from_secs(end.saturating_sub(clock::wall_seconds()));
            clock::now().after(left)
        });
        let on_time = [
            self.parts.engine.poll_timeout(),
            bypass.flatten(),
            key,
            self.member_log.next(),
            self.clients.due(),
            self.stop_by,
            self.limits_due(),
        ];
        let steps = (self.parts.demand.opening().is_some() || self.walk.is_some()).then_some(self.now);
        let with_company =
            [self.flush_by, self.parts.checkpoint.due(), self.page_due(), self.watchdog.due(), self.rates.due(), steps];
        let with_company = with_company.into_iter().flatten().min().map(|due| due.after(COMPANY));
        on_time.into_iter().chain([with_company]).flatten().min()
    }

    /// One line a pool, once a minute while there is traffic.
    fn log_minute(&mut self, now: Instant) {
        for (pool, counts) in self.rates.take_due(now) {
            let engine = &self.parts.engine;
            // A pool that left the policy has no name any more.
            let Some((name, figures)) = engine.pool_name(pool).zip(engine.pool_figures(pool)) else { continue };
            let wait = |percent| counts.wait(percent).map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
            tracing::info!(
                pool = name,
                granted = counts.granted,
                waited = counts.waited,
                refused = counts.refused.values().sum::<u64>(),
                reasons = counts.reasons(),
                wait_p50_ms = wait(50),
                wait_p99_ms = wait(99),
                in_flight = figures.in_flight,
                parked = figures.parked,
                "last minute"
            );
        }
    }

    /// Whether a stop was ordered, and is done.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.stop_by.is_some_and(|by| now >= by || self.parts.engine.is_idle())
    }

    /// Writes what was queued for sessions in this turn.
    fn send_queued(&mut self) {
        for session in self.unsent.drain(..) {
            if let Some(outbox) = self.sessions.get(&session).and_then(|state| state.outbox.as_ref()) {
                outbox.flush();
            }
        }
    }

    /// A session without a connection is kept while it holds leases: they may still be handed over.
    fn forget_ended_sessions(&mut self) {
        let engine = &self.parts.engine;
        let ended: Vec<SessionId> = self.lost.iter().copied().filter(|id| engine.leases_of(*id) == 0).collect();
        for session in ended {
            self.sessions.remove(&session);
            self.lost.remove(&session);
        }
    }
}
