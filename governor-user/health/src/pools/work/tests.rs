//! A pool in virtual time, looked at every 100 ms.

use super::*;
use governor_engine::snapshot::PoolFigures;

const TICK: Duration = Duration::from_millis(100);

/// A pool of 10 slots on 2 members.
struct World {
    history: WorkHistory,
    now: Instant,
    load: PoolFigures,
    oldest: Option<Duration>,
}

impl World {
    fn new() -> Self {
        let load = PoolFigures { capacity: 10, members: 2, usable: 2, ..PoolFigures::default() };
        Self { history: WorkHistory::default(), now: Instant::ZERO, load, oldest: None }
    }

    fn tick(&mut self) -> Work {
        self.now = self.now.after(TICK);
        let pool = NamedLoad { name: "chat".into(), load: self.load, oldest: self.oldest };
        let counted = self.load.in_flight + self.load.parked;
        let loads = Loads { counted, cap: 100, pools: vec![pool], ..Loads::default() };
        let pools = self.history.absorb(&loads, self.now);
        self.history.work(&loads, &pools, self.now)
    }

    /// So many seconds in which `a_second` requests end that have held their slot for `each`.
    fn run(&mut self, seconds: u64, a_second: u64, each: Duration) -> PoolWork {
        let mut work = Work::default();
        for _ in 0..seconds {
            for tick in 0..10 {
                let ends = a_second * (tick + 1) / 10 - a_second * tick / 10;
                self.load.ended += ends;
                self.load.held += each * u32::try_from(ends).unwrap();
                work = self.tick();
            }
        }
        work.pool.unwrap()
    }
}

fn near(a: Option<f64>, b: f64) -> bool {
    a.is_some_and(|a| (a - b).abs() < 1e-6)
}

#[test]
fn a_pool_that_slows_down_is_compared_with_how_it_was() {
    let mut world = World::new();
    world.load.in_flight = 5;
    let usual = world.run(60, 5, Duration::from_secs(1));
    assert!(near(usual.service_seconds, 1.0) && near(usual.usual_seconds, 1.0), "{usual:?}");
    (world.load.in_flight, world.load.parked) = (10, 7);
    let slow = world.run(30, 2, Duration::from_secs(5));
    assert!(near(slow.service_seconds, 5.0) && near(slow.usual_seconds, 1.0), "{slow:?}");
}

#[test]
fn traffic_after_a_quiet_spell_is_as_fast_as_before() {
    let mut world = World::new();
    world.load.in_flight = 5;
    world.run(60, 5, Duration::from_millis(1_400));
    world.load.in_flight = 0;
    world.run(300, 0, Duration::ZERO);
    // The pool is full at once; the first of its requests end after 1.4 s.
    (world.load.in_flight, world.load.parked) = (10, 4);
    world.run(1, 0, Duration::ZERO);
    for _ in 0..20 {
        let pool = world.run(1, 7, Duration::from_millis(1_400));
        assert!(pool.service_seconds.is_none() || near(pool.service_seconds, 1.4), "{pool:?}");
    }
}

#[test]
fn the_usual_time_is_not_learnt_from_failing_members() {
    let mut world = World::new();
    world.load.in_flight = 5;
    world.run(60, 5, Duration::from_secs(1));
    world.load.failing = 1;
    let pool = world.run(120, 50, Duration::from_millis(2));
    assert!(near(pool.usual_seconds, 1.0), "{pool:?}");
}

#[test]
fn a_pool_is_saturated_while_requests_wait_whatever_is_free() {
    let mut world = World::new();
    (world.load.in_flight, world.load.parked) = (9, 5);
    let constant = (0..600).map(|tick| {
        // Headroom keeps a slot free now and then, and for a moment no request waits.
        world.load.in_flight = 8 + tick % 3;
        world.load.parked = if tick % 40 < 15 { 0 } else { 5 };
        world.tick().saturated_seconds
    });
    let constant: Vec<f64> = constant.collect();
    assert!(constant.windows(2).skip(40).all(|pair| pair[1] > pair[0]), "it never ends");
    (world.load.in_flight, world.load.parked) = (10, 0);
    let after: Vec<f64> = (0..60).map(|_| world.tick().saturated_seconds).collect();
    assert_eq!(after.last(), Some(&0.0), "full and no request waits");
}

#[test]
fn refusals_for_want_of_a_slot_saturate_too() {
    let mut world = World::new();
    world.load.in_flight = 10;
    assert_eq!(world.tick().saturated_seconds, 0.0);
    let mut work = Work::default();
    for _ in 0..50 {
        world.load.refused += 1;
        work = world.tick();
    }
    assert!(work.saturated_seconds > 4.0, "{work:?}");
    assert_eq!(work.pool.unwrap().refused, 50);
}

#[test]
fn the_oldest_wait_is_not_the_time_for_which_the_pool_is_full() {
    let mut world = World::new();
    (world.load.in_flight, world.load.parked, world.oldest) = (10, 13, Some(Duration::from_millis(200)));
    let pool = world.run(12, 40, Duration::from_millis(250));
    assert!((pool.waiting_seconds - 11.9).abs() < 0.01, "{pool:?}");
    assert_eq!((pool.parked, pool.oldest_seconds), (13, Some(0.2)));
}

#[test]
fn without_ends_no_service_time_is_known() {
    let mut world = World::new();
    (world.load.in_flight, world.load.parked) = (10, 3);
    let pool = world.run(20, 0, Duration::ZERO);
    assert_eq!((pool.service_seconds, pool.usual_seconds), (None, None));
}

#[test]
fn a_pool_whose_upstream_is_down_matters_more_than_a_full_one() {
    let mut history = WorkHistory::default();
    let pool = |name: &str, load| NamedLoad { name: name.into(), load, oldest: None };
    let full = PoolFigures { capacity: 4, in_flight: 4, parked: 30, usable: 2, ..PoolFigures::default() };
    let dead = PoolFigures { capacity: 1, usable: 14, failing: 13, cooling: 13, ..PoolFigures::default() };
    let loads = Loads { pools: vec![pool("full", full), pool("dead", dead)], ..Loads::default() };
    history.absorb(&loads, Instant::ZERO);
    let now = Instant::ZERO.after(Duration::from_secs(3));
    let pools = history.absorb(&loads, now);
    let work = history.work(&loads, &pools, now);
    assert_eq!(work.pool.map(|pool| (pool.name, pool.down_seconds)), Some(("dead".to_owned(), 3.0)));
}
