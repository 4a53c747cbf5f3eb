//! The last seconds of every listener: what observations that follow each other add up to. Pure; time is an argument.
//! Knows no threshold but those that say what a standing queue is (CoDel's).

use crate::listeners::evidence::Evidence;
use crate::listeners::window::{Moment, Window};
use governor_engine::time::{Duration, Instant};
use governor_observation::{ListenerView, NamespaceView, Observation, SojournBucket};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A queue that was not empty through this long …
const INTERVAL: Duration = Duration::from_millis(100);
/// … stands if none of at least so many accepted connections …
const LEAST_WAITS: u64 = 5;
/// … had waited less than this, in seconds.
const TARGET: f64 = 0.005;
/// It stands too if its oldest connection is older than this, in seconds.
const OLD: f64 = 0.1;

/// Which listener.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Id {
    Socket(u64),
    /// Where no cookie is known.
    Place(u64, IpAddr, u16),
}

/// Everything remembered.
#[derive(Debug, Default)]
pub struct History {
    tracks: BTreeMap<Id, Track>,
}

/// One listener.
#[derive(Debug)]
struct Track {
    seen: Instant,
    begun: Instant,
    depth: u32,
    depth_peak: Option<u32>,
    enqueued: Option<u64>,
    accepted: Option<u64>,
    overflows: Option<u64>,
    passive_opens: Option<u64>,
    /// Since when it was never seen empty.
    waiting_since: Option<Instant>,
    /// When an accept last showed, or may have been hidden.
    last_accept: Instant,
    /// Accepts may be hidden: they are not counted and the queue stays full.
    accept_unknown: bool,
    /// Since the last time it was full or overflowed: how long it took to empty, and when it had.
    drained: Option<(Instant, Duration)>,
    stand: Stand,
    window: Window,
}

/// Whether the queue stands.
#[derive(Debug, Default)]
struct Stand {
    /// The interval that runs: since when, and the waits counted then.
    interval: Option<(Instant, Vec<SojournBucket>)>,
    /// The least wait of any connection in the last complete one, in seconds.
    least: Option<f64>,
    since: Option<Instant>,
}

impl History {
    /// Takes in an observation and hands on what is known of each of its listeners, in their order. What is known of
    /// processes and requests is the caller's to add.
    pub fn absorb(&mut self, seen: &Observation, now: Instant, mut each: impl FnMut(&ListenerView, Evidence)) {
        let namespaces: BTreeMap<u64, &NamespaceView> = seen.namespaces.iter().map(|row| (row.netns, row)).collect();
        for listener in &seen.listeners {
            let namespace = namespaces.get(&listener.netns).copied();
            let track = self.tracks.entry(id(listener)).or_insert_with(|| Track::new(listener, now));
            track.absorb(listener, namespace, now);
            each(listener, track.evidence(listener, namespace, now));
        }
        self.tracks.retain(|_, track| track.seen == now);
    }
}

fn id(listener: &ListenerView) -> Id {
    listener.cookie.map_or(Id::Place(listener.netns, listener.address, listener.port), Id::Socket)
}

impl Track {
    fn new(listener: &ListenerView, now: Instant) -> Self {
        Self {
            seen: now,
            begun: now,
            depth: 0,
            depth_peak: listener.depth_peak,
            enqueued: listener.enqueued_total,
            accepted: listener.accepted_total,
            overflows: listener.overflows_total,
            passive_opens: None,
            waiting_since: None,
            last_accept: now,
            accept_unknown: false,
            drained: None,
            stand: Stand::default(),
            window: Window::default(),
        }
    }

    fn absorb(&mut self, listener: &ListenerView, namespace: Option<&NamespaceView>, now: Instant) {
        let opens = namespace.and_then(|namespace| namespace.counters.passive_opens);
        let accepted = rise(self.accepted, listener.accepted_total);
        let overflows = rise(self.overflows, listener.overflows_total);
        let deepest = match (self.depth_peak, listener.depth_peak) {
            (Some(before), Some(peak)) if peak > before => listener.depth.max(peak),
            _ => listener.depth,
        };
        let waits = self.depth > 0 || listener.depth > 0;
        let full = listener.is_full() == Some(true);

        self.note_accepts(listener, accepted, rise(self.passive_opens, opens), full, now);
        match (listener.depth, self.waiting_since) {
            (0, Some(since)) => {
                self.window.spell(now, now.since(since));
                self.drained = Some((now, now.since(since)));
                self.waiting_since = None;
            }
            (0, None) if overflows.is_some_and(|count| count > 0) => {
                // Full and empty again between two looks.
                self.drained = Some((now, now.since(self.seen)));
            }
            (0, None) => {}
            (_, since) => {
                let since = *self.waiting_since.insert(since.unwrap_or(now));
                self.window.spell(now, now.since(since));
                if full || overflows.is_some_and(|count| count > 0) {
                    self.drained = None;
                }
            }
        }
        self.stand.absorb(listener, now);
        let busy = waits || overflows.is_some_and(|count| count > 0);
        self.window.add(
            now,
            Moment {
                enqueued: rise(self.enqueued, listener.enqueued_total).unwrap_or(0),
                accepted: accepted.unwrap_or(0),
                overflows: overflows.unwrap_or(0),
                depth: deepest,
                busy: if busy { now.since(self.seen) } else { Duration::ZERO },
            },
        );
        self.seen = now;
        self.depth = listener.depth;
        self.depth_peak = listener.depth_peak;
        self.enqueued = listener.enqueued_total;
        self.accepted = listener.accepted_total;
        self.overflows = listener.overflows_total;
        self.passive_opens = opens;
    }

    /// Where accepts are not counted, a queue that shrank shows one. One that stays full may be emptied and filled up
    /// again in between: whether it is shows in the connections that its namespace opened.
    fn note_accepts(
        &mut self,
        listener: &ListenerView,
        accepted: Option<u64>,
        opened: Option<u64>,
        full: bool,
        now: Instant,
    ) {
        let shrank = listener.depth < self.depth;
        self.accept_unknown = listener.accepted_total.is_none() && full && opened != Some(0);
        if accepted.is_some_and(|count| count > 0) || (accepted.is_none() && shrank) || self.accept_unknown {
            self.last_accept = now;
        }
    }

    fn evidence(&self, listener: &ListenerView, namespace: Option<&NamespaceView>, now: Instant) -> Evidence {
        let sums = self.window.sums(now);
        let known = |total: Option<u64>, sum: u64| total.map(|_| sum);
        let busy = sums.busy.as_secs_f64();
        let rate = (listener.accepted_total.is_some() && sums.busy_accepted >= LEAST_WAITS && busy > 0.0)
            .then(|| f64::from(u32::try_from(sums.busy_accepted).unwrap_or(u32::MAX)) / busy);
        let oldest = listener.oldest_queued_seconds.filter(|_| listener.depth > 0);
        Evidence {
            depth: listener.depth,
            backlog: listener.backlog,
            somaxconn: namespace.and_then(|namespace| namespace.somaxconn),
            abandoned: listener.abandoned,
            window_seconds: now.since(self.begun).min(Window::LENGTH).as_secs_f64(),
            depth_max: sums.depth,
            enqueued: known(listener.enqueued_total, sums.enqueued),
            accepted: known(listener.accepted_total, sums.accepted),
            overflows: known(listener.overflows_total, sums.overflows),
            overflow_rate: match listener.overflows_total {
                Some(_) => Some(self.window.overflow_rate(now)),
                // The namespace counts for all its listeners; one that was empty throughout refused no client.
                None if listener.backlog.is_none() && sums.depth > 0 => of_namespace(namespace),
                None => None,
            },
            accept_rate: rate,
            waiting_seconds: self.waiting_since.map_or(0.0, |since| now.since(since).as_secs_f64()),
            longest_wait_seconds: sums.spell.as_secs_f64(),
            drained_seconds: self
                .drained
                .filter(|(at, _)| now.since(*at) <= Window::LENGTH)
                .map(|(_, took)| took.as_secs_f64()),
            no_accept_seconds: self.no_accept(now),
            oldest_seconds: oldest,
            standing_seconds: self.stand.least,
            standing_for_seconds: self.stand.since.map_or(0.0, |since| now.since(since).as_secs_f64()),
            namespace: namespace.map(|namespace| namespace.recent).unwrap_or_default(),
            conntrack: namespace.map(|namespace| namespace.conntrack).unwrap_or_default(),
            descriptors: None,
            work: None,
        }
    }

    fn no_accept(&self, now: Instant) -> Option<f64> {
        let Some(since) = self.waiting_since else { return Some(0.0) };
        (!self.accept_unknown).then(|| now.since(since.max(self.last_accept)).as_secs_f64())
    }
}

impl Stand {
    fn absorb(&mut self, listener: &ListenerView, now: Instant) {
        if listener.depth == 0 {
            *self = Self::default();
            return;
        }
        let waits = || listener.sojourn.as_ref().map(|sojourn| sojourn.buckets.clone()).unwrap_or_default();
        let (begun, before) = self.interval.get_or_insert_with(|| (now, waits()));
        let old = listener.oldest_queued_seconds.filter(|age| *age > OLD);
        if now.since(*begun) >= INTERVAL {
            let after = waits();
            let least = least(before, &after).filter(|wait| *wait > TARGET);
            self.least = least.into_iter().chain(old).reduce(f64::max);
            self.interval = Some((now, after));
        } else if let Some(old) = old {
            self.least = Some(self.least.map_or(old, |least| least.max(old)));
        }
        self.since = self.least.is_some().then(|| self.since.unwrap_or(now));
    }
}

/// What every connection accepted in between had waited for at least, in seconds; `None` when there were too few.
fn least(before: &[SojournBucket], after: &[SojournBucket]) -> Option<f64> {
    let had = |bucket: &SojournBucket| {
        before.iter().find(|other| other.up_to_seconds == bucket.up_to_seconds).map_or(0, |other| other.count)
    };
    let mut came = after.iter().filter(|bucket| bucket.count > had(bucket)).peekable();
    // A bucket is at most an eighth of its lower bound wide.
    let lower = came.peek()?.up_to_seconds.map_or(64.0, |upper| upper * 8.0 / 9.0);
    let count: u64 = came.map(|bucket| bucket.count - had(bucket)).sum();
    (count >= LEAST_WAITS).then_some(lower)
}

/// Where not even the limit is known, the namespace's refusals still show that some queue is full (S11).
fn of_namespace(namespace: Option<&NamespaceView>) -> Option<f64> {
    let refused = namespace?.recent.listen_overflows?;
    Some(f64::from(u32::try_from(refused).unwrap_or(u32::MAX)) / Window::LENGTH.as_secs_f64())
}

fn rise(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    Some(after?.saturating_sub(before?))
}

#[cfg(test)]
mod tests;
