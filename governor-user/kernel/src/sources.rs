//! Sources of the plane that worked and fail now: where, since when and why. A failure shorter than [`GRACE`] is waited out;
//! a longer one is one warning when it begins and one line when it ends, however many namespaces and ticks it lasts. Pure
//! but for the log; reads no source and decides nothing about rows.

use governor_observation::SourceView;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// A source may fail for so long before the next one takes over: a table that changes during a dump is read at the next
/// tick.
pub(crate) const GRACE: Duration = Duration::from_secs(1);
/// A source has recovered when it has worked for this long: an intermittent source causes one warning, not one a second.
const RECOVERED: Duration = Duration::from_secs(2);
/// Stands for the whole host where a source is not read by namespace.
pub(crate) const HOST: u64 = 0;

/// What is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// Listeners of a namespace.
    Tables,
    /// Connections of a namespace.
    Connections,
    /// What waits in the accept queues of a namespace.
    Queues,
    /// The maps of the programs.
    Programs,
    /// Counters of a namespace.
    Counters,
    /// Scans that audits compare with the counts.
    Audits,
    /// Processes and their descriptors.
    Walk,
    /// The tree of cgroup folders.
    Cgroups,
}

impl Source {
    /// Stable name, as in JSON.
    fn as_str(self) -> &'static str {
        match self {
            Self::Tables => "socket_tables",
            Self::Connections => "connection_tables",
            Self::Queues => "queue_scans",
            Self::Programs => "programs",
            Self::Counters => "namespace_counters",
            Self::Audits => "audits",
            Self::Walk => "process_walk",
            Self::Cgroups => "cgroup_tree",
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::Tables => "listeners cannot be listed by socket diagnostics",
            Self::Connections => "connections cannot be listed by socket diagnostics",
            Self::Queues => "accept queues cannot be looked into",
            Self::Programs => "the maps of the eBPF programs cannot be read",
            Self::Counters => "the counters of network namespaces cannot be read",
            Self::Audits => "sockets cannot be scanned for audits",
            Self::Walk => "/proc cannot be walked",
            Self::Cgroups => "the tree of cgroups cannot be read",
        }
    }

    fn effect(self) -> &'static str {
        match self {
            Self::Tables => "depths come from /proc where it can be read; other listeners there are unknown",
            Self::Connections => "connections per cgroup are unknown",
            Self::Queues => "queue ages, and clients that have gone, are unknown",
            Self::Programs => "totals, peaks and connections per cgroup are unknown",
            Self::Counters => "their counters are unknown",
            Self::Audits => "counts are not compared with the kernel's",
            Self::Walk => "new network namespaces are not seen, and holders of listeners are unknown after 30 s",
            Self::Cgroups => "known cgroups keep their paths; connections of others are counted under none",
        }
    }
}

/// One source that fails.
#[derive(Debug)]
struct Failing {
    since: Instant,
    reason: String,
    /// Where it fails now, by inode number of the namespace, and since when there.
    places: BTreeMap<u64, Instant>,
    announced: bool,
    /// Since when it fails nowhere.
    works_since: Option<Instant>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Sources(BTreeMap<Source, Failing>);

impl Sources {
    /// A source failed at a place; whether it has failed there for longer than [`GRACE`].
    pub(crate) fn failed(&mut self, source: Source, place: u64, reason: &str, now: Instant) -> bool {
        let failing = self.0.entry(source).or_insert_with(|| Failing {
            since: now,
            reason: String::new(),
            places: BTreeMap::new(),
            announced: false,
            works_since: None,
        });
        if failing.reason != reason {
            reason.clone_into(&mut failing.reason);
        }
        failing.works_since = None;
        let since = *failing.places.entry(place).or_insert(now);
        now.saturating_duration_since(since) >= GRACE
    }

    /// A source worked at a place.
    pub(crate) fn works(&mut self, source: Source, place: u64) {
        if let Some(failing) = self.0.get_mut(&source) {
            failing.places.remove(&place);
        }
    }

    /// Whether a source fails anywhere.
    pub(crate) fn fails(&self, source: Source) -> bool {
        self.0.get(&source).is_some_and(|failing| !failing.places.is_empty())
    }

    /// Forgets namespaces that `keep` does not want.
    pub(crate) fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        for failing in self.0.values_mut() {
            failing.places.retain(|place, _| *place == HOST || keep(*place));
        }
    }

    /// Ends a tick: logs what began and what is over.
    pub(crate) fn settle(&mut self, now: Instant) {
        self.0.retain(|source, failing| {
            let seconds = now.saturating_duration_since(failing.since).as_secs();
            if failing.places.is_empty() {
                if !failing.announced {
                    return false;
                }
                let since = *failing.works_since.get_or_insert(now);
                if now.saturating_duration_since(since) < RECOVERED {
                    return true;
                }
                tracing::info!(source = source.as_str(), seconds, "a kernel source works again: {}", source.what());
                return false;
            }
            let lasted = failing.places.values().any(|since| now.saturating_duration_since(*since) >= GRACE);
            if lasted && !failing.announced {
                failing.announced = true;
                tracing::warn!(
                    source = source.as_str(),
                    reason = failing.reason,
                    namespaces = failing.places.len(),
                    "a kernel source fails: {}; {}",
                    source.what(),
                    source.effect()
                );
            }
            true
        });
    }

    /// Those that fail now for longer than [`GRACE`], in a fixed order.
    pub(crate) fn views(&self, now: Instant) -> Vec<SourceView> {
        let failing = self.0.iter().filter(|(_, failing)| failing.announced && !failing.places.is_empty());
        failing
            .map(|(source, failing)| SourceView {
                source: source.as_str().to_owned(),
                failing_seconds: now.saturating_duration_since(failing.since).as_secs_f64(),
                namespaces: failing.places.keys().filter(|place| **place != HOST).count(),
                problem: source.what().to_owned(),
                reason: failing.reason.clone(),
                effect: source.effect().to_owned(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_after_a_grace_and_until_it_is_over() {
        let begun = Instant::now();
        let at = |milliseconds| begun + Duration::from_millis(milliseconds);
        let mut sources = Sources::default();
        assert!(!sources.failed(Source::Tables, 7, "refused", begun));
        sources.settle(begun);
        assert_eq!(sources.views(begun), [], "one tick is waited out");
        sources.works(Source::Tables, 7);
        sources.settle(at(100));
        assert!(!sources.failed(Source::Tables, 7, "refused", at(900)), "the grace period restarts");
        assert!(sources.failed(Source::Tables, 7, "too many open files", at(1900)));
        sources.settle(at(1900));
        let [view] = sources.views(at(1900)).try_into().unwrap();
        assert_eq!((view.source.as_str(), view.namespaces, view.failing_seconds), ("socket_tables", 1, 1.0));
        assert_eq!(view.reason, "too many open files");

        sources.works(Source::Tables, 7);
        sources.settle(at(2000));
        assert_eq!(sources.views(at(2000)), []);
        assert!(!sources.fails(Source::Tables));
        sources.settle(at(5000));
        assert!(sources.0.is_empty());
    }

    #[test]
    fn a_source_that_comes_and_goes_is_announced_once() {
        let begun = Instant::now();
        let mut sources = Sources::default();
        let mut announced = 0;
        for second in 0..20 {
            let now = begun + Duration::from_secs(second);
            let before = sources.0.get(&Source::Walk).is_some_and(|failing| failing.announced);
            if second % 3 == 2 {
                sources.works(Source::Walk, HOST);
            } else {
                sources.failed(Source::Walk, HOST, "too many open files", now);
            }
            sources.settle(now);
            announced += u32::from(!before && sources.0.get(&Source::Walk).is_some_and(|failing| failing.announced));
        }
        assert_eq!(announced, 1);
    }

    #[test]
    fn a_namespace_that_ended_fails_no_more() {
        let begun = Instant::now();
        let mut sources = Sources::default();
        for place in [7, 8] {
            sources.failed(Source::Counters, place, "gone wrong", begun);
        }
        sources.retain(|place| place == 7);
        sources.settle(begun + GRACE);
        assert_eq!(sources.views(begun + GRACE)[0].namespaces, 1);
    }
}
