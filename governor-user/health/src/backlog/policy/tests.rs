//! The policy in virtual time, against a queue that is simulated to the millisecond: cases S18 to S21.

use super::*;
use crate::backlog::TunerMode;

const POLICY: ListenerPolicy = ListenerPolicy {
    mode: TunerMode::Enforce,
    target: 1024,
    max: 4096,
    max_wait: Duration::from_millis(500),
    quiet: Duration::from_secs(600),
};

const FREE: Bounds = Bounds { somaxconn: Some(4096), raise_somaxconn: false, room: 4096 };

/// A listener, its acceptor and its clients. Refused clients do not come back.
struct World {
    ms: u64,
    backlog: u32,
    depth: u32,
    peak: u32,
    enqueued: u64,
    accepted: u64,
    overflows: u64,
    /// Accepts per second.
    rate: u64,
    /// Parts of an accept that are not whole yet.
    credit: u64,
    track: Track,
    bounds: Bounds,
    hindrance: Option<Hindrance>,
    /// When the process that holds it started.
    process: u64,
    /// What was done, and when.
    done: Vec<(u64, Order)>,
}

impl World {
    fn new(backlog: u32, rate: u64) -> Self {
        let mut world = Self {
            ms: 0,
            backlog,
            depth: 0,
            peak: 0,
            enqueued: 0,
            accepted: 0,
            overflows: 0,
            rate,
            credit: 0,
            track: Track::new(backlog, Instant::ZERO),
            bounds: FREE,
            hindrance: None,
            process: 1,
            done: Vec::new(),
        };
        world.tick();
        world
    }

    fn now(&self) -> Instant {
        Instant(self.ms * 1_000_000)
    }

    /// Lets `ms` milliseconds pass with so many arrivals in each.
    fn pass(&mut self, ms: u64, arrivals: impl Fn(u64) -> u32) {
        for n in 0..ms {
            for _ in 0..arrivals(n) {
                if self.depth > self.backlog {
                    self.overflows += 1;
                } else {
                    self.depth += 1;
                    self.enqueued += 1;
                    self.peak = self.peak.max(self.depth);
                }
            }
            self.credit += self.rate;
            while self.credit >= 1000 && self.depth > 0 {
                self.credit -= 1000;
                self.depth -= 1;
                self.accepted += 1;
            }
            self.credit = self.credit.min(1000);
            self.ms += 1;
            if self.ms.is_multiple_of(100) {
                self.tick();
            }
        }
    }

    fn tick(&mut self) {
        let sample = Sample {
            at: self.now(),
            backlog: self.backlog,
            depth: self.depth,
            peak: Some(self.peak),
            enqueued: Some(self.enqueued),
            accepted: Some(self.accepted),
            overflows: Some(self.overflows),
        };
        let process = self.process;
        let Some(order) = self.track.step(sample, || self.hindrance, &POLICY, &self.bounds, || Some(process)) else {
            return;
        };
        match order {
            Order::Raise(to) | Order::Lower(to) | Order::Reapply(to) => {
                self.backlog = to.min(self.bounds.somaxconn.unwrap_or(u32::MAX));
                self.track.done(&order, self.backlog, self.now(), Some(process));
            }
            Order::Verify => drop(self.track.verified(self.backlog, self.now())),
            Order::Clamped | Order::StandDown => {}
        }
        self.done.push((self.ms, order));
    }

    fn burst(&mut self, clients: u32) {
        self.pass(2000, |ms| if ms == 30 { clients } else { 0 });
    }

    fn raises(&self) -> Vec<u32> {
        let raised = |(_, order): &(u64, Order)| match order {
            Order::Raise(to) => Some(*to),
            Order::Clamped | Order::Lower(_) | Order::Verify | Order::Reapply(_) | Order::StandDown => None,
        };
        self.done.iter().filter_map(raised).collect()
    }
}

#[test]
fn a_burst_that_overflows_and_drains_in_time_gets_room() {
    let mut world = World::new(128, 2000);
    world.burst(200);
    assert!(world.overflows > 0);
    let raised = world.raises();
    assert!(raised.len() == 1 && (200..=1000).contains(&raised[0]), "{raised:?}: 2000/s drain 1000 in half a second");
    let before = world.overflows;
    world.burst(200);
    assert_eq!(world.overflows, before);
    assert_eq!(world.track.plan.limit, Some(Limit::Rate));
}

#[test]
fn a_tiny_backlog_grows_with_what_its_acceptor_is_seen_to_do() {
    let mut world = World::new(5, 2000);
    for _ in 0..6 {
        world.burst(200);
    }
    let before = world.overflows;
    world.burst(200);
    assert_eq!(world.overflows, before, "{:?}", world.done);
    assert!(world.raises().is_sorted() && world.backlog <= 1024, "{:?}", world.done);
}

#[test]
fn sustained_overload_is_no_burst() {
    for backlog in [5, 128] {
        let mut world = World::new(backlog, 100);
        world.pass(30_000, |ms| u32::from(ms % 2 == 0));
        world.pass(5_000, |_| 0);
        assert_eq!(world.raises(), [0; 0], "backlog {backlog}");
        assert!(world.track.plan.reason.contains("stands") || world.track.plan.to.is_none(), "{:?}", world.track.plan);
    }
}

#[test]
fn a_fill_above_eighty_percent_is_enough() {
    let mut world = World::new(128, 2000);
    world.burst(100);
    assert_eq!(world.raises(), [0; 0], "100 of 129");
    world.burst(110);
    assert_eq!((world.raises().len(), world.overflows), (1, 0));
}

#[test]
fn nobody_is_given_room_where_it_does_not_help() {
    for hindrance in [
        Hindrance::StandingQueue,
        Hindrance::AcceptorStalled,
        Hindrance::DescriptorsExhausted,
        Hindrance::HalfOpenPressure,
    ] {
        let mut world = World::new(128, 2000);
        world.hindrance = Some(hindrance);
        world.burst(200);
        assert_eq!(world.done, []);
        assert!(world.track.plan.reason.starts_with(hindrance.as_str()), "{:?}", world.track.plan);
    }
    let mut stalled = World::new(5, 0);
    stalled.burst(200);
    assert_eq!(stalled.done, []);
    assert!(stalled.track.plan.reason.starts_with("nothing is accepted"), "{:?}", stalled.track.plan);
    let mut rare = World::new(2, 2000);
    rare.burst(4);
    assert_eq!(rare.done, [], "three accepts tell no rate");
    assert!(rare.track.plan.reason.starts_with("too few"), "{:?}", rare.track.plan);
}

#[test]
fn drops_for_other_reasons_ask_for_nothing() {
    let mut world = World::new(128, 2000);
    world.pass(5_000, |ms| u32::from(ms % 10 == 0));
    assert_eq!((world.done.len(), world.track.plan.clone()), (0, Plan::default()));
}

#[test]
fn the_cap_is_the_namespaces_and_an_unknown_one_is_not_guessed() {
    let mut world = World::new(128, 4000);
    world.bounds.somaxconn = Some(128);
    world.burst(200);
    assert_eq!(world.done.iter().map(|(_, order)| order.clone()).collect::<Vec<_>>(), [Order::Clamped]);
    assert_eq!((world.track.plan.limit, world.track.plan.wanted), (Some(Limit::Somaxconn), Some(1024)));
    for bounds in [Bounds { somaxconn: Some(128), raise_somaxconn: true, ..FREE }, Bounds { somaxconn: None, ..FREE }] {
        let mut world = World::new(128, 4000);
        world.bounds = bounds;
        world.burst(200);
        assert!(world.raises()[0] > 200, "{bounds:?}");
    }
}

#[test]
fn a_value_that_the_kernel_clamped_is_what_counts() {
    let mut world = World::new(4, 4000);
    world.bounds.somaxconn = None;
    for _ in 0..2 {
        world.burst(200);
    }
    world.bounds.somaxconn = Some(64);
    // Read back, so it is not taken for a foreign call.
    world.track.done(&Order::Raise(1000), 64, world.now(), None);
    world.backlog = 64;
    world.pass(5_000, |_| 0);
    assert_eq!((world.track.held, world.track.set, world.track.stance), (64, Some(64), Stance::Free));
}

#[test]
fn memory_and_the_configured_most_bound_a_raise() {
    let mut world = World::new(128, 20_000);
    world.bounds.room = 100;
    world.burst(400);
    assert_eq!((world.raises(), world.track.plan.limit), (vec![228], Some(Limit::Memory)));
    let mut world = World::new(4000, 60_000);
    world.bounds = Bounds { somaxconn: Some(100_000), raise_somaxconn: false, room: 100_000 };
    world.burst(9000);
    assert_eq!(world.raises(), [0; 0], "96 more are not worth a call");
    assert_eq!(world.track.plan.limit, Some(Limit::Max));
}

#[test]
fn a_raise_is_taken_back_after_quiet_and_never_below_what_the_owner_asked_for() {
    let mut world = World::new(128, 2000);
    world.burst(200);
    let raised = world.backlog;
    world.pass(590_000, |ms| u32::from(ms % 500 == 0));
    assert_eq!(world.backlog, raised);
    world.pass(20_000, |_| 0);
    assert_eq!((world.backlog, world.track.set), (128, None));
    world.pass(2_000_000, |_| 0);
    assert_eq!(world.done.len(), 2, "{:?}", world.done);
}

#[test]
fn alternating_patterns_do_not_make_it_flap() {
    let mut world = World::new(128, 2000);
    // A burst every eleven minutes, just after a raise would be taken back; overload in between.
    for _ in 0..60 {
        world.burst(200);
        world.rate = 100;
        world.pass(20_000, |ms| u32::from(ms % 2 == 0));
        world.rate = 2000;
        world.pass(640_000, |_| 0);
    }
    assert!(world.done.len() <= 12, "11 hours: {:?}", world.done);
}

#[test]
fn a_reload_is_put_back_once_for_each_process() {
    let mut world = World::new(128, 2000);
    world.burst(200);
    let raised = world.backlog;
    for process in 1..=3 {
        world.process = process;
        world.backlog = 128;
        world.pass(100, |_| 0);
        assert!(matches!(world.track.stance, Stance::Reverted(_)), "noticed within one tick");
        world.pass(1_100, |_| 0);
        assert_eq!((world.backlog, world.track.stance), (raised, Stance::Free), "put back after a pause");
    }
    // The same process once more: it insists.
    world.backlog = 128;
    world.pass(20_000, |_| 0);
    assert_eq!((world.backlog, world.track.stance), (128, Stance::StoodDown));
    let calls = world.done.len();
    for _ in 0..5 {
        world.burst(200);
    }
    assert_eq!(world.done.len(), calls, "no tug-of-war");
}

#[test]
fn a_new_value_is_the_operator_until_told_to_resume() {
    let mut world = World::new(128, 2000);
    world.burst(200);
    world.backlog = 200;
    world.pass(100, |_| 0);
    assert_eq!(world.track.stance, Stance::StoodDown);
    let calls = world.done.len();
    world.burst(400);
    world.pass(700_000, |_| 0);
    assert_eq!((world.done.len(), world.backlog), (calls, 200), "neither raised nor lowered");
    world.track.resume(world.now());
    world.burst(400);
    assert!(world.backlog > 400, "{:?}", world.done);
    assert_eq!(world.track.original, 200);
}

#[test]
fn a_table_older_than_the_call_is_no_foreign_call() {
    let mut world = World::new(128, 2000);
    world.burst(200);
    let raised = world.backlog;
    let stale = Sample { at: world.now().after(PAUSE), backlog: 128, ..Sample::default() };
    let order = world.track.step(stale, || None, &POLICY, &FREE, || Some(1));
    assert_eq!(order, Some(Order::Verify));
    assert_eq!(world.track.verified(raised, stale.at), Foreign::Unchanged);
    assert_eq!(world.track.stance, Stance::Free);
}

#[test]
fn an_owner_who_changes_it_before_anything_was_done_is_the_owner_still() {
    let mut world = World::new(128, 2000);
    world.backlog = 64;
    world.pass(200, |_| 0);
    assert_eq!((world.track.original, world.track.stance), (64, Stance::Free));
}

#[test]
fn what_fails_is_tried_again_ever_more_rarely() {
    let mut track = Track::new(5, Instant::ZERO);
    let waits: Vec<u64> = (0..12)
        .map(|_| {
            track.failed(Instant::ZERO);
            track.not_before.since(Instant::ZERO).as_secs()
        })
        .collect();
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
}

#[test]
fn the_others_of_a_group_get_as_much_as_the_one_that_needs_it() {
    let track = Track::new(128, Instant::ZERO);
    assert_eq!(track.follows(500, &FREE), Some(500));
    assert_eq!(track.follows(100, &FREE), None);
    assert_eq!(track.follows(500, &Bounds { room: 10, ..FREE }), Some(138));
    let stood_down = Track::resumed(128, None, true, 128, Instant::ZERO);
    assert_eq!(stood_down.follows(500, &FREE), None);
}
