//! `GET /v1/advise`: recorded demand, every setting worth trying, and what each would have done. Reads the disk and
//! computes for a while: not on the daemon's loop.

use super::{api, views};
use crate::advise::{Job, jobs, replay};
use crate::daemon::demand::Fact;
use governor_engine::policy::{FairShare, Headroom, Policy};
use std::collections::BTreeSet;

/// Thresholds worth trying, in percent.
const THRESHOLDS: [u8; 8] = [60, 65, 70, 75, 80, 85, 90, 95];

/// What each setting would have done with the demand of the last `seconds` up to `wall` (seconds since 1970).
#[must_use]
pub(super) fn advice(policy: &Policy, segments: &[Vec<Fact>], wall: u64, seconds: u64) -> api::Advice {
    let (jobs, window) = jobs(segments, wall, seconds);
    let pools = policy.pools.iter().filter_map(|pool| {
        let jobs: Vec<Job> = jobs.iter().filter(|job| job.pool == pool.name).cloned().collect();
        let keys: BTreeSet<&String> = jobs.iter().filter_map(|job| job.key.as_ref()).collect();
        let mut rules = vec![FairShare::Off];
        rules.extend(THRESHOLDS.map(|threshold| FairShare::EqualSplit { threshold }));
        let present = pool.fair_share;
        rules.push(match present {
            FairShare::MaxMin { .. } => present,
            FairShare::Off | FairShare::EqualSplit { .. } => FairShare::MaxMin { headroom: Headroom::default() },
        });
        if !rules.contains(&present) {
            rules.push(present);
        }
        let setting = |rule: FairShare| {
            let outcome = replay(policy, pool, rule, &jobs, window);
            api::SettingAdvice {
                fair_share: views::fair_share(rule),
                current: rule == present,
                waited_requests: outcome.waited_requests,
                waited_keys: outcome.waited_keys,
                refused_requests: outcome.refused_requests,
                refused_keys: outcome.refused_keys,
                utilisation_percent: outcome.utilisation_percent,
            }
        };
        (!jobs.is_empty()).then(|| api::PoolAdvice {
            pool: pool.name.clone(),
            requests: u64::try_from(jobs.len()).unwrap_or(u64::MAX),
            keys: u64::try_from(keys.len()).unwrap_or(u64::MAX),
            settings: rules.into_iter().map(setting).collect(),
        })
    });
    api::Advice { window_seconds: std::time::Duration::from_nanos(window).as_secs_f64(), pools: pools.collect() }
}
