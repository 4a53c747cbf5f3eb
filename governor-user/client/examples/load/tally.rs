//! Counting logical requests: one entry per request however many tries it took, and exactly one outcome for each,
//! also for those that the end of the run cuts off. Knows nothing of HTTP and reads no clock.

use serde::Serialize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Counts of one class of keys.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<Counts>);

/// How a logical request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Answered, and the stream ended as it should.
    Ok,
    /// The last try was answered 429.
    Refused429,
    /// The last try was answered 529.
    Refused529,
    /// Anything else: no connection, another status, a stream that broke, no answer before the end of the run.
    Error,
}

#[derive(Clone, Debug, Default)]
struct Counts {
    /// Requests being worked on, waiting between two tries included.
    open: u32,
    /// The part of them whose answer is streaming.
    streaming: u32,
    attempts: u64,
    ok: u64,
    refused_429: u64,
    refused_529: u64,
    errors: u64,
    /// Seconds from the first try to the first byte of the successful answer.
    waits: Vec<f64>,
}

/// What is printed about one class. Waits are `None` when nothing was answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct ClassReport {
    pub(crate) requests: u64,
    pub(crate) ok: u64,
    pub(crate) refused_429: u64,
    pub(crate) refused_529: u64,
    pub(crate) errors: u64,
    /// Tries of all requests together.
    pub(crate) attempts: u64,
    pub(crate) wait_p50_seconds: Option<f64>,
    pub(crate) wait_p99_seconds: Option<f64>,
}

/// What a progress line shows of one class.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct ClassProgress {
    pub(crate) open: u32,
    pub(crate) streaming: u32,
    pub(crate) ok: u64,
    pub(crate) refused: u64,
    pub(crate) errors: u64,
}

impl Tally {
    /// A new logical request. Unmeasured ones show as open but count in nothing.
    pub(crate) fn begin(self: &Arc<Self>, measured: bool) -> Pending {
        self.counts().open += 1;
        Pending { tally: Arc::clone(self), measured, attempts: 0, wait: None, outcome: None }
    }

    /// The result so far.
    pub(crate) fn report(&self) -> ClassReport {
        let Counts { attempts, ok, refused_429, refused_529, errors, mut waits, .. } = self.counts().clone();
        waits.sort_by(f64::total_cmp);
        ClassReport {
            requests: ok + refused_429 + refused_529 + errors,
            ok,
            refused_429,
            refused_529,
            errors,
            attempts,
            wait_p50_seconds: percentile(&waits, 50),
            wait_p99_seconds: percentile(&waits, 99),
        }
    }

    /// The figures of a progress line.
    pub(crate) fn progress(&self) -> ClassProgress {
        let counts = self.counts();
        ClassProgress {
            open: counts.open,
            streaming: counts.streaming,
            ok: counts.ok,
            refused: counts.refused_429 + counts.refused_529,
            errors: counts.errors,
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One logical request on its way; counted once, when dropped.
#[derive(Debug)]
pub(crate) struct Pending {
    tally: Arc<Tally>,
    measured: bool,
    attempts: u64,
    wait: Option<Duration>,
    outcome: Option<Outcome>,
}

impl Pending {
    /// Another try begins.
    pub(crate) fn attempt(&mut self) {
        self.attempts += 1;
        self.outcome = None;
    }

    /// A try came to nothing; another may follow.
    pub(crate) fn failed(&mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }

    /// The successful answer's first byte arrived, this long after the first try began.
    pub(crate) fn answered(&mut self, wait: Duration) {
        if self.wait.is_none() {
            self.tally.counts().streaming += 1;
        }
        self.wait = Some(wait);
    }

    /// The request is over.
    pub(crate) fn end(mut self, outcome: Outcome) {
        self.outcome = Some(outcome);
    }
}

impl Drop for Pending {
    /// A request cut off by the end of the run counts as ok while its answer streams, as refused while it waits for its
    /// next try, and as an error while it waits for an answer.
    fn drop(&mut self) {
        let cut_off = if self.wait.is_some() { Outcome::Ok } else { Outcome::Error };
        let mut counts = self.tally.counts();
        counts.open -= 1;
        if self.wait.is_some() {
            counts.streaming -= 1;
        }
        if !self.measured {
            return;
        }
        counts.attempts += self.attempts;
        match self.outcome.unwrap_or(cut_off) {
            Outcome::Ok => {
                counts.ok += 1;
                counts.waits.extend(self.wait.map(|wait| wait.as_secs_f64()));
            }
            Outcome::Refused429 => counts.refused_429 += 1,
            Outcome::Refused529 => counts.refused_529 += 1,
            Outcome::Error => counts.errors += 1,
        }
    }
}

/// The nearest-rank percentile of ascending values; `None` when there are none.
fn percentile(ascending: &[f64], percent: usize) -> Option<f64> {
    let rank = (ascending.len() * percent).div_ceil(100).max(1);
    ascending.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_value_at_the_nearest_rank() {
        let hundred: Vec<f64> = (1..=100_u8).map(f64::from).collect();
        assert_eq!(percentile(&hundred, 50), Some(50.0));
        assert_eq!(percentile(&hundred, 99), Some(99.0));
        assert_eq!(percentile(&hundred, 100), Some(100.0));
        assert_eq!(percentile(&hundred[..3], 50), Some(2.0));
        assert_eq!(percentile(&hundred[..3], 99), Some(3.0));
        assert_eq!(percentile(&hundred[..1], 0), Some(1.0));
        assert_eq!(percentile(&[], 99), None);
    }

    #[test]
    fn every_request_has_one_outcome_however_many_tries_it_took() {
        let tally = Arc::new(Tally::default());
        for outcome in [Outcome::Ok, Outcome::Refused429, Outcome::Refused529, Outcome::Error] {
            let mut pending = tally.begin(true);
            pending.attempt();
            pending.attempt();
            if outcome == Outcome::Ok {
                pending.answered(Duration::from_millis(250));
            }
            pending.end(outcome);
        }
        let report = tally.report();
        assert_eq!((report.requests, report.attempts), (4, 8));
        assert_eq!((report.ok, report.refused_429, report.refused_529, report.errors), (1, 1, 1, 1));
        assert_eq!((report.wait_p50_seconds, report.wait_p99_seconds), (Some(0.25), Some(0.25)));
    }

    #[test]
    fn a_request_cut_off_by_the_end_counts_as_what_it_last_got() {
        let tally = Arc::new(Tally::default());
        let [mut unanswered, mut streaming, mut backing_off] = [(); 3].map(|()| tally.begin(true));
        for pending in [&mut unanswered, &mut streaming, &mut backing_off] {
            pending.attempt();
            pending.failed(Outcome::Refused429);
        }
        unanswered.attempt();
        streaming.attempt();
        streaming.answered(Duration::from_secs(1));
        assert_eq!((tally.progress().open, tally.progress().streaming), (3, 1));
        drop((unanswered, streaming, backing_off));
        let report = tally.report();
        assert_eq!((report.requests, report.ok, report.refused_429, report.errors), (3, 1, 1, 1));
        assert_eq!((tally.progress().open, tally.progress().streaming), (0, 0));
    }

    #[test]
    fn a_stream_that_breaks_after_its_answer_is_an_error_without_a_wait() {
        let tally = Arc::new(Tally::default());
        let mut pending = tally.begin(true);
        pending.answered(Duration::from_secs(1));
        pending.end(Outcome::Error);
        assert_eq!(tally.report().errors, 1);
        assert_eq!(tally.report().wait_p50_seconds, None);
    }

    #[test]
    fn warm_up_requests_count_in_nothing() {
        let tally = Arc::new(Tally::default());
        tally.begin(false).end(Outcome::Error);
        assert_eq!(tally.report(), Tally::default().report());
    }

    #[test]
    fn the_report_has_the_names_that_its_readers_use() {
        let report = serde_json::to_value(Tally::default().report()).unwrap();
        let names: Vec<_> = report.as_object().unwrap().keys().cloned().collect();
        let expected = [
            "attempts",
            "errors",
            "ok",
            "refused_429",
            "refused_529",
            "requests",
            "wait_p50_seconds",
            "wait_p99_seconds",
        ];
        assert_eq!(names, expected);
        assert!(report["wait_p50_seconds"].is_null());
    }
}
