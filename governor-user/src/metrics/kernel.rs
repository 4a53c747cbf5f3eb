//! What the kernel plane sees, as series: listeners, cgroups, network namespaces, and the plane's own health.

use super::page::{Labels, Page, Row};
use super::sojourn::Waits;
use governor_observation::{ClosedListeners, Conntrack, ListenerView, NamespaceCounters, Observation};
use std::time::Duration;

/// Listeners, cgroups and namespaces with series of their own; what does not fit is counted in
/// `governor_series_omitted`.
pub(super) const MOST_LISTENERS: usize = 500;
const MOST_CGROUPS: usize = 200;
const MOST_NAMESPACES: usize = 200;

/// Stands for all cgroups without a folder. A path begins with a slash.
const REMOVED: &str = "removed";

/// Writes all of it.
pub(super) fn write(page: &mut Page, seen: &Observation) {
    listeners(page, &seen.listeners[..seen.listeners.len().min(MOST_LISTENERS)]);
    closed(page, &seen.closed[..seen.closed.len().min(MOST_LISTENERS)]);
    cgroups(page, seen);
    namespaces(page, seen);
    health(page, seen);
    let cgroups = seen.cgroups.iter().flatten().filter(|cgroup| cgroup.path.is_some()).count();
    page.gauge(
        "series_omitted",
        "Listeners, cgroups, namespaces and places of closed listeners without series because there are too many",
        [
            ("listeners", seen.listeners.len(), MOST_LISTENERS),
            ("closed_listeners", seen.closed.len(), MOST_LISTENERS),
            ("cgroups", cgroups, MOST_CGROUPS),
            ("namespaces", seen.namespaces.len(), MOST_NAMESPACES),
        ]
        .map(|(of, all, most)| (vec![("of", of.to_owned())], number(all.saturating_sub(most))))
        .to_vec(),
    );
}

fn listeners(page: &mut Page, shown: &[ListenerView]) {
    let gauge = |value: &dyn Fn(&ListenerView) -> Option<f64>| -> Vec<Row<f64>> {
        shown.iter().filter_map(|listener| Some((listener_labels(listener), value(listener)?))).collect()
    };
    let counter = |value: &dyn Fn(&ListenerView) -> Option<u64>| -> Vec<Row<u64>> {
        shown.iter().filter_map(|listener| Some((listener_labels(listener), value(listener)?))).collect()
    };
    page.gauge("listener_depth", "Connections in the accept queue", gauge(&|row| Some(row.depth.into())));
    page.gauge(
        "listener_abandoned",
        "Connections in the accept queue that the client has closed already",
        gauge(&|row| row.abandoned.map(Into::into)),
    );
    page.gauge("listener_backlog", "Limit of the accept queue", gauge(&|row| row.backlog.map(Into::into)));
    page.gauge("listener_depth_peak", "Deepest since first seen", gauge(&|row| row.depth_peak.map(Into::into)));
    page.counter("listener_enqueued", "Connections that entered the accept queue", counter(&|row| row.enqueued_total));
    page.counter("listener_accepted", "Connections that left it by accept", counter(&|row| row.accepted_total));
    page.counter(
        "listener_abandoned_accepted",
        "Connections that an accept returned after the client had closed or reset them",
        counter(&|row| row.abandoned_total),
    );
    page.counter(
        "listener_overflows",
        "Packets refused because the accept queue was full, by stage of the handshake; one client may count several times",
        shown.iter().flat_map(overflows).collect(),
    );
    page.gauge(
        "listener_overflows_exact_seconds",
        "For how long no overflow has been missed; absent where none was since the listener was first seen, and while some are unknown",
        gauge(&|row| row.overflows_since_seconds),
    );
    page.counter("listener_drops", "Any kernel discard at the listener", counter(&|row| row.drops_total));
    waits(page, shown);
}

/// By place and not by socket: the socket is gone, and the next one on its place goes on with the count.
fn closed(page: &mut Page, shown: &[ClosedListeners]) {
    let counter = |value: &dyn Fn(&ClosedListeners) -> Option<u64>| -> Vec<Row<u64>> {
        let labels = |place: &ClosedListeners| {
            let (netns, address, port) = (place.netns.to_string(), place.address.to_string(), place.port.to_string());
            vec![("netns", netns), ("address", address), ("port", port)]
        };
        shown.iter().filter_map(|place| Some((labels(place), value(place)?))).collect()
    };
    page.counter("listener_closed", "Listeners that closed", counter(&|place| Some(place.listeners)));
    page.counter(
        "listener_lost",
        "Connections that were still queued when their listener closed, and were reset",
        counter(&|place| place.lost),
    );
}

/// A socket that discarded nothing refused nothing at either stage, whether or not a hook watched.
fn overflows(listener: &ListenerView) -> impl Iterator<Item = Row<u64>> {
    let none = listener.overflows_total.filter(|total| *total == 0);
    [("syn", listener.overflow_syn_total), ("ack", listener.overflow_ack_total)].into_iter().filter_map(
        move |(stage, seen)| {
            let mut labels = listener_labels(listener);
            labels.push(("stage", stage.to_owned()));
            Some((labels, seen.or(none)?))
        },
    )
}

/// How long connections wait in the queue and how long they had waited when they were accepted.
fn waits(page: &mut Page, shown: &[ListenerView]) {
    page.gauge(
        "listener_queue_age_seconds",
        "How long the connection that waits longest in the accept queue has waited; absent when none does",
        shown.iter().filter_map(|row| Some((listener_labels(row), row.oldest_queued_seconds?))).collect(),
    );
    page.histograms(
        "listener_sojourn_seconds",
        "How long accepted connections had waited in the accept queue",
        shown.iter().filter_map(|row| Some((listener_labels(row), Waits::of(row.sojourn.as_ref()?)))).collect(),
    );
    let mut recent = Vec::new();
    for listener in shown {
        let Some(sojourn) = &listener.sojourn else { continue };
        for (quantile, waited) in
            [("0.5", sojourn.p50_seconds), ("0.99", sojourn.p99_seconds), ("1", sojourn.max_seconds)]
        {
            let Some(waited) = waited else { continue };
            let mut labels = listener_labels(listener);
            labels.push(("quantile", quantile.to_owned()));
            recent.push((labels, waited));
        }
    }
    page.gauge(
        "listener_sojourn_recent_seconds",
        "The same of the last complete interval: median, 99th percentile and longest; absent when none was accepted",
        recent,
    );
}

fn cgroups(page: &mut Page, seen: &Observation) {
    let all = seen.cgroups.as_deref().unwrap_or_default();
    // One series for all that have no folder any more, so that the sums stay right and ids make no series.
    let removed = all.iter().filter(|cgroup| cgroup.path.is_none()).fold(None, |sum: Option<[u64; 3]>, cgroup| {
        let [inbound, outbound, owned] = sum.unwrap_or_default();
        Some([inbound + cgroup.inbound, outbound + cgroup.outbound, owned + cgroup.inbound_owned.unwrap_or(0)])
    });
    let named = all.iter().filter_map(|cgroup| {
        let owned = cgroup.inbound_owned;
        Some((cgroup.path.clone()?, cgroup.inbound, cgroup.outbound, owned))
    });
    let has_owned = all.iter().any(|cgroup| cgroup.inbound_owned.is_some());
    let removed =
        removed.map(|[inbound, outbound, owned]| (REMOVED.to_owned(), inbound, outbound, has_owned.then_some(owned)));
    let (mut rows, mut owners) = (Vec::new(), Vec::new());
    for (path, inbound, outbound, owned) in named.take(MOST_CGROUPS).chain(removed) {
        for (direction, open) in [("inbound", inbound), ("outbound", outbound)] {
            rows.push((vec![("cgroup", path.clone()), ("direction", direction.to_owned())], count(open)));
        }
        owners.extend(owned.map(|owned| (vec![("cgroup", path)], count(owned))));
    }
    page.gauge("cgroup_connections", "Open connections of a cgroup", rows);
    page.gauge(
        "cgroup_owned_connections",
        "Open inbound connections of the listeners that a cgroup created, where inbound counts under the acceptor instead",
        owners,
    );
}

fn namespaces(page: &mut Page, seen: &Observation) {
    let shown = &seen.namespaces[..seen.namespaces.len().min(MOST_NAMESPACES)];
    let label = |netns: u64| vec![("netns", netns.to_string())];
    let mut counter = |name: &str, help: &str, value: fn(&NamespaceCounters) -> Option<u64>| {
        let rows = shown.iter().filter_map(|namespace| Some((label(namespace.netns), value(&namespace.counters)?)));
        page.counter(name, help, rows.collect());
    };
    counter(
        "namespace_listen_overflows",
        "Packets refused because an accept queue was full (ListenOverflows)",
        |counters| counters.listen_overflows,
    );
    counter(
        "namespace_listen_drops",
        "Any kernel discard at a listener, overflows included (ListenDrops)",
        |counters| counters.listen_drops,
    );
    counter(
        "namespace_half_open_drops",
        "SYNs refused because the table of half-open connections was full (TCPReqQFullDrop)",
        |counters| counters.request_queue_full_drops,
    );
    counter(
        "namespace_half_open_cookies",
        "SYNs answered by a cookie because it was full (TCPReqQFullDoCookies)",
        |counters| counters.request_queue_full_cookies,
    );
    counter("namespace_syncookies_sent", "SYN cookies sent", |counters| counters.syncookies_sent);
    counter("namespace_syncookies_received", "SYN cookies that came back right", |counters| {
        counters.syncookies_received
    });
    counter("namespace_syncookies_failed", "SYN cookies that came back wrong", |counters| counters.syncookies_failed);
    counter(
        "namespace_fast_open_overflows",
        "Fast Open connections that fell back to the normal handshake; no overload",
        |counters| counters.fast_open_overflows,
    );
    counter("namespace_passive_opens", "Connections opened by the other side", |counters| counters.passive_opens);
    let gauge = |value: &dyn Fn(Conntrack) -> Option<u64>| -> Vec<Row<f64>> {
        let rows = shown.iter().filter_map(|row| Some((label(row.netns), count(value(row.conntrack)?))));
        rows.collect()
    };
    let table = |pick: fn(u64, u64) -> u64| {
        move |conntrack| match conntrack {
            Conntrack::Table { count, max } => Some(pick(count, max)),
            Conntrack::Absent | Conntrack::Unknown => None,
        }
    };
    page.gauge("namespace_conntrack_entries", "Connections tracked", gauge(&table(|count, _| count)));
    page.gauge("namespace_conntrack_limit", "Connections tracked at most", gauge(&table(|_, max| max)));
}

fn health(page: &mut Page, seen: &Observation) {
    let health = &seen.health;
    let tier = vec![("tier", seen.tier.as_str().to_owned())];
    page.gauge("kernel_tier", "1 for the tier in use", vec![(tier, 1.0)]);
    let pins = vec![("state", seen.pins.state.as_str().to_owned())];
    page.gauge(
        "kernel_pins",
        "1 for what became of the pins: adopted (counts of an earlier daemon go on), pinned, off or unavailable",
        vec![(pins, 1.0)],
    );
    let counting = seen.pins.counting_since_ns.map(|since| Duration::from_nanos(seen.taken_ns.saturating_sub(since)));
    page.gauge(
        "kernel_counting_seconds",
        "For how long the pinned programs have counted, in whichever life of the daemon; absent where nothing is pinned",
        counting.map(|counting| (Vec::new(), counting.as_secs_f64())).into_iter().collect(),
    );
    page.gauge(
        "degraded",
        "Reasons why less is observed than asked for",
        vec![(Vec::new(), number(seen.degraded.len()))],
    );
    for (name, help, value) in [
        ("kernel_lost_events", "Ring-buffer events lost, counted in the kernel", health.lost_events),
        ("kernel_untracked", "Sockets no map entry could be made for", health.untracked),
        ("kernel_drift", "Differences repaired by audits; must stay 0", health.drift),
        ("kernel_audits", "Audits completed", health.audits),
        ("kernel_audits_failed", "Audits that failed or were interrupted", health.audits_failed),
    ] {
        page.counter(name, help, vec![(Vec::new(), value)]);
    }
    let walk = &seen.walk;
    let left_out: usize = walk.left_out.iter().map(|of| of.processes).sum();
    for (name, help, value) in [
        ("kernel_walk_entries", "Tasks and descriptors that the last walk over /proc looked at", walk.looked_at),
        (
            "kernel_walk_unreadable_processes",
            "Processes that it could not read for want of rights: listeners that they hold show no pids",
            walk.unreadable,
        ),
        (
            "kernel_walk_left_out_processes",
            "Processes that it left out, whole or in part, because their user's budget was used up",
            left_out,
        ),
    ] {
        page.gauge(name, help, vec![(Vec::new(), number(value))]);
    }
    let sources = seen.failing.iter().map(|source| (vec![("source", source.source.clone())], 1.0));
    page.gauge(
        "kernel_source_failing",
        "1 for a source of the kernel plane that worked and fails now; absent while all work",
        sources.collect(),
    );
}

fn listener_labels(listener: &ListenerView) -> Labels {
    vec![
        ("netns", listener.netns.to_string()),
        ("address", listener.address.to_string()),
        ("port", listener.port.to_string()),
        // Sockets of one SO_REUSEPORT group share everything but this.
        ("cookie", listener.cookie.map(|cookie| cookie.to_string()).unwrap_or_default()),
    ]
}

/// Exact up to 2³².
fn count(value: u64) -> f64 {
    f64::from(u32::try_from(value).unwrap_or(u32::MAX))
}

fn number(value: usize) -> f64 {
    f64::from(u32::try_from(value).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_observation::{Basis, CgroupView, PinState, PinsView, SojournBucket, SojournView};

    fn listener(port: u16) -> ListenerView {
        ListenerView { cookie: Some(7), depth: 3, ..ListenerView::bare(port) }
    }

    fn observed(listener: ListenerView) -> Observation {
        Observation { listeners: vec![listener], ..Observation::default() }
    }

    fn page(seen: &Observation) -> Page {
        let mut page = Page::new();
        write(&mut page, seen);
        page
    }

    /// Series of listeners, without what is the same for all.
    fn series(seen: &Observation) -> Vec<String> {
        let text = page(seen).text().unwrap();
        let samples = text.lines().filter_map(|line| line.strip_prefix("governor_listener_"));
        let mut series: Vec<String> =
            samples.map(|line| line.replace("netns=\"1\",address=\"127.0.0.1\",port=\"80\"", "")).collect();
        series.sort_unstable();
        series
    }

    #[test]
    fn what_is_not_known_has_no_series() {
        assert_eq!(series(&observed(listener(80))), ["depth{,cookie=\"7\"} 3.0"]);
    }

    #[test]
    fn a_stage_that_is_not_seen_has_no_series_until_nothing_was_dropped_at_all() {
        let overflows = |total, syn, ack| {
            let row = ListenerView {
                overflows_total: total,
                overflow_syn_total: syn,
                overflow_ack_total: ack,
                ..listener(80)
            };
            let mut series = series(&observed(row));
            series.retain(|line| line.starts_with("overflows_total"));
            series
        };
        let (syn, ack) =
            ("overflows_total{,cookie=\"7\",stage=\"syn\"}", "overflows_total{,cookie=\"7\",stage=\"ack\"}");
        assert_eq!(overflows(Some(12), Some(5), Some(7)), [format!("{ack} 7"), format!("{syn} 5")]);
        assert_eq!(overflows(None, None, Some(7)), [format!("{ack} 7")]);
        assert_eq!(overflows(Some(0), None, None), [format!("{ack} 0"), format!("{syn} 0")]);
        assert_eq!(overflows(None, None, None), Vec::<String>::new());
    }

    #[test]
    fn waits_are_seconds_and_add_up() {
        let sojourn = SojournView {
            count: 3,
            sum_seconds: 100.3,
            buckets: vec![
                SojournBucket { up_to_seconds: Some(0.25), count: 1 },
                SojournBucket { up_to_seconds: Some(0.28125), count: 1 },
                SojournBucket { up_to_seconds: None, count: 1 },
            ],
            p50_seconds: Some(0.25),
            p99_seconds: Some(0.28125),
            max_seconds: Some(0.27),
            ..SojournView::default()
        };
        let row = ListenerView { oldest_queued_seconds: Some(1.5), sojourn: Some(sojourn), ..listener(80) };
        let seen = series(&observed(row));
        for line in [
            "queue_age_seconds{,cookie=\"7\"} 1.5",
            "sojourn_seconds_sum{,cookie=\"7\"} 100.3",
            "sojourn_seconds_count{,cookie=\"7\"} 3",
            "sojourn_seconds_bucket{le=\"0.125\",,cookie=\"7\"} 0",
            "sojourn_seconds_bucket{le=\"0.25\",,cookie=\"7\"} 1",
            "sojourn_seconds_bucket{le=\"0.5\",,cookie=\"7\"} 2",
            "sojourn_seconds_bucket{le=\"16.0\",,cookie=\"7\"} 2",
            "sojourn_seconds_bucket{le=\"+Inf\",,cookie=\"7\"} 3",
            "sojourn_recent_seconds{,cookie=\"7\",quantile=\"1\"} 0.27",
        ] {
            assert!(seen.iter().any(|have| have == line), "{line} is not in {seen:#?}");
        }
    }

    #[test]
    fn a_place_goes_on_counting_what_its_closed_listeners_lost() {
        let address = "127.0.0.1".parse().unwrap();
        let place = ClosedListeners { netns: 1, address, port: 80, listeners: 2, lost: Some(19) };
        let unseen = ClosedListeners { port: 81, lost: None, ..place.clone() };
        let seen = series(&Observation { closed: vec![place, unseen], ..Observation::default() });
        let lost: Vec<&String> = seen.iter().filter(|line| line.starts_with("lost")).collect();
        assert_eq!(lost, ["lost_total{} 19"]);
        assert_eq!(seen.iter().filter(|line| line.starts_with("closed")).count(), 2);
    }

    #[test]
    fn what_became_of_the_pins_is_a_series_and_their_age_is_absent_without_them() {
        let text =
            |pins| page(&Observation { taken_ns: 9_000_000_000, pins, ..Observation::default() }).text().unwrap();
        let counting =
            PinsView { state: PinState::Adopted, counting_since_ns: Some(1_500_000_000), ..PinsView::default() };
        let adopted = text(counting);
        assert!(adopted.contains("governor_kernel_pins{state=\"adopted\"} 1"), "{adopted}");
        assert!(adopted.contains("governor_kernel_counting_seconds 7.5"), "{adopted}");
        let off = text(PinsView::default());
        assert!(off.contains("governor_kernel_pins{state=\"off\"} 1"), "{off}");
        assert!(!off.contains("governor_kernel_counting_seconds 0"), "{off}");
    }

    /// Read back by an independent reader of the format: the tags of `io.prometheus.client.Histogram`.
    #[cfg(feature = "native-histograms")]
    #[test]
    fn a_native_histogram_goes_out_as_protobuf() {
        let sojourn = SojournView {
            sum_seconds: 0.25,
            buckets: vec![SojournBucket { up_to_seconds: Some(0.25), count: 1 }],
            ..SojournView::default()
        };
        let bytes = page(&observed(ListenerView { sojourn: Some(sojourn), ..listener(80) })).protobuf().unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("governor_listener_sojourn_seconds"));
        // zero_threshold (field 6, fixed64) is 2⁻²⁰ s.
        let threshold = [&[0x31][..], &2_f64.powi(-20).to_le_bytes()].concat();
        assert!(bytes.windows(threshold.len()).any(|have| have == threshold));
    }

    #[test]
    fn cgroups_without_a_folder_share_one_series() {
        let row = |id, path: Option<&str>, inbound, inbound_owned| CgroupView {
            id,
            path: path.map(str::to_owned),
            inbound,
            outbound: 1,
            inbound_basis: Basis::Acceptor,
            inbound_owned,
        };
        let cgroups = vec![row(5, Some("/a"), 7, Some(2)), row(6, None, 3, Some(1)), row(7, None, 4, None)];
        let text = page(&Observation { cgroups: Some(cgroups), ..Observation::default() }).text().unwrap();
        let mut series: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("governor_cgroup_")).collect();
        series.sort_unstable();
        assert_eq!(
            series,
            [
                "connections{cgroup=\"/a\",direction=\"inbound\"} 7.0",
                "connections{cgroup=\"/a\",direction=\"outbound\"} 1.0",
                "connections{cgroup=\"removed\",direction=\"inbound\"} 7.0",
                "connections{cgroup=\"removed\",direction=\"outbound\"} 2.0",
                "owned_connections{cgroup=\"/a\"} 2.0",
                "owned_connections{cgroup=\"removed\"} 1.0",
            ]
        );
    }
}
