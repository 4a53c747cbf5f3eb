//! When the level rises: ranges of the monitors, ports, ceilings of cgroups.

use super::reader::Reader;
use crate::config::value::Value;
use governor_common::wire::reply::cause;
pub use governor_health::pressure::settings::{CgroupCeiling, OverloadConfig, Ranges};
use std::collections::BTreeSet;

pub(super) fn overload(reader: &mut Reader<'_>) -> OverloadConfig {
    let words = reader.list("overload.ports");
    let ports = words.iter().filter_map(|word| word.parse().ok()).collect::<Vec<u16>>();
    if ports.len() != words.len() {
        reader.problem("overload.ports", "expected port numbers such as [\"8080\"]".to_owned());
    }
    OverloadConfig {
        ports,
        ignored: ignored(reader),
        hold: reader.duration("overload.hold"),
        hysteresis: u16::try_from(reader.integer("overload.hysteresis")).unwrap_or(1000),
        ranges: Ranges {
            accept_fill: range(reader, "accept_fill"),
            accept_sojourn: range(reader, "accept_sojourn"),
            accept_overflow: range(reader, "accept_overflow"),
            acceptor_stalled: range(reader, "acceptor_stalled"),
            connections: range(reader, "connections"),
            node_in_flight: range(reader, "node_in_flight"),
            pool_use: range(reader, "pool_use"),
            descriptors: range(reader, "descriptors"),
            cpu_pressure: range(reader, "cpu_pressure"),
            memory_pressure: range(reader, "memory_pressure"),
            cgroup_memory: range(reader, "cgroup_memory"),
        },
    }
}

fn ignored(reader: &mut Reader<'_>) -> u32 {
    let mut bits = 0;
    for word in reader.list("overload.ignore") {
        match cause::NAMES.iter().find(|(_, name)| *name == word) {
            Some((bit, _)) => bits |= bit,
            None => {
                let names: Vec<&str> = cause::NAMES.iter().map(|(_, name)| *name).collect();
                reader.problem("overload.ignore", format!("no monitor \"{word}\"; there are {}", names.join(", ")));
            }
        }
    }
    bits
}

/// Both ends of a monitor's range: numbers as they are, times in microseconds.
fn range(reader: &mut Reader<'_>, monitor: &str) -> (u32, u32) {
    let (lo, hi) = (format!("overload.{monitor}_lo"), format!("overload.{monitor}_hi"));
    let both = (end(reader, &lo), end(reader, &hi));
    if both.0 >= both.1 {
        let shown = |key: &str| reader.value(key).map(Value::to_json).unwrap_or_default();
        let message = format!("{} is not below {hi} = {}", shown(&lo), shown(&hi));
        reader.problem(&lo, message);
    }
    both
}

fn end(reader: &Reader<'_>, key: &str) -> u32 {
    match reader.value(key) {
        Some(Value::Duration(time)) => u32::try_from(time.as_micros()).unwrap_or(u32::MAX),
        _ => reader.integer(key),
    }
}

pub(super) fn cgroups(reader: &mut Reader<'_>, names: &BTreeSet<Vec<String>>) -> Vec<CgroupCeiling> {
    let mut ceilings = Vec::new();
    for name in names.iter().filter(|name| name.len() == 2 && name[0] == "cgroups") {
        let key = format!("cgroups.{}.max_connections", name[1]);
        if !name[1].starts_with('/') {
            reader.problem(&key, format!("a cgroup path starts with \"/\", found \"{}\"", name[1]));
        }
        if let Some(Value::Integer(max)) = reader.value(&key) {
            ceilings.push(CgroupCeiling { path: name[1].clone(), max_connections: *max });
        }
    }
    ceilings
}

#[cfg(test)]
mod tests {
    use super::super::tests::load;
    use super::*;

    #[test]
    fn the_built_in_values_are_those_of_the_schema() {
        assert_eq!(load("").unwrap().config.overload, OverloadConfig::default());
    }

    #[test]
    fn both_ends_of_a_range_are_named_with_their_units() {
        let error = load("[overload]\naccept_sojourn_lo = \"2s\"\naccept_sojourn_hi = \"1s\"\n").unwrap_err();
        assert!(
            error.contains("2s") && error.contains("overload.accept_sojourn_hi") && error.contains("1s"),
            "{error}"
        );
        let wide = load("[overload]\nacceptor_stalled_hi = \"1m\"\n").unwrap().config.overload;
        assert_eq!(wide.ranges.acceptor_stalled, (1_000_000, 60_000_000));
    }

    #[test]
    fn a_monitor_is_ignored_by_the_name_of_its_cause() {
        let config = load("[overload]\nignore = [\"cpu_pressure\", \"pool_use\"]\n").unwrap().config.overload;
        assert_eq!(config.ignored, cause::CPU_PRESSURE | cause::POOL_USE);
        let error = load("[overload]\nignore = [\"cpu\"]\n").unwrap_err();
        assert!(error.contains("no monitor \"cpu\"") && error.contains("cpu_pressure"), "{error}");
    }

    #[test]
    fn ceilings_belong_to_paths() {
        let config = load("[cgroups.\"/gw\"]\nmax_connections = 100\n").unwrap().config;
        assert_eq!(config.cgroups, [CgroupCeiling { path: "/gw".to_owned(), max_connections: 100 }]);
        assert!(load("[cgroups.gw]\nmax_connections = 100\n").unwrap_err().contains("starts with \"/\""));
    }
}
