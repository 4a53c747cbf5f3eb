//! Each monitor at both ends of its range, and which of them may cost admitted work its slot.

use super::*;
use crate::pressure::loads::NamedLoad;
use governor_engine::snapshot::PoolFigures;
use governor_observation::vitals::CgroupMemory;
use governor_observation::{Basis, CgroupView};

fn weigh(listeners: &[Evidence], vitals: &Vitals, loads: &Loads) -> Pressure {
    weigh_with(&OverloadConfig::default(), listeners, vitals, loads)
}

fn weigh_with(config: &OverloadConfig, listeners: &[Evidence], vitals: &Vitals, loads: &Loads) -> Pressure {
    let scales = Scales { config, ceilings: &[] };
    let watched: Vec<Watched<'_>> = listeners.iter().map(|evidence| ("0.0.0.0:443".to_owned(), evidence)).collect();
    scales.weigh(Facts { seen: &Observation::default(), vitals, loads }, &watched)
}

fn listener(change: impl FnOnce(&mut Evidence)) -> Pressure {
    let mut evidence = Evidence { backlog: Some(128), ..Evidence::default() };
    change(&mut evidence);
    weigh(&[evidence], &Vitals::default(), &Loads::default())
}

fn loads(counted: u32, cap: u32) -> Loads {
    Loads { counted, cap, ..Loads::default() }
}

/// Pressure and causes.
fn of(pressure: &Pressure) -> (u16, u32) {
    (pressure.permille, pressure.causes)
}

#[test]
fn a_full_queue_holds_backlog_plus_one_and_is_urgent() {
    for (depth, backlog, fill, urgent) in [(5, 4, 1000, true), (4, 4, 600, false), (1, 0, 1000, true), (0, 0, 0, false)]
    {
        let pressure = listener(|evidence| (evidence.depth, evidence.backlog) = (depth, Some(backlog)));
        assert_eq!((pressure.permille, pressure.urgent), (fill, urgent), "{depth}/{backlog}");
    }
}

#[test]
fn what_is_unknown_presses_nothing_and_has_no_reading() {
    assert_eq!(weigh(&[Evidence::default()], &Vitals::default(), &Loads::default()), Pressure::default());
    let procfs = listener(|evidence| (evidence.depth, evidence.backlog) = (500, None));
    assert_eq!(procfs, Pressure::default());
}

#[test]
fn a_standing_queue_presses_by_what_everybody_waits() {
    for (wait, expected) in [(0.005, 0), (0.101, 193), (0.25, 494), (0.5, 1000), (9.0, 1000)] {
        let pressure = listener(|evidence| evidence.standing_seconds = Some(wait));
        assert_eq!(pressure.permille, expected, "{wait} s");
        assert_eq!((pressure.urgent, pressure.shedding), (false, 0));
    }
}

#[test]
fn an_overflow_is_urgent_and_presses_by_its_rate() {
    for (rate, expected) in [(0.0, 0), (0.5, 50), (5.0, 500), (10.0, 1000), (4000.0, 1000)] {
        let pressure = listener(|evidence| evidence.overflow_rate = Some(rate));
        assert_eq!((pressure.permille, pressure.urgent), (expected, rate > 0.0), "{rate} a second");
    }
    let refused = listener(|evidence| evidence.overflow_rate = Some(5.0));
    assert_eq!((refused.causes, refused.shedding), (cause::ACCEPT_OVERFLOW, 0));
    assert_eq!(refused.readings[1].detail, "0.0.0.0:443: 5.0 attempts refused a second");
}

#[test]
fn an_acceptor_that_stalls_presses_after_a_second() {
    for (idle, expected) in [(0.9, 0), (1.0, 0), (3.0, 500), (5.0, 1000)] {
        let pressure = listener(|evidence| evidence.no_accept_seconds = Some(idle));
        assert_eq!(pressure.permille, expected, "{idle} s");
    }
}

#[test]
fn one_hot_socket_of_a_reuse_port_group_is_enough() {
    let member = |depth| Evidence { depth, backlog: Some(128), ..Evidence::default() };
    let group = [member(129), member(0), member(2)];
    let pressure = weigh(&group, &Vitals::default(), &Loads::default());
    assert_eq!(of(&pressure), (1000, cause::ACCEPT_FILL));
    assert_eq!(pressure.shedding, 0, "a longer backlog would help, refusals would not");
}

#[test]
fn connections_press_from_their_range_up_to_the_ceiling() {
    let ceilings = [CgroupCeiling { path: "/gw".to_owned(), max_connections: 100 }];
    for (inbound, outbound, expected) in [(60, 10, 0), (80, 5, 500), (90, 10, 1000), (500, 0, 1000)] {
        let path = Some("/gw".to_owned());
        let cgroup = CgroupView { id: 1, path, inbound, outbound, inbound_basis: Basis::Owner, inbound_owned: None };
        let seen = Observation { cgroups: Some(vec![cgroup]), ..Observation::default() };
        let scales = Scales { config: &OverloadConfig::default(), ceilings: &ceilings };
        let facts = Facts { seen: &seen, vitals: &Vitals::default(), loads: &Loads::default() };
        let pressure = scales.weigh(facts, &[]);
        assert_eq!((pressure.permille, pressure.shedding), (expected, 0), "{inbound}+{outbound}");
    }
}

#[test]
fn the_node_sheds_from_eighty_percent_of_its_cap() {
    for (counted, expected) in [(800, 0), (900, 500), (1000, 1000)] {
        let pressure = weigh(&[], &Vitals::default(), &loads(counted, 1000));
        assert_eq!((pressure.permille, pressure.shedding), (expected, expected), "{counted}");
    }
    assert_eq!(weigh(&[], &Vitals::default(), &loads(900, 0)), Pressure::default(), "there is no cap");
}

#[test]
fn a_full_pool_presses_only_by_those_that_wait_and_sheds_nothing() {
    for (in_flight, parked, expected) in [(10, 0, 0), (10, 5, 500), (10, 10, 1000)] {
        let load = PoolFigures { capacity: 10, in_flight, parked, ..PoolFigures::default() };
        let pools = vec![NamedLoad { name: "chat".into(), load, oldest: None }];
        let pressure = weigh(&[], &Vitals::default(), &Loads { pools, ..Loads::default() });
        assert_eq!((pressure.permille, pressure.shedding), (expected, 0), "{in_flight}+{parked}");
    }
}

#[test]
fn requests_that_wait_for_members_that_are_off_press_fully() {
    for (parked, unlimited, expected) in [(0, false, 0), (3, false, 1000), (3, true, 0)] {
        let load = PoolFigures { parked, unlimited, ..PoolFigures::default() };
        let pools = vec![NamedLoad { name: "chat".into(), load, oldest: None }];
        let pressure = weigh(&[], &Vitals::default(), &Loads { pools, ..Loads::default() });
        assert_eq!(pressure.permille, expected, "{parked} parked, unlimited {unlimited}");
    }
}

#[test]
fn descriptors_of_proxies_shed_and_those_of_others_do_not() {
    let open = |pid, open| (pid, Descriptors { pid, open, limit: 1000 });
    let vitals = Vitals { descriptors: [open(7, 915), open(8, 1000)].into(), ..Vitals::default() };
    let proxy = |pid: u32| Loads { proxies: [pid].into(), ..Loads::default() };
    let pressure = weigh(&[], &vitals, &proxy(7));
    assert_eq!((of(&pressure), pressure.shedding), ((500, cause::DESCRIPTORS), 500));
    assert_eq!(pressure.readings[0].detail, "process 7: 915 of 1000");
    assert_eq!(weigh(&[], &vitals, &proxy(9)), Pressure::default());
}

#[test]
fn the_machine_sheds_by_cpu_and_memory() {
    let full = CgroupMemory { path: "/gw".into(), used: 980 << 20, limit: 1000 << 20 };
    for (vitals, cause) in [
        (Vitals { cpu: Some(950), ..Vitals::default() }, cause::CPU_PRESSURE),
        (Vitals { memory: Some(500), ..Vitals::default() }, cause::MEMORY_PRESSURE),
        (Vitals { cgroup_memory: Some(full), ..Vitals::default() }, cause::CGROUP_MEMORY),
    ] {
        let pressure = weigh(&[], &vitals, &Loads::default());
        assert_eq!((of(&pressure), pressure.shedding), ((1000, cause), 1000));
    }
}

#[test]
fn a_standing_queue_sheds_only_together_with_cpu_pressure() {
    let standing = [Evidence { standing_seconds: Some(0.5), ..Evidence::default() }];
    let with_cpu = |cpu| weigh(&standing, &Vitals { cpu, ..Vitals::default() }, &Loads::default()).shedding;
    assert_eq!((with_cpu(None), with_cpu(Some(700)), with_cpu(Some(710))), (0, 0, 1000));
}

#[test]
fn a_monitor_that_is_ignored_neither_presses_nor_hurries() {
    let full = [Evidence { depth: 5, backlog: Some(4), overflow_rate: Some(9.0), ..Evidence::default() }];
    let ignored = cause::ACCEPT_FILL | cause::ACCEPT_OVERFLOW | cause::CPU_PRESSURE;
    let config = OverloadConfig { ignored, ..OverloadConfig::default() };
    let vitals = Vitals { cpu: Some(1000), ..Vitals::default() };
    assert_eq!(weigh_with(&config, &full, &vitals, &Loads::default()), Pressure::default());
}

#[test]
fn every_cause_has_a_name_and_those_that_shed_are_the_five_of_the_design() {
    let all = cause::NAMES.iter().fold(0, |bits, (bit, _)| bits | bit);
    assert_eq!(all.count_ones(), u32::try_from(cause::NAMES.len()).unwrap());
    assert_eq!(
        cause_names(SHEDDING),
        ["node_in_flight", "descriptors", "cpu_pressure", "memory_pressure", "cgroup_memory"]
    );
}
