//! One situation each: what happens on the machine, what the tuner does, and what it records.

use crate::machine::{Machine, POLICY, config};
use TunerAction::{
    Clamped, Failed, Lower, Raise, Reapply, Restore, Resume, Reverted, SetMode, Somaxconn, StandDown, WouldRaise,
};
use governor_health::Evidence;
use governor_health::backlog::plan::Limit;
use governor_health::backlog::tuner::{Input, Output};
use governor_health::backlog::{AtExit, ListenerPolicy, Selector, TunerAction, TunerConfig, TunerMode};

/// One whose backlog a burst has raised from 128 to 645: what its acceptor takes out of it in half a second.
fn raised(config: TunerConfig) -> Machine {
    let mut machine = Machine::with_one(config);
    machine.burst(1, 200);
    assert_eq!(machine.recorded(), [(Raise, 128, 645)]);
    machine
}

#[test]
fn a_burst_that_overflows_is_answered_with_a_longer_backlog() {
    let machine = raised(config());
    assert_eq!(machine.backlog(1), 645);
    let figures = machine.tuner.figures();
    assert_eq!((figures.raised, figures.added), (1, 517));
}

#[test]
fn observing_records_each_longer_backlog_once_and_touches_nothing() {
    let policy = ListenerPolicy { mode: TunerMode::Observe, ..POLICY };
    let mut machine = Machine::with_one(TunerConfig { global: policy, ..config() });
    for _ in 0..3 {
        machine.burst(1, 200);
        machine.pass(2);
    }
    assert_eq!(machine.recorded(), [(WouldRaise, 128, 645)]);
    assert_eq!(machine.backlog(1), 128);
}

#[test]
fn a_namespace_that_allows_no_more_is_named_once() {
    let mut machine = Machine::with_one(config());
    machine.somaxconn.insert(1, 128);
    for _ in 0..3 {
        machine.burst(1, 200);
        machine.pass(2);
    }
    let records = machine.records();
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!((records[0].action, records[0].limit, records[0].wanted), (Clamped, Some(Limit::Somaxconn), Some(1024)));
    assert!(records[0].reason.starts_with("clamped: 128, needs net.core.somaxconn raised"), "{}", records[0].reason);
    assert_eq!(machine.tuner.figures().clamped, 1);
}

#[test]
fn somaxconn_is_raised_first_where_that_is_allowed_and_goes_back_at_the_stop() {
    let config = TunerConfig { raise_somaxconn: true, at_exit: AtExit::Restore, ..config() };
    let mut machine = Machine::with_one(config);
    machine.somaxconn.insert(1, 128);
    machine.tick();
    machine.burst(1, 200);
    assert_eq!(machine.recorded(), [(Somaxconn, 128, 645), (Raise, 128, 645)]);
    assert_eq!((machine.memory.caps.len(), machine.somaxconn[&1]), (1, 645));
    machine.take(Input::Stop);
    assert_eq!(machine.outputs.last(), Some(&Output::Stopped));
    assert_eq!(machine.recorded(), [(Somaxconn, 645, 128), (Restore, 645, 128)]);
    assert_eq!((machine.memory.listeners.len(), machine.memory.caps.len(), machine.somaxconn[&1]), (0, 0, 128));
}

#[test]
fn what_another_hand_set_before_the_stop_stays() {
    let mut machine = raised(TunerConfig { at_exit: AtExit::Restore, ..config() });
    machine.listen(1, 300);
    machine.take(Input::Stop);
    assert_eq!((machine.recorded(), machine.backlog(1)), (vec![], 300));
    let mut machine = raised(config());
    machine.take(Input::Stop);
    assert_eq!((machine.recorded(), machine.backlog(1)), (vec![], 645), "at_exit = keep");
}

#[test]
fn a_missing_right_is_recorded_once_and_tried_again_more_and_more_rarely() {
    let mut machine = Machine::with_one(config());
    machine.listeners.get_mut(&1).unwrap().is_denied = true;
    let mut attempts = 0;
    for _ in 0..60 {
        machine.burst(1, 200);
        attempts += machine.outputs.iter().filter(|output| matches!(output, Output::Act(_))).count();
        let records = machine.records();
        assert!(records.len() <= 1, "{records:?}");
        machine.pass(1);
    }
    assert!((3..=8).contains(&attempts), "{attempts} in a minute");
    let obstacle = machine.tuner.listeners().next().unwrap().obstacle(None);
    assert!(obstacle.unwrap().contains("not permitted"));
}

#[test]
fn a_holder_that_is_not_known_yet_is_no_failure() {
    let mut machine = Machine::with_one(config());
    machine.listeners.get_mut(&1).unwrap().view.pids.clear();
    machine.burst(1, 200);
    assert_eq!(machine.recorded(), []);
    machine.listeners.get_mut(&1).unwrap().view.pids.push(7);
    machine.pass(2);
    machine.burst(1, 200);
    assert_eq!(machine.recorded(), [(Raise, 128, 645)]);
    machine.listeners.get_mut(&1).unwrap().is_denied = true;
    machine.burst(1, 4000);
    assert_eq!(machine.recorded().len(), 0, "orders are a second apart");
    machine.pass(1);
    machine.burst(1, 4000);
    assert_eq!(machine.recorded(), [(Failed, 645, 645)]);
}

#[test]
fn a_reload_is_made_good_once_for_each_process() {
    let mut machine = raised(config());
    machine.pass(2);
    machine.listen(1, 128);
    machine.tick();
    assert_eq!(machine.recorded(), [(Reverted, 645, 128)]);
    machine.pass(2);
    assert_eq!((machine.recorded(), machine.backlog(1)), (vec![(Reapply, 128, 645)], 645));
    machine.pass(2);
    // The same process insists.
    machine.listen(1, 128);
    machine.pass(20);
    assert_eq!(machine.recorded(), [(Reverted, 645, 128), (StandDown, 645, 128)]);
    assert_eq!(machine.tuner.figures().stood_down, 1);
}

#[test]
fn a_reload_by_a_new_process_is_made_good_again() {
    let mut machine = raised(config());
    for pid in 8..11 {
        machine.pass(2);
        machine.recorded();
        machine.started.insert(pid, u64::from(pid));
        machine.listeners.get_mut(&1).unwrap().view.pids = vec![pid];
        machine.listen(1, 128);
        machine.pass(2);
        assert_eq!(machine.recorded(), [(Reverted, 645, 128), (Reapply, 128, 645)], "process {pid}");
    }
}

#[test]
fn a_new_value_is_the_operators_until_the_tuner_is_to_resume() {
    let mut machine = raised(config());
    machine.pass(2);
    machine.listen(1, 300);
    machine.tick();
    assert_eq!(machine.recorded(), [(StandDown, 645, 300)]);
    machine.burst(1, 4000);
    machine.pass(700);
    assert_eq!((machine.recorded(), machine.backlog(1)), (vec![], 300));
    machine.take(Input::Resume { which: Selector::default(), by: "uid 0".to_owned() });
    assert_eq!(machine.recorded(), [(Resume, 300, 300)]);
    machine.burst(1, 400);
    assert_eq!(machine.recorded(), [(Raise, 300, 1024)]);
}

#[test]
fn a_queue_that_a_longer_backlog_does_not_help_is_left_alone() {
    let mut machine = Machine::with_one(config());
    // Descriptors ran out a while ago.
    machine.evidence = Evidence {
        depth: 100,
        backlog: Some(128),
        descriptors: Some(governor_observation::vitals::Descriptors { pid: 7, open: 64, limit: 64 }),
        waiting_seconds: 5.0,
        no_accept_seconds: Some(5.0),
        ..Evidence::default()
    };
    machine.burst(1, 200);
    assert_eq!(machine.recorded(), []);
    let plan = machine.tuner.listeners().next().unwrap().plan().clone();
    assert!(plan.reason.starts_with("the acceptor has no descriptors left"), "{plan:?}");
}

#[test]
fn a_backlog_goes_back_after_quiet_and_never_below_what_its_owner_asked_for() {
    let mut machine = raised(config());
    machine.pass(599);
    assert_eq!(machine.recorded(), []);
    machine.pass(2);
    assert_eq!((machine.recorded(), machine.backlog(1)), (vec![(Lower, 645, 128)], 128));
    machine.pass(2000);
    assert_eq!((machine.recorded(), machine.memory.listeners.len()), (vec![], 0));
}

#[test]
fn all_raises_together_stay_within_the_memory_budget() {
    // 1 MiB is 64 connections of 16 KiB.
    let mut machine = Machine::new(TunerConfig { memory_mib: 1, ..config() });
    for cookie in 1..=3 {
        machine.open(cookie, 80, 128, 7);
    }
    machine.open(4, 81, 128, 7);
    machine.tick();
    machine.burst(1, 200);
    assert_eq!(machine.recorded(), [(Raise, 128, 192)], "the whole budget, and nothing is left for its group");
    machine.burst(4, 200);
    assert_eq!((machine.recorded(), machine.tuner.figures().added), (vec![], 64));
}

#[test]
fn every_socket_of_an_address_gets_what_one_of_them_needs() {
    let mut machine = Machine::new(config());
    for cookie in 1..=3 {
        machine.open(cookie, 80, 128, 7);
    }
    machine.open(4, 81, 128, 7);
    machine.tick();
    machine.burst(2, 200);
    let records = machine.records();
    let cookies: Vec<u64> = records.iter().map(|record| record.listener.cookie).collect();
    assert_eq!(cookies, [2, 1, 3]);
    assert!(records[1].reason.starts_with("another socket of the same address and port"), "{records:?}");
    assert_eq!(machine.backlog(4), 128);
}

#[test]
fn the_next_run_knows_what_owners_had_asked_for() {
    let mut machine = raised(config());
    machine.restart();
    machine.tick();
    let backlogs = machine.tuner.listeners().next().unwrap().backlogs();
    assert_eq!(backlogs, (128, 645));
    machine.pass(602);
    assert_eq!(machine.recorded(), [(Lower, 645, 128)]);
    // What never comes is forgotten after a while.
    let mut machine = raised(config());
    machine.restart();
    machine.listeners.clear();
    machine.tick();
    assert_eq!(machine.memory.listeners.len(), 1);
    machine.pass(61);
    assert_eq!(machine.memory.listeners.len(), 0);
}

#[test]
fn a_listener_that_closed_is_off_the_books_after_two_seconds_and_an_unread_one_after_a_minute() {
    let mut machine = raised(config());
    machine.listeners.get_mut(&1).unwrap().is_hidden = true;
    machine.tick();
    assert_eq!((machine.names().len(), machine.memory.listeners.len()), (0, 1));
    // No observation is needed for that.
    let due = machine.tuner.poll_timeout().unwrap();
    machine.tuner.handle_timeout(due);
    let kept = machine.tuner.poll_output();
    assert!(matches!(kept, Some(Output::Keep(memory)) if memory.listeners.is_empty()));

    let mut machine = raised(config());
    (machine.unread, machine.listeners.get_mut(&1).unwrap().is_hidden) = (vec![1], true);
    machine.pass(59);
    assert_eq!(machine.names().len(), 1);
    machine.pass(2);
    assert_eq!((machine.names().len(), machine.memory.listeners.len()), (0, 0));
}

#[test]
fn a_listener_that_the_table_skipped_once_goes_on_as_it_was() {
    let mut machine = raised(config());
    machine.listeners.get_mut(&1).unwrap().is_hidden = true;
    machine.tick();
    machine.listeners.get_mut(&1).unwrap().is_hidden = false;
    machine.pass(602);
    assert_eq!(machine.recorded(), [(Lower, 645, 128)]);
}

#[test]
fn a_mode_that_is_set_holds_at_once_and_restore_gives_the_first_backlog_back() {
    let policy = ListenerPolicy { mode: TunerMode::Observe, ..POLICY };
    let mut machine = Machine::with_one(TunerConfig { global: policy, ..config() });
    machine.set_mode(Selector::default(), TunerMode::Enforce);
    let outcome = machine.outcomes().pop().unwrap();
    assert_eq!((outcome.mode, outcome.failure), (TunerMode::Enforce, None));
    machine.burst(1, 200);
    assert_eq!(machine.recorded(), [(Raise, 128, 645)]);
    machine.take(Input::Restore { which: Selector::default(), by: "uid 0".to_owned() });
    let records = machine.outputs.clone();
    let outcome = machine.outcomes().pop().unwrap();
    assert_eq!((outcome.before, outcome.after, outcome.failure), (645, 128, None));
    assert!(records.iter().any(|it| matches!(it, Output::Record(record) if record.action == Restore)), "{records:?}");
    machine.burst(1, 200);
    assert_eq!(machine.recorded(), [], "it is left alone");
    machine.set_mode(Selector::default(), TunerMode::Off);
    assert_eq!(machine.recorded(), [(SetMode, 128, 128)]);
}

#[test]
fn a_mode_of_a_process_or_namespace_that_ended_is_retired() {
    let mut machine = Machine::with_one(config());
    machine.set_mode(Selector { pid: Some(7), ..Selector::default() }, TunerMode::Observe);
    machine.tick();
    machine.outputs.clear();
    machine.started.remove(&7);
    machine.tick();
    assert_eq!(machine.outputs, [], "a setting without a start is of a process that ended");
    machine.set_mode(Selector { netns: Some(9), ..Selector::default() }, TunerMode::Observe);
    machine.outputs.clear();
    machine.pass(59);
    assert_eq!(machine.outputs, [], "a namespace that was not met yet has not ended");
    machine.pass(120);
    assert_eq!(machine.outputs, [Output::Retired(Selector { netns: Some(9), ..Selector::default() })]);
}

#[test]
fn the_more_precise_mode_holds_and_the_later_of_equals() {
    let mut machine = Machine::with_one(config());
    let setting = |which, mode| governor_health::backlog::tuner::ModeSetting { which, mode, started: None };
    let cgroup = Selector { cgroup: Some("/proxies".to_owned()), ..Selector::default() };
    let port = Selector { place: governor_health::backlog::ListenerPattern::parse(":80"), ..Selector::default() };
    let mut modes = Vec::new();
    for (which, mode, expected) in [
        (cgroup.clone(), TunerMode::Observe, TunerMode::Observe),
        (port.clone(), TunerMode::Enforce, TunerMode::Enforce),
        (cgroup, TunerMode::Off, TunerMode::Enforce),
        (port, TunerMode::Observe, TunerMode::Observe),
    ] {
        modes.push(setting(which.clone(), mode));
        let (modes, named, by) = (modes.clone(), String::new(), String::new());
        machine.take(Input::ModesSet { modes, which, named, mode: Some(mode), by });
        assert_eq!(machine.tuner.listeners().next().unwrap().mode(), (expected, true));
    }
}
