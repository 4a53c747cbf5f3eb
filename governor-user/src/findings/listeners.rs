//! Findings about listeners: one for each place, however many sockets listen there. What requests wait for is a finding
//! about their pool.

use super::HealthFinding;
use super::Severity;
use governor_health::Judged;
use governor_health::Report;
use governor_health::Verdict;
use governor_observation::HalfOpen;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// One finding a place at most. Listeners that feed the level are the node's own business; those of other processes are
/// worth a look only.
pub(super) fn findings(report: &Report) -> Vec<HealthFinding> {
    let mut places: BTreeMap<(u64, SocketAddr), Vec<&Judged>> = BTreeMap::new();
    for row in &report.listeners {
        places.entry((row.netns, SocketAddr::new(row.address, row.port))).or_default().push(row);
    }
    places.iter().filter_map(|((_, place), sockets)| of(*place, sockets)).collect()
}

fn of(place: SocketAddr, sockets: &[&Judged]) -> Option<HealthFinding> {
    let (severity, worst) =
        sockets.iter().filter_map(|row| Some((severity(row)?, *row))).min_by_key(|(grade, row)| {
            // Of one severity the verdict that comes first in the order of diagnosis.
            (*grade, row.verdict)
        })?;
    let same = sockets.iter().filter(|row| row.verdict == worst.verdict).count();
    let (severity, of_them) = match (worst.verdict, sockets.len()) {
        (_, 1) => (severity, String::new()),
        // The others still accept: only the clients that hash to this one wait.
        (Verdict::AcceptorStalled, all) if same < all => (Severity::Watch, format!("{same} of {all} sockets: ")),
        (_, all) => (severity, format!("{same} of {all} sockets: ")),
    };
    let sentence = format!("{}: {of_them}{}", worst.verdict, worst.verdict.sentence(&worst.evidence));
    let next = format!("governorctl explain listener {place}");
    Some(HealthFinding::new(severity, format!("listener {place}"), sentence, next))
}

/// `None` for what needs no attention here.
fn severity(row: &Judged) -> Option<Severity> {
    let harms = match row.verdict {
        Verdict::FdExhausted | Verdict::AcceptorStalled | Verdict::AcceptStarved => true,
        Verdict::HalfOpenPressure => row.evidence.namespace.half_open() == HalfOpen::Critical,
        Verdict::Misconfigured => row.evidence.backlog != Some(0),
        Verdict::Burst => return (row.watched && row.evidence.overflows > Some(0)).then_some(Severity::Watch),
        Verdict::Ok | Verdict::UpstreamDown | Verdict::UpstreamSlow | Verdict::InflightSaturated => return None,
    };
    Some(if harms && row.watched { Severity::Problem } else { Severity::Watch })
}
