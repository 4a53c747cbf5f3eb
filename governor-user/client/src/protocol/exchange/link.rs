//! Whether there is a daemon to talk to: greeted, silent, standing still, draining, gone. Tells when requests have
//! waited for long enough that the fallback decides.

use super::{Broken, Exchange, Held, Link, Open, Phase, Waiting};
use crate::lease::refused::Refused;
use governor_common::wire::VERSION;
use governor_common::wire::reply::{ErrorCode, Overload, Welcome};
use governor_common::wire::request::{Hello, Request};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;
use tracing::{info, warn};

/// Leases are renewed this often, or three times per ttl if that is shorter.
pub(super) const RENEW_EVERY: Duration = Duration::from_secs(10);

/// A session that says nothing for this long is probed ...
const PROBE_AFTER: Duration = Duration::from_secs(3);

/// ... and given up when the probe (or the greeting) has no answer for this long: a stopped daemon holds its socket
/// open. Counted from the probe, so that a pause of this process is not taken for the daemon's.
const PROBE_PATIENCE: Duration = Duration::from_secs(6);

/// While requests wait, the heartbeat of the daemon's page is looked at this often.
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl Exchange {
    /// A connection stands: greets.
    pub(crate) fn handle_connected(&mut self, now: Instant) {
        self.link = Link::Greeting;
        self.probed = Some(now);
        self.out.clear();
        let hello = Hello { version: VERSION, name: self.name.clone(), resume: self.last_session };
        self.put(&Request::Hello(hello));
    }

    /// The connection broke: what it carried is to be said again on the next.
    pub(crate) fn handle_disconnected(&mut self, now: Instant) {
        self.link = Link::Down;
        self.probed = None;
        self.lose(now);
        self.publisher.connected.send_replace(false);
        self.out.clear();
        self.releases.clear();
        self.by_id.clear();
        for open in self.open.take() {
            match open {
                Open::Move(slot, reply) => {
                    if let Some(held) = self.held.get_mut(slot) {
                        held.moved = false;
                    }
                    self.deferred_moves.push((slot, reply));
                }
                Open::Resume(slot, max_wait, reply) => self.deferred_resumes.push((slot, max_wait, reply)),
                Open::Acquire(_) | Open::Register(_) => {}
            }
        }
        for waiting in self.waiting.values_mut() {
            waiting.request = None;
        }
        // A lease that ended unregistered dies with the session that granted it.
        self.held.retain(|held| held.phase != Phase::Ending);
        for held in self.held.values_mut() {
            if held.phase != Phase::Uncounted {
                held.phase = Phase::Unregistered;
            }
        }
        self.publish();
    }

    /// The daemon sent something: it is alive.
    pub(super) fn heard(&mut self, now: Instant) {
        self.probed = None;
        self.probe_at = now + PROBE_AFTER;
    }

    /// Time passed.
    ///
    /// # Errors
    ///
    /// [`Broken`] when the daemon has been silent for too long.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Result<(), Broken> {
        if self.probed.is_some_and(|probed| now >= probed + PROBE_PATIENCE) {
            warn!("the governor does not answer");
            return Err(Broken::Retry);
        }
        if self.is_open() {
            if now >= self.probe_at {
                self.probe_at = now + PROBE_AFTER;
                self.probed.get_or_insert(now);
                self.put(&Request::Ping);
            }
            if now >= self.renew_at {
                self.renew_at = now + self.renew_every;
                self.renew(now);
            }
        }
        if let Some(since) = self.unserved {
            if !self.away && now >= since + self.patience {
                warn!(requests = self.waiting.len(), "the governor is away: the fallback decides");
                self.away = true;
                self.publisher.overload.send_replace(Overload::default());
                if self.link == Link::Still {
                    // What the fallback does from now on is to be registered, by a session that begins anew.
                    return Err(Broken::Retry);
                }
            }
            for ticket in self.waiting.in_order(|waiting| self.away || waiting.expired(now)) {
                self.fall_back(ticket, now);
            }
            if self.away {
                self.take_up_deferred(now);
            }
        }
        self.publish();
        Ok(())
    }

    /// When `handle_timeout` has something to do next, if nothing else happens. For releases see
    /// [`lingers_until`](Self::lingers_until).
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let silence = self.probed.map(|probed| probed + PROBE_PATIENCE);
        let open = self.is_open().then(|| self.probe_at.min(self.renew_at));
        let away = self.unserved.filter(|_| !self.away).map(|since| since + self.patience);
        let expiry = self.unserved.and_then(|_| self.waiting.values().filter_map(Waiting::expiry).min());
        [silence, open, away, expiry, self.look_at()].into_iter().flatten().min()
    }

    /// Whether it is time to look at the heartbeat of the daemon's page: it is not read while nothing waits.
    pub(crate) fn wants_look(&self, now: Instant) -> bool {
        self.look_at().is_some_and(|at| now >= at)
    }

    /// The heartbeat is stalled (`true`) or advances; `None` where there is none to look at.
    pub(crate) fn handle_heartbeat(&mut self, still: Option<bool>, now: Instant) {
        self.look_at = still.map(|_| now + LOOK_EVERY);
        match (self.link, still) {
            // ## Up => Still
            (Link::Up, Some(true)) => {
                warn!("the governor's heartbeat stands still");
                self.link = Link::Still;
                self.lose(now);
            }
            // ## Still => Up
            (Link::Still, Some(false)) => {
                info!("the governor's heartbeat moves again");
                self.link = Link::Up;
                self.serve(now);
            }
            _ => {}
        }
        self.publish();
    }

    fn look_at(&self) -> Option<Instant> {
        self.look_at.filter(|_| self.link == Link::Still || self.is_asking())
    }

    /// The daemon does not answer from now on: what runs in this process is counted here.
    pub(super) fn lose(&mut self, now: Instant) {
        if self.unserved.is_none() {
            self.unserved = Some(now);
            let counts = |held: &&Held| held.phase != Phase::Ending && !held.suspended;
            self.local.count(self.held.values().filter(counts).map(|held| &*held.state));
        }
    }

    /// The daemon answers from now on: registers what it does not count, and sends the requests that wait.
    fn serve(&mut self, now: Instant) {
        self.unserved = None;
        self.away = false;
        self.local.rest();
        self.register(now);
        self.send_unsent(now);
    }

    pub(super) fn welcome(&mut self, welcome: &Welcome, now: Instant) -> Result<(), Broken> {
        if self.link != Link::Greeting {
            warn!("the governor greets twice");
            return Err(Broken::Retry);
        }
        if welcome.version == 0 || welcome.version > VERSION {
            warn!(theirs = welcome.version, ours = VERSION, "the governor speaks another version");
            return Err(Broken::Denied);
        }
        let counters = self.queue.counters();
        if self.welcomed {
            counters.reconnects.fetch_add(1, Ordering::Relaxed);
        }
        info!(session = welcome.session, epoch = welcome.epoch, leases = self.held.len(), "connected to the governor");
        self.link = Link::Up;
        self.version = welcome.version;
        self.welcomed = true;
        self.last_session = Some(welcome.session);
        let ttl = Duration::from_millis(welcome.lease_ttl_ms.into());
        self.renew_every = RENEW_EVERY.min(ttl / 3).max(Duration::from_millis(10));
        self.renew_at = now + self.renew_every;
        self.publisher.connected.send_replace(true);
        // The page, if there is one, came with the greeting: look at once.
        self.look_at = Some(now);
        self.serve(now);
        Ok(())
    }

    pub(super) fn error(&mut self, request: u32, code: ErrorCode, message: String) -> Result<(), Broken> {
        warn!(?code, message, "the governor reports an error");
        match code {
            ErrorCode::Handshake | ErrorCode::Denied => Err(Broken::Denied),
            ErrorCode::Unsupported | ErrorCode::Malformed => {
                self.refuse(request, Refused::rejected(message));
                Ok(())
            }
        }
    }

    /// `Welcome` has yet to come.
    pub(crate) fn is_greeting(&self) -> bool {
        self.link == Link::Greeting
    }

    /// A request is out, and the daemon answers.
    pub(crate) fn is_asking(&self) -> bool {
        self.link == Link::Up && !self.waiting.is_empty()
    }

    /// Frames other than `Hello` may be written.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.link, Link::Up | Link::Still | Link::Draining)
    }
}
