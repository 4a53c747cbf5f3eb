//! Listeners in virtual time, observed every 100 ms.

use super::*;
use crate::listeners::verdict::{Thresholds, Verdict};
use governor_observation::{NamespaceCounters, SojournView};

const TICK: u64 = 100;

/// One listener and its history.
struct World {
    history: History,
    now: u64,
    view: ListenerView,
    namespace: NamespaceCounters,
    recent: NamespaceCounters,
}

impl World {
    /// A listener with counters at 0.
    fn counted(backlog: u32) -> Self {
        let view = ListenerView {
            cookie: Some(7),
            backlog: Some(backlog),
            enqueued_total: Some(0),
            accepted_total: Some(0),
            overflows_total: Some(0),
            ..ListenerView::bare(443)
        };
        let mut world = Self {
            history: History::default(),
            now: 1_000,
            view,
            namespace: NamespaceCounters::default(),
            recent: NamespaceCounters::default(),
        };
        world.tick(|_| {});
        world
    }

    /// One that is only polled: depth and backlog.
    fn polled(backlog: u32) -> Self {
        let mut world = Self::counted(backlog);
        world.view.enqueued_total = None;
        world.view.accepted_total = None;
        world.view.overflows_total = None;
        world.namespace.passive_opens = Some(100);
        world.history = History::default();
        world.tick(|_| {});
        world
    }

    fn tick(&mut self, change: impl FnOnce(&mut ListenerView)) -> Evidence {
        self.now += TICK;
        change(&mut self.view);
        let namespace = NamespaceView {
            netns: 1,
            home: true,
            generation: 0,
            somaxconn: Some(4096),
            counters: self.namespace,
            recent: self.recent,
            conntrack: governor_observation::Conntrack::Absent,
            findings: Vec::new(),
        };
        let seen =
            Observation { listeners: vec![self.view.clone()], namespaces: vec![namespace], ..Observation::default() };
        let mut found = None;
        let now = Instant::ZERO.after(Duration::from_millis(self.now));
        self.history.absorb(&seen, now, |_, evidence| found = Some(evidence));
        found.unwrap()
    }

    fn ticks(&mut self, count: u64, mut change: impl FnMut(&mut ListenerView)) -> Evidence {
        (0..count).map(|_| self.tick(&mut change)).last().unwrap()
    }
}

/// So many came and were accepted, and so many wait.
fn flow(view: &mut ListenerView, came: u64, accepted: u64, refused: u64) {
    view.enqueued_total = view.enqueued_total.map(|total| total + came);
    view.accepted_total = view.accepted_total.map(|total| total + accepted);
    view.overflows_total = view.overflows_total.map(|total| total + refused);
    view.depth = (u64::from(view.depth) + came - accepted).try_into().unwrap();
}

fn verdict(evidence: &Evidence) -> Verdict {
    Verdict::of(evidence, &Thresholds::default())
}

#[test]
fn a_burst_that_drains_has_a_rate_and_the_time_it_took() {
    let mut world = World::counted(128);
    let full = world.tick(|view| flow(view, 129, 0, 71));
    assert_eq!((full.depth_max, full.overflows, full.drained_seconds), (129, Some(71), None));
    assert_eq!(verdict(&full), Verdict::Burst);
    world.tick(|view| flow(view, 71, 200, 0));
    let drained = world.tick(|_| {});
    assert_eq!((drained.depth, drained.drained_seconds, drained.waiting_seconds), (0, Some(0.1), 0.0));
    assert_eq!(drained.accept_rate, Some(1000.0), "200 in the two ticks in which something waited");
    assert_eq!(verdict(&drained), Verdict::Burst);
    let later = world.ticks(100, |_| {});
    assert_eq!((later.overflows, later.depth_max, later.drained_seconds), (Some(0), 0, None));
    assert_eq!(verdict(&later), Verdict::Ok);
}

#[test]
fn a_burst_between_two_looks_shows_in_the_counters() {
    let mut world = World::counted(4);
    world.view.depth_peak = Some(0);
    world.tick(|_| {});
    let after = world.tick(|view| {
        flow(view, 8, 8, 3);
        view.depth_peak = Some(5);
    });
    assert_eq!((after.depth, after.depth_max, after.overflows), (0, 5, Some(3)));
    assert_eq!(after.drained_seconds, Some(0.1));
    assert_eq!(verdict(&after), Verdict::Burst);
}

#[test]
fn sustained_overload_is_starved_also_while_it_pauses() {
    let mut world = World::counted(128);
    world.tick(|view| flow(view, 129, 0, 0));
    let busy = world.ticks(50, |view| {
        flow(view, 10, 10, 40);
        view.oldest_queued_seconds = Some(1.28);
    });
    assert_eq!((verdict(&busy), busy.standing_seconds), (Verdict::AcceptStarved, Some(1.28)));
    assert!(busy.accept_rate.is_some_and(|rate| (90.0..=110.0).contains(&rate)), "{busy:?}");
    world.ticks(13, |view| {
        let leave = view.depth.min(10).into();
        flow(view, 0, leave, 0);
        view.oldest_queued_seconds = Some(1.0);
    });
    let paused = world.ticks(5, |view| view.oldest_queued_seconds = None);
    assert_eq!((paused.depth, paused.standing_seconds), (0, None));
    assert_eq!(verdict(&paused), Verdict::AcceptStarved, "what was refused was refused by a queue that stood");
}

#[test]
fn a_queue_stands_when_nobody_waits_less_than_five_milliseconds() {
    let waits = |count: u64, up_to: f64| SojournView {
        buckets: vec![SojournBucket { up_to_seconds: Some(up_to), count }],
        ..SojournView::default()
    };
    for (each, up_to, stands) in [(5, 0.009, true), (4, 0.009, false), (5, 0.0055, false)] {
        let mut world = World::counted(128);
        let mut count = 0;
        let seen = world.ticks(5, |view| {
            count += each;
            view.depth = 3;
            view.sojourn = Some(waits(count, up_to));
        });
        assert_eq!(seen.standing_seconds.is_some(), stands, "{each} waits of up to {up_to} s");
        let empty = world.tick(|view| view.depth = 0);
        assert_eq!(empty.standing_seconds, None);
    }
}

#[test]
fn nobody_accepts_where_accepts_are_counted() {
    let mut world = World::counted(64);
    world.tick(|view| flow(view, 5, 0, 0));
    assert_eq!(verdict(&world.ticks(9, |_| {})), Verdict::Ok);
    let stalled = world.ticks(2, |_| {});
    assert_eq!(verdict(&stalled), Verdict::AcceptorStalled);
    let recovers = world.tick(|view| flow(view, 0, 1, 0));
    assert_eq!(recovers.no_accept_seconds, Some(0.0));
}

#[test]
fn where_accepts_are_not_counted_a_queue_that_never_shrinks_is_stalled() {
    let mut world = World::polled(64);
    world.tick(|view| view.depth = 5);
    assert_eq!(verdict(&world.ticks(12, |_| {})), Verdict::AcceptorStalled);
    let shrank = world.tick(|view| view.depth = 4);
    assert_eq!(shrank.no_accept_seconds, Some(0.0));
}

#[test]
fn a_full_queue_may_be_emptied_and_filled_between_two_looks() {
    let mut world = World::polled(4);
    world.view.depth = 5;
    let busy = (0..30).map(|_| {
        world.namespace.passive_opens = world.namespace.passive_opens.map(|count| count + 10);
        world.tick(|_| {})
    });
    let busy = busy.last().unwrap();
    assert_eq!((busy.no_accept_seconds, verdict(&busy)), (None, Verdict::AcceptStarved));
    let stuck = world.ticks(12, |_| {});
    assert_eq!(verdict(&stuck), Verdict::AcceptorStalled, "nobody got in, so nobody was let out");
}

#[test]
fn where_not_even_the_limit_is_known_the_namespace_tells_that_some_queue_refuses() {
    let mut world = World::polled(4);
    world.recent.listen_overflows = Some(30);
    assert_eq!(world.tick(|_| {}).overflow_rate, None, "it may be another listener's");
    assert_eq!(world.tick(|view| view.backlog = None).overflow_rate, None, "nothing ever waited here");
    let used = |view: &mut ListenerView| (view.backlog, view.depth) = (None, 5);
    assert_eq!(world.tick(used).overflow_rate, Some(3.0));
}

#[test]
fn a_listener_that_is_gone_is_forgotten() {
    let mut world = World::counted(4);
    world.tick(|view| flow(view, 5, 0, 9));
    world.history.absorb(&Observation::default(), Instant::ZERO.after(Duration::from_secs(60)), |_, _| {});
    assert!(world.history.tracks.is_empty());
}
