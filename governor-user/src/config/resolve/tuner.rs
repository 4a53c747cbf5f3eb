//! What the tuner obeys: its settings for every listener, and those for single ones on top.

use crate::config::schema::{Entry, Listener, Reader, Tuner, chosen, section_path};
pub use governor_health::backlog::{AtExit, ListenerPattern, ListenerPolicy, TunerConfig, TunerMode};
use std::collections::BTreeSet;

pub(super) fn tuner(reader: &mut Reader<'_>, names: &BTreeSet<Vec<String>>) -> TunerConfig {
    let section = Tuner::read(reader, &[]);
    let global = ListenerPolicy {
        mode: section.mode.value,
        target: section.target.value,
        max: section.max.value,
        max_wait: section.max_wait.value,
        quiet: section.quiet.value,
    };
    check(reader, &section.target, global);
    let mut listeners = Vec::new();
    for name in chosen(Listener::PATH, &[], names) {
        let Some(pattern) = ListenerPattern::parse(name) else {
            let said = format!("expected an address and port such as \"0.0.0.0:443\" or \":443\", found \"{name}\"");
            reader.section_problem(&section_path(Listener::PATH, &[name]), said);
            continue;
        };
        let own = Listener::read(reader, &[name]);
        let policy = ListenerPolicy {
            mode: own.mode.value.unwrap_or(global.mode),
            target: own.target.value.unwrap_or(global.target),
            max: own.max.value.unwrap_or(global.max),
            max_wait: own.max_wait.value.unwrap_or(global.max_wait),
            quiet: own.quiet.value.unwrap_or(global.quiet),
        };
        check(reader, &own.target, policy);
        listeners.push((pattern, policy));
    }
    listeners.sort_by_key(|(pattern, _): &(ListenerPattern, _)| (!pattern.has_address(), *pattern));
    TunerConfig {
        global,
        listeners,
        memory_mib: section.memory_mib.value,
        raise_somaxconn: section.raise_somaxconn.value,
        at_exit: section.at_exit.value,
    }
}

fn check<T>(reader: &mut Reader<'_>, place: &Entry<'_, T>, ListenerPolicy { target, max, .. }: ListenerPolicy) {
    if target > max {
        reader.problem(place, format!("a target of {target} is above the max of {max}"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::load;
    use super::*;
    use std::net::{IpAddr, SocketAddr};
    use std::time::Duration;

    fn at(text: &str) -> (IpAddr, u16) {
        let place: SocketAddr = text.parse().unwrap();
        (place.ip(), place.port())
    }

    #[test]
    fn a_backlog_is_from_one_to_what_thirty_one_bits_hold() {
        for (value, fits) in [
            ("1", true),
            ("65536", true),
            ("262144", true),
            ("2147483647", true),
            ("-1", false),
            ("0", false),
            ("2147483648", false),
            ("\"4k\"", false),
        ] {
            let loaded = load(&format!("[tuner]\ntarget = 1\nmax = {value}\n"));
            assert_eq!(loaded.is_ok(), fits, "{value}: {loaded:?}");
            if let Err(error) = loaded {
                assert!(error.contains("tuner.max"), "{error}");
            }
        }
    }

    #[test]
    fn observing_is_the_default_and_a_target_is_within_the_max() {
        let tuner = load("").unwrap().config.tuner;
        assert_eq!((tuner.global.mode, tuner.global.target), (TunerMode::Observe, 1024));
        assert_eq!((tuner.at_exit, tuner.raise_somaxconn), (AtExit::Keep, false));
        let error = load("[tuner]\nmax = 100\n").unwrap_err();
        assert!(error.contains("1024") && error.contains("100"), "{error}");
    }

    #[test]
    fn the_more_precise_pattern_wins_and_leaves_the_rest_to_the_global_policy() {
        let text = "[tuner]\nmode = \"off\"\n[[tuner.listener]]\nlisten = \":443\"\nmode = \"observe\"\n\
                    [[tuner.listener]]\nlisten = \"127.0.0.1:443\"\nmode = \"enforce\"\nmax_wait = \"1s\"\n";
        let tuner = load(text).unwrap().config.tuner;
        let policy = |text: &str| {
            let (address, port) = at(text);
            tuner.policy(address, port)
        };
        assert_eq!(policy("127.0.0.1:443").mode, TunerMode::Enforce);
        assert_eq!(policy("127.0.0.1:443").max_wait, Duration::from_secs(1));
        assert_eq!(policy("[::]:443"), ListenerPolicy { mode: TunerMode::Observe, ..tuner.global });
        assert_eq!(policy("127.0.0.1:80"), tuner.global);
        let error = load("[[tuner.listener]]\nlisten = \"https\"\n").unwrap_err();
        assert!(error.contains("0.0.0.0:443"), "{error}");
    }
}
