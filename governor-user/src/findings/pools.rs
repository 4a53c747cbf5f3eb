//! Findings about pools: an upstream that is down, requests that wait, members that cool.

use super::HealthFinding;
use super::Severity;
use governor_engine::time::Duration;
use governor_health::Report;
use governor_health::listeners::evidence::PoolWork;
use governor_health::seconds;

/// A request that has waited this long is more than a full pool's ordinary queue, in seconds.
const LONG_WAIT: f64 = 10.0;

const MEMBERS: &str = "governorctl members";

/// One finding a pool at most: the one that explains the others.
pub(super) fn findings(report: &Report, hold: Duration) -> Vec<HealthFinding> {
    report.pools.iter().filter_map(|pool| of(pool, hold)).collect()
}

fn of(pool: &PoolWork, hold: Duration) -> Option<HealthFinding> {
    let subject = format!("pool {}", pool.name);
    if pool.is_down(hold) {
        let sentence =
            format!("the upstream has failed for {}: {}", seconds(pool.down_seconds), pool.failing_members());
        return Some(HealthFinding::problem(subject, sentence, MEMBERS));
    }
    if pool.is_saturated(hold) {
        let waits_long = pool.oldest_seconds.is_some_and(|oldest| oldest >= LONG_WAIT);
        let severity = if pool.capacity == 0 || waits_long { Severity::Problem } else { Severity::Watch };
        return Some(HealthFinding::new(severity, subject, pool.saturation(), "governorctl keys"));
    }
    if pool.members > 0 && pool.usable == 0 {
        let sentence = "no member takes requests: every member is draining or has no slots";
        return Some(HealthFinding::watch(subject, sentence, MEMBERS));
    }
    (pool.failing > 0).then(|| HealthFinding::watch(subject, pool.failing_members(), MEMBERS))
}
