//! When the level rises: ranges of the monitors, ports, ceilings of cgroups.

use crate::config::schema::{Cgroup, Entry, Overload, Reader, chosen};
use governor_common::wire::reply::cause;
pub use governor_health::pressure::settings::{CgroupCeiling, OverloadConfig, Ranges};
use std::collections::BTreeSet;
use std::time::Duration;

pub(super) fn overload(reader: &mut Reader<'_>, section: &Overload<'_>) -> OverloadConfig {
    let words = &section.ports.value;
    let ports = words.iter().filter_map(|word| word.parse().ok()).collect::<Vec<u16>>();
    if ports.len() != words.len() {
        reader.problem(&section.ports, "expected port numbers such as [\"8080\"]");
    }
    OverloadConfig {
        ports,
        ignored: ignored(reader, &section.ignore),
        hold: section.hold.value,
        hysteresis: u16::try_from(section.hysteresis.value).unwrap_or(1000),
        ranges: Ranges {
            accept_fill: range(reader, &section.accept_fill_lo, &section.accept_fill_hi),
            accept_sojourn: times(reader, &section.accept_sojourn_lo, &section.accept_sojourn_hi),
            accept_overflow: range(reader, &section.accept_overflow_lo, &section.accept_overflow_hi),
            acceptor_stalled: times(reader, &section.acceptor_stalled_lo, &section.acceptor_stalled_hi),
            connections: range(reader, &section.connections_lo, &section.connections_hi),
            node_in_flight: range(reader, &section.node_in_flight_lo, &section.node_in_flight_hi),
            pool_use: range(reader, &section.pool_use_lo, &section.pool_use_hi),
            descriptors: range(reader, &section.descriptors_lo, &section.descriptors_hi),
            cpu_pressure: range(reader, &section.cpu_pressure_lo, &section.cpu_pressure_hi),
            memory_pressure: range(reader, &section.memory_pressure_lo, &section.memory_pressure_hi),
            cgroup_memory: range(reader, &section.cgroup_memory_lo, &section.cgroup_memory_hi),
        },
    }
}

fn ignored(reader: &mut Reader<'_>, ignore: &Entry<'_, Vec<String>>) -> u32 {
    let mut bits = 0;
    for word in &ignore.value {
        match cause::NAMES.iter().find(|(_, name)| name == word) {
            Some((bit, _)) => bits |= bit,
            None => {
                let names: Vec<&str> = cause::NAMES.iter().map(|(_, name)| *name).collect();
                reader.problem(ignore, format!("no monitor \"{word}\"; there are {}", names.join(", ")));
            }
        }
    }
    bits
}

/// Both ends of a monitor's range.
fn range(reader: &mut Reader<'_>, lo: &Entry<'_, u32>, hi: &Entry<'_, u32>) -> (u32, u32) {
    checked(reader, lo, hi, (lo.value, hi.value))
}

/// The same of times, in microseconds.
fn times(reader: &mut Reader<'_>, lo: &Entry<'_, Duration>, hi: &Entry<'_, Duration>) -> (u32, u32) {
    let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    checked(reader, lo, hi, (micros(lo.value), micros(hi.value)))
}

fn checked<T>(reader: &mut Reader<'_>, lo: &Entry<'_, T>, hi: &Entry<'_, T>, both: (u32, u32)) -> (u32, u32) {
    if both.0 >= both.1 {
        reader.problem(lo, format!("{} is not below {} = {}", lo.shown(), hi.key, hi.shown()));
    }
    both
}

pub(super) fn cgroups(reader: &mut Reader<'_>, names: &BTreeSet<Vec<String>>) -> Vec<CgroupCeiling> {
    let mut ceilings = Vec::new();
    for path in chosen(Cgroup::PATH, &[], names) {
        let Cgroup { max_connections } = Cgroup::read(reader, &[path]);
        if !path.starts_with('/') {
            reader.problem(&max_connections, format!("a cgroup path starts with \"/\", found \"{path}\""));
        }
        let ceiling = max_connections.value;
        ceilings.extend(ceiling.map(|max_connections| CgroupCeiling { path: path.clone(), max_connections }));
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
