//! What a namespace's counters mean: which of them say that an accept queue was full, and which say that something else
//! discards. Pure; only ever advice for `doctor`, `namespaces` and the log. None of it raises the overload level: that
//! a queue is full shows in its depth, and everything else here is not about the accept queue.

use crate::tables::netstat::{Totals, named};
use governor_observation::wording::counted;
use governor_observation::{Conntrack, Finding, FindingKind, HalfOpen, ListenerView, NamespaceCounters};
use std::{net::SocketAddr, time::Duration};

/// What the listeners of the namespace add.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Queues {
    /// A listener whose queue is full now, and its backlog; the one with the shortest.
    pub(crate) full: Option<(SocketAddr, u32)>,
    /// The queue in which a connection has waited longest, if it is too long to be a burst.
    pub(crate) standing: Option<Standing>,
}

/// A queue that is not emptied fast enough.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Standing {
    pub(crate) address: SocketAddr,
    /// How long its oldest connection has waited.
    pub(crate) age: Duration,
    pub(crate) depth: u32,
    pub(crate) abandoned: Option<u32>,
}

/// Age at which a queue stands: a burst is accepted well within it.
const STANDING: Duration = Duration::from_secs(1);

impl Queues {
    /// Of these listeners, all of one namespace.
    pub(crate) fn of<'a>(listeners: impl Iterator<Item = &'a ListenerView> + Clone) -> Self {
        let standing = listeners.clone().filter_map(Standing::of).max_by_key(|queue| queue.age);
        let full = listeners.filter_map(|listener| {
            let backlog = listener.backlog.filter(|_| listener.is_full() == Some(true))?;
            Some((SocketAddr::new(listener.address, listener.port), backlog))
        });
        Self { full: full.min_by_key(|(_, backlog)| *backlog), standing }
    }
}

impl Standing {
    fn of(listener: &ListenerView) -> Option<Self> {
        let age = Duration::try_from_secs_f64(listener.oldest_queued_seconds?).ok()?;
        (age >= STANDING && listener.depth > 0).then(|| Self {
            address: SocketAddr::new(listener.address, listener.port),
            age,
            depth: listener.depth,
            abandoned: listener.abandoned,
        })
    }
}

/// Kernel discards that were not for a full accept queue: an overflow is always a drop, a drop not always an overflow.
/// `None` where either is unknown.
pub(crate) fn dropped_otherwise(counters: &NamespaceCounters) -> Option<u64> {
    Some(counters.listen_drops?.saturating_sub(counters.listen_overflows?))
}

/// Reads the last seconds of a namespace.
pub(crate) fn read(totals: &Totals, queues: &Queues) -> Vec<Finding> {
    let recent = named(totals.recent);
    let some = |count: Option<u64>| count.unwrap_or(0);
    let mut findings = Vec::new();
    let overflows = some(recent.listen_overflows);
    if overflows > 0 || queues.full.is_some() {
        findings.push(accept_queue_full(overflows, queues, totals.somaxconn));
    }
    findings.extend(queues.standing.as_ref().map(standing_queue));
    let half_open_drops = some(recent.request_queue_full_drops);
    findings.extend(half_open(&recent));
    let elsewhere = some(dropped_otherwise(&recent)).saturating_sub(half_open_drops);
    if elsewhere > 0 {
        findings.push(Finding {
            kind: FindingKind::DroppedOtherwise,
            critical: false,
            text: format!(
                "{} dropped for another reason than a full accept queue",
                counted(elsewhere, "handshake", "handshakes")
            ),
        });
    }
    let fast_open = some(recent.fast_open_overflows);
    if fast_open > 0 {
        findings.push(Finding {
            kind: FindingKind::FastOpenFallback,
            critical: false,
            text: format!(
                "{} fell back to the normal handshake: no overload",
                counted(fast_open, "Fast Open connection", "Fast Open connections")
            ),
        });
    }
    findings.extend(connection_tracking(totals.conntrack));
    findings
}

fn accept_queue_full(overflows: u64, queues: &Queues, somaxconn: Option<u32>) -> Finding {
    let mut text = "the accept queue was full".to_owned();
    if overflows > 0 {
        let attempts = counted(overflows, "attempt", "attempts");
        text.push_str(&format!(": {attempts} refused (packets, not clients: each retry counts again)"));
    }
    if let Some((address, backlog)) = queues.full {
        text.push_str(&format!("; {address} holds at most {backlog} + 1"));
        if let Some(most) = somaxconn.filter(|most| *most > backlog) {
            text.push_str(&format!(" although the namespace allows {most} (somaxconn): listen() asked for less"));
        }
    }
    Finding { kind: FindingKind::AcceptQueueFull, critical: true, text }
}

/// More room would only store more connections that are not accepted.
fn standing_queue(queue: &Standing) -> Finding {
    let Standing { address, age, depth, abandoned } = queue;
    let queued = counted(*depth, "queued connection", "queued connections");
    let mut text = format!("{address}: the oldest of {queued} has waited {:.0} s", age.as_secs_f64());
    if let Some(gone) = abandoned.filter(|gone| *gone > 0) {
        let gone = counted(gone, "of them was given up by its client", "of them were given up by their clients");
        text.push_str(&format!("; {gone}"));
    }
    Finding { kind: FindingKind::StandingQueue, critical: false, text }
}

fn half_open(recent: &NamespaceCounters) -> Option<Finding> {
    let sent = recent.syncookies_sent.unwrap_or(0);
    let received = recent.syncookies_received.unwrap_or(0);
    let (kind, text) = match recent.half_open() {
        HalfOpen::Quiet => return None,
        HalfOpen::Burst => (
            FindingKind::Burst,
            format!("a burst of clients: {received} of {sent} that got a SYN cookie came back with it"),
        ),
        HalfOpen::Pressure => (
            FindingKind::HalfOpenPressure,
            format!(
                "half-open pressure: {} sent, {received} came back; a longer backlog does not help",
                counted(sent, "SYN cookie", "SYN cookies")
            ),
        ),
        HalfOpen::Critical => (
            FindingKind::HalfOpenPressure,
            format!(
                "half-open pressure: {} refused and real clients with them; SYN cookies are off",
                counted(recent.request_queue_full_drops.unwrap_or(0), "SYN", "SYNs")
            ),
        ),
    };
    Some(Finding { kind, critical: recent.half_open() == HalfOpen::Critical, text })
}

fn connection_tracking(table: Conntrack) -> Option<Finding> {
    let (critical, text) = match table {
        Conntrack::Table { count, max } if count >= max => {
            (true, format!("drops are before TCP: connection tracking full ({count} of {max})"))
        }
        Conntrack::Unknown => (false, "connection tracking: unknown (other namespace)".to_owned()),
        Conntrack::Absent | Conntrack::Table { .. } => return None,
    };
    let kind = if critical { FindingKind::ConntrackFull } else { FindingKind::ConntrackUnknown };
    Some(Finding { kind, critical, text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::netstat::Values;

    fn recently(values: Values) -> Totals {
        Totals { generation: 0, all: values, recent: values, conntrack: Conntrack::Absent, somaxconn: Some(4096) }
    }

    /// Overflows, drops, ReqQFullDrop, ReqQFullDoCookies, cookies sent, cookies received.
    fn totals([overflows, drops, refused, cookies, sent, received]: [u64; 6]) -> Totals {
        recently([
            Some(overflows),
            Some(drops),
            Some(refused),
            Some(cookies),
            Some(sent),
            Some(received),
            Some(0),
            Some(0),
            Some(received),
        ])
    }

    fn kinds(totals: &Totals) -> Vec<(FindingKind, bool)> {
        read(totals, &Queues::default()).into_iter().map(|finding| (finding.kind, finding.critical)).collect()
    }

    #[test]
    fn drops_without_overflows_are_dropped_for_another_reason() {
        let totals = totals([0, 20, 0, 0, 0, 0]);
        assert_eq!(dropped_otherwise(&named(totals.recent)), Some(20));
        assert_eq!(kinds(&totals), [(FindingKind::DroppedOtherwise, false)]);
        assert!(read(&totals, &Queues::default())[0].text.contains("another reason than a full accept queue"));
    }

    #[test]
    fn more_overflows_than_drops_is_never_below_zero() {
        // Each is summed over the CPUs one after the other, so a packet in between can show in one only.
        assert_eq!(dropped_otherwise(&named(totals([7, 6, 0, 0, 0, 0]).recent)), Some(0));
        assert_eq!(dropped_otherwise(&NamespaceCounters::default()), None);
    }

    #[test]
    fn overflows_are_attempts_and_the_limit_stands_beside_what_the_namespace_allows() {
        let queues = Queues { full: Some(("0.0.0.0:3000".parse().unwrap(), 511)), standing: None };
        let findings = read(&totals([250, 250, 0, 0, 0, 0]), &queues);
        assert_eq!(findings.len(), 1);
        assert_eq!(
            findings[0].text,
            "the accept queue was full: 250 attempts refused (packets, not clients: each retry counts again); \
             0.0.0.0:3000 holds at most 511 + 1 although the namespace allows 4096 (somaxconn): listen() asked for less"
        );
    }

    #[test]
    fn a_queue_that_stands_is_named_with_the_age_of_its_oldest_connection() {
        let standing = Standing {
            address: "0.0.0.0:3000".parse().unwrap(),
            age: Duration::from_millis(12_400),
            depth: 5,
            abandoned: Some(5),
        };
        let findings = read(&totals([0; 6]), &Queues { standing: Some(standing), ..Queues::default() });
        assert_eq!(
            findings[0].text,
            "0.0.0.0:3000: the oldest of 5 queued connections has waited 12 s; 5 of them were given up by their clients"
        );
        assert_eq!((findings.len(), findings[0].critical), (1, false));
    }

    #[test]
    fn half_open_attempts_that_complete_are_a_burst_and_others_are_pressure() {
        for (row, expected) in [
            ([0, 0, 0, 11, 11, 0], (FindingKind::HalfOpenPressure, false)),
            ([0, 11, 11, 0, 0, 0], (FindingKind::HalfOpenPressure, true)),
            ([0, 0, 0, 20, 20, 0], (FindingKind::HalfOpenPressure, false)),
            ([0, 0, 0, 500, 500, 480], (FindingKind::Burst, false)),
        ] {
            assert_eq!(kinds(&totals(row)), [expected], "{row:?}");
        }
    }

    #[test]
    fn connection_tracking_is_before_tcp() {
        let full =
            Totals { conntrack: Conntrack::Table { count: 262_144, max: 262_144 }, ..totals([0, 0, 0, 0, 0, 0]) };
        let findings = read(&full, &Queues::default());
        assert_eq!(findings[0].text, "drops are before TCP: connection tracking full (262144 of 262144)");
        let unknown = Totals { conntrack: Conntrack::Unknown, ..full };
        assert_eq!(read(&unknown, &Queues::default())[0].text, "connection tracking: unknown (other namespace)");
        let half = Totals { conntrack: Conntrack::Table { count: 9, max: 18 }, ..full };
        assert_eq!(read(&half, &Queues::default()), []);
    }

    #[test]
    fn fast_open_overflow_alone_is_a_fallback() {
        let mut values = totals([0; 6]).recent;
        values[7] = Some(3);
        assert_eq!(kinds(&recently(values)), [(FindingKind::FastOpenFallback, false)]);
    }

    #[test]
    fn nothing_is_nothing() {
        assert_eq!(kinds(&totals([0; 6])), []);
        assert_eq!(kinds(&recently(Values::default())), []);
    }
}
