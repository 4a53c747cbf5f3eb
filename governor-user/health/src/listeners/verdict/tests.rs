//! The field cases as rows: what each situation is called, and that it asks for no wrong action.

use super::*;
use crate::listeners::evidence::PoolWork;
use governor_observation::NamespaceCounters;
use governor_observation::vitals::Descriptors;

fn of(evidence: &Evidence) -> Verdict {
    Verdict::of(evidence, &Thresholds::default())
}

/// A listener that has been watched for 10 s.
fn quiet(backlog: u32) -> Evidence {
    Evidence {
        backlog: Some(backlog),
        somaxconn: Some(4096),
        window_seconds: 10.0,
        enqueued: Some(0),
        accepted: Some(0),
        overflows: Some(0),
        no_accept_seconds: Some(0.0),
        conntrack: Conntrack::Absent,
        ..Evidence::default()
    }
}

/// 200 at once, accepted within 0.1 s (S21 a).
fn burst(backlog: u32) -> Evidence {
    Evidence {
        depth_max: backlog + 1,
        enqueued: Some(200),
        accepted: Some(200),
        overflows: Some(71),
        accept_rate: Some(2000.0),
        longest_wait_seconds: 0.1,
        drained_seconds: Some(0.1),
        ..quiet(backlog)
    }
}

/// 500 a second come, 100 are accepted (S21 b).
fn sustained() -> Evidence {
    Evidence {
        depth: 129,
        depth_max: 129,
        enqueued: Some(1000),
        accepted: Some(1000),
        overflows: Some(4000),
        accept_rate: Some(100.0),
        waiting_seconds: 8.0,
        longest_wait_seconds: 8.0,
        oldest_seconds: Some(1.28),
        standing_seconds: Some(1.2),
        standing_for_seconds: 7.9,
        ..quiet(128)
    }
}

/// 5 clients that left, and nothing accepts (S06).
fn stalled() -> Evidence {
    Evidence {
        depth: 5,
        depth_max: 5,
        abandoned: Some(5),
        waiting_seconds: 12.0,
        longest_wait_seconds: 12.0,
        no_accept_seconds: Some(12.0),
        oldest_seconds: Some(12.0),
        standing_seconds: Some(12.0),
        standing_for_seconds: 11.9,
        ..quiet(64)
    }
}

fn half_open(sent: u64, received: u64, cookies: u64, refused: u64) -> Evidence {
    let namespace = NamespaceCounters {
        syncookies_sent: Some(sent),
        syncookies_received: Some(received),
        request_queue_full_cookies: Some(cookies),
        request_queue_full_drops: Some(refused),
        listen_drops: Some(refused),
        ..NamespaceCounters::default()
    };
    Evidence { namespace, ..quiet(8) }
}

fn work(pool: PoolWork, saturated_seconds: f64) -> Evidence {
    let pool = PoolWork { waiting_seconds: saturated_seconds, ..pool };
    let work = Work { counted: 40, cap: 1000, saturated_seconds, node_full_seconds: 0.0, pool: Some(pool) };
    Evidence { work: Some(work), ..quiet(128) }
}

fn full_pool() -> PoolWork {
    PoolWork {
        name: "chat".into(),
        capacity: 8,
        in_flight: 8,
        parked: 32,
        members: 2,
        usable: 2,
        oldest_seconds: Some(0.2),
        ..PoolWork::default()
    }
}

#[test]
fn s03_overflow_counts_while_the_proxy_is_idle() {
    let idle = Work { counted: 0, cap: 1000, ..Work::default() };
    let pegged = Evidence {
        depth: 512,
        overflows: Some(250),
        waiting_seconds: 0.3,
        longest_wait_seconds: 0.3,
        drained_seconds: None,
        work: Some(idle),
        ..burst(511)
    };
    assert_eq!(of(&pegged), Verdict::Burst);
    let text = of(&pegged).sentence(&pegged);
    assert!(text.contains("250 attempts") && text.contains("not clients"), "{text}");
    assert!(text.contains("511") && text.contains("4096"), "the limit stands beside what the namespace allows: {text}");
}

#[test]
fn s04_half_open_floods_are_no_overload_and_ask_for_no_longer_backlog() {
    for (row, expected) in [
        (half_open(11, 0, 11, 0), Verdict::HalfOpenPressure),
        (half_open(0, 0, 0, 11), Verdict::HalfOpenPressure),
        (half_open(20, 0, 20, 0), Verdict::HalfOpenPressure),
        (Evidence { depth: 3, depth_max: 3, enqueued: Some(480), ..half_open(500, 480, 500, 0) }, Verdict::Burst),
        (half_open(500, 480, 500, 0), Verdict::Ok),
    ] {
        assert_eq!(of(&row), expected, "{row:?}");
        assert_eq!(of(&row).wants_longer_backlog(&row), expected == Verdict::Burst);
    }
    let critical = half_open(0, 0, 0, 11);
    assert!(of(&critical).sentence(&critical).contains("11 SYNs were refused"));
    assert!(of(&critical).remedy(&critical).contains("tcp_syncookies=1"));
}

#[test]
fn cookies_and_refusals_of_a_neighbour_blame_only_listeners_that_were_crowded() {
    let beside = |depth, came, backlog| Evidence {
        backlog: Some(backlog),
        depth_max: depth,
        enqueued: Some(came),
        ..half_open(500, 480, 500, 0)
    };
    for (row, expected) in [
        (beside(4, 40, 1024), Verdict::Ok),
        (beside(4, 40_000, 1024), Verdict::Ok),
        (beside(300, 40, 1024), Verdict::Ok),
        (beside(300, 1_100, 1024), Verdict::Burst),
    ] {
        assert_eq!(of(&row), expected, "{row:?}");
    }
}

#[test]
fn a_queue_that_refused_was_full_however_rarely_it_was_read() {
    let refused = Evidence { depth_max: 0, overflows: Some(1), backlog: Some(5), ..burst(5) };
    let text = Verdict::Burst.sentence(&refused);
    assert!(text.starts_with("the accept queue of 6 connections was full") && !text.contains("up to 0"), "{text}");
    assert!(!text.contains("listen()"), "a backlog that the tuner raised is not the owner's: {text}");
}

#[test]
fn s05_a_full_connection_tracking_table_is_named_and_no_backlog_helps() {
    let full = Evidence { conntrack: Conntrack::Table { count: 262_144, max: 262_144 }, ..quiet(4096) };
    assert_eq!(of(&full), Verdict::Misconfigured);
    assert!(of(&full).sentence(&full).contains("before TCP"));
    assert!(!of(&full).wants_longer_backlog(&full));
    let unknown = Evidence { conntrack: Conntrack::Unknown, ..full };
    assert_eq!(of(&unknown), Verdict::Ok, "what cannot be read is held against nobody");
}

#[test]
fn s06_dead_connections_nobody_accepts_are_a_stalled_acceptor() {
    assert_eq!(of(&stalled()), Verdict::AcceptorStalled);
    assert_eq!(
        Verdict::AcceptorStalled.sentence(&stalled()),
        "5 of at most 65 connections wait and nothing was accepted for 12 s; 5 of them were given up by their clients"
    );
    let full = Evidence { depth: 65, depth_max: 65, overflows: Some(90), ..stalled() };
    assert_eq!(of(&full), Verdict::AcceptorStalled, "also when it overflows");
}

#[test]
fn s07_exhausted_descriptors_win_over_the_stall_they_cause() {
    let descriptors = |open| Some(Descriptors { pid: 71, open, limit: 64 });
    let exhausted = Evidence { abandoned: Some(0), descriptors: descriptors(64), ..stalled() };
    assert_eq!(of(&exhausted), Verdict::FdExhausted);
    assert!(of(&exhausted).sentence(&exhausted).contains("process 71 has 64 of 64 descriptors"));
    assert_eq!(of(&Evidence { descriptors: descriptors(63), ..stalled() }), Verdict::AcceptorStalled);
    let idle = Evidence { descriptors: descriptors(64), ..quiet(64) };
    assert_eq!(of(&idle), Verdict::Ok, "nobody waits for a descriptor");
}

#[test]
fn s18_a_limit_below_the_queue_is_judged_by_what_waits() {
    let lowered = Evidence { depth: 5, depth_max: 5, waiting_seconds: 0.2, longest_wait_seconds: 0.2, ..quiet(1) };
    assert_eq!(of(&lowered), Verdict::Burst);
}

#[test]
fn s20_a_backlog_of_zero_is_flagged() {
    assert_eq!(of(&quiet(0)), Verdict::Misconfigured);
    assert!(Verdict::Misconfigured.wants_longer_backlog(&quiet(0)));
    assert_eq!(of(&quiet(1)), Verdict::Ok);
}

#[test]
fn s21_a_queue_that_drains_is_a_burst_and_one_that_stands_is_starved() {
    assert_eq!(of(&burst(128)), Verdict::Burst);
    assert!(Verdict::Burst.wants_longer_backlog(&burst(128)));
    assert_eq!(of(&sustained()), Verdict::AcceptStarved);
    assert!(!Verdict::AcceptStarved.wants_longer_backlog(&sustained()));
    let text = Verdict::AcceptStarved.sentence(&sustained());
    assert!(text.contains("1.2 s or longer") && text.contains("100 a second"), "{text}");

    // The flood pauses: what it filled the queue with in the window has not been a burst.
    let pause = Evidence {
        depth: 0,
        waiting_seconds: 0.0,
        standing_seconds: None,
        standing_for_seconds: 0.0,
        oldest_seconds: None,
        drained_seconds: Some(8.0),
        ..sustained()
    };
    assert_eq!(of(&pause), Verdict::AcceptStarved);
}

#[test]
fn where_the_backlog_is_unknown_only_what_is_known_counts() {
    let procfs = Evidence { depth: 500, depth_max: 500, waiting_seconds: 9.0, ..Evidence::default() };
    assert_eq!(of(&procfs), Verdict::Ok);
    assert_eq!(Verdict::Ok.sentence(&procfs), "500 connections wait in the accept queue");
}

#[test]
fn requests_that_wait_for_slots_are_no_matter_of_the_accept_queue() {
    assert_eq!(of(&work(full_pool(), 1.0)), Verdict::Ok, "for a moment");
    let saturated = work(full_pool(), 30.0);
    assert_eq!(of(&saturated), Verdict::InflightSaturated);
    assert_eq!(
        Verdict::InflightSaturated.sentence(&saturated),
        "the pool chat has been full for 30 s; 32 requests wait, the oldest for 200 ms; 8 of 8 slots are held"
    );
    assert_eq!(of(&Evidence { work: saturated.work, ..sustained() }), Verdict::InflightSaturated);
}

#[test]
fn slots_held_for_longer_than_usual_or_cooling_members_are_a_slow_upstream() {
    let slow = |now, usual| PoolWork { service_seconds: now, usual_seconds: usual, ..full_pool() };
    assert_eq!(of(&work(slow(Some(9.0), Some(3.0)), 30.0)), Verdict::UpstreamSlow);
    assert_eq!(of(&work(slow(Some(5.0), Some(3.0)), 30.0)), Verdict::InflightSaturated);
    assert_eq!(of(&work(slow(Some(9.0), None), 30.0)), Verdict::InflightSaturated, "nothing to compare with");
    let cooling = work(PoolWork { cooling: 1, ..full_pool() }, 30.0);
    assert_eq!(of(&cooling), Verdict::UpstreamSlow);
    assert!(Verdict::UpstreamSlow.sentence(&cooling).contains("1 of 2 members are cooling"));
}

#[test]
fn members_that_fail_are_an_upstream_that_is_down() {
    let dead = |failing, down_seconds| PoolWork {
        parked: 0,
        members: 14,
        usable: 14,
        cooling: 13,
        failing,
        down_seconds,
        ..full_pool()
    };
    let down = work(dead(14, 42.0), 0.0);
    assert_eq!(of(&down), Verdict::UpstreamDown, "no request waits: clients get errors at once");
    assert_eq!(
        Verdict::UpstreamDown.sentence(&down),
        "the upstream has failed for 42 s: 13 of 14 members of the pool chat are cooling, and the one kept in use fails too"
    );
    assert_eq!(of(&work(dead(13, 1.9), 0.0)), Verdict::Ok, "for a moment");
    assert!(!Verdict::UpstreamDown.wants_longer_backlog(&down) && Verdict::UpstreamDown.is_trouble());
}

#[test]
fn free_slots_and_pauses_are_told_as_they_are() {
    let pool = PoolWork { in_flight: 6, parked: 1, waiting_seconds: 12.0, oldest_seconds: Some(3.0), ..full_pool() };
    assert_eq!(
        pool.saturation(),
        "requests have queued for the pool chat for 12 s; 1 request waits, for 3.0 s; 6 of 8 slots are held"
    );
    let refuses = PoolWork { parked: 0, refused: 7, waiting_seconds: 12.0, ..full_pool() };
    assert_eq!(
        refuses.saturation(),
        "the pool chat has been full for 12 s; 7 requests were refused in the last 10 s; 8 of 8 slots are held"
    );
    let full = Work { counted: 9, cap: 9, saturated_seconds: 30.0, node_full_seconds: 30.0, pool: Some(full_pool()) };
    let node = Evidence { work: Some(full), ..quiet(128) };
    assert_eq!(of(&node).sentence(&node), "the node has had 9 of at most 9 requests for 30 s");
}

#[test]
fn every_verdict_has_a_name_of_its_own_a_sentence_and_a_remedy() {
    let names: std::collections::BTreeSet<_> = Verdict::ALL.iter().map(|verdict| verdict.as_str()).collect();
    assert_eq!(names.len(), Verdict::ALL.len());
    for verdict in Verdict::ALL {
        assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.as_str());
        assert!(verdict.remedy(&quiet(8)).ends_with('.'));
    }
}
