//! `GET /v1/advise`: recorded demand, every setting worth trying, and what each would have done. Reads the disk and
//! computes for a while: on a thread of its own, one at a time, in memory that does not grow with the record.

use super::views;
use crate::advise::{Collector, Jobs, replay};
use crate::records::demand;
use governor_api as api;
use governor_engine::policy::{FairShare, Headroom, Policy};
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Thresholds worth trying, in percent.
const THRESHOLDS: [u8; 8] = [60, 65, 70, 75, 80, 85, 90, 95];

/// Questions for advice that are worked on at once: each takes a core for seconds, and some 40 MB.
const AT_ONCE: usize = 1;

/// Lets one question through at a time.
#[derive(Clone, Debug)]
pub(super) struct Turn(Arc<Semaphore>);

impl Default for Turn {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

/// Why there is no advice.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAdvice {
    /// Another question is being worked on.
    #[error("other advice is being worked out; one question at a time")]
    Busy,
    /// The record cannot be read, or the thread cannot run.
    #[error("no advice: {0}")]
    Failed(#[from] io::Error),
}

impl Turn {
    /// Works the advice out on a thread of its own. The client may disconnect; the thread then still finishes its work before the
    /// next question is taken.
    ///
    /// # Errors
    /// Another question is being worked on, or the record cannot be read.
    pub(super) async fn advise(
        &self,
        policy: Policy,
        state_dir: PathBuf,
        wall: u64,
        seconds: u64,
    ) -> Result<api::Advice, NoAdvice> {
        let turn = Arc::clone(&self.0).try_acquire_owned().map_err(|_| NoAdvice::Busy)?;
        let (answer, answered) = oneshot::channel();
        let work = move |_turn: OwnedSemaphorePermit| {
            let mut collector = Collector::default();
            let read = demand::read_facts(&state_dir, wall.saturating_sub(seconds), &mut collector);
            read.map(|()| advice(&policy, &collector.finish(wall, seconds)))
        };
        // The turn ends with the work, not with the question.
        let run = move || drop(answer.send(work(turn)));
        std::thread::Builder::new().name("advise".to_owned()).spawn(run)?;
        let lost = || io::Error::other("the thread that worked it out ended without an answer");
        Ok(answered.await.map_err(|_| lost())??)
    }
}

/// What each setting would have done with these jobs.
#[must_use]
fn advice(policy: &Policy, jobs: &Jobs) -> api::Advice {
    let pools = policy.pools.iter().filter_map(|pool| {
        let window = jobs.window;
        let jobs = jobs.pools.get(&pool.name)?;
        let keys: BTreeSet<u128> = jobs.iter().filter_map(|job| job.key).collect();
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
            let outcome = replay(policy, pool, rule, jobs, window);
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
        Some(api::PoolAdvice {
            pool: pool.name.clone(),
            requests: u64::try_from(jobs.len()).unwrap_or(u64::MAX),
            keys: u64::try_from(keys.len()).unwrap_or(u64::MAX),
            settings: rules.into_iter().map(setting).collect(),
        })
    });
    api::Advice { window_seconds: std::time::Duration::from_nanos(jobs.window).as_secs_f64(), pools: pools.collect() }
}
