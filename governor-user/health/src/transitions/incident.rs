//! One level over time, as people read it in the journal: its start and each new peak at once, and at its end the peak, how
//! long that lasted and how long the level was above normal. At most four records an incident, and incidents are at least
//! [`QUIET`] apart, so that a level that flaps does not fill the journal.

use crate::pressure::monitors::cause_names;
use crate::seconds;
use governor_common::wire::reply::Level;
use governor_engine::time::{Duration, Instant};

/// An incident is over when the level has been normal for so long; until then a new rise belongs to it.
const QUIET: Duration = Duration::from_secs(10);

/// The level at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) level: Level,
    /// In ‰.
    pub(super) pressure: u16,
    /// Bits of [`cause`](governor_common::wire::reply::cause).
    pub(super) causes: u32,
}

/// What is to be recorded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) before: Level,
    pub(super) after: Level,
    pub(super) reason: String,
}

/// From the first moment above normal until the level has been normal for [`QUIET`].
#[derive(Debug, Default)]
pub(super) struct Incident(Option<Open>);

#[derive(Debug)]
struct Open {
    begun: Instant,
    /// When the level was read last.
    last: Instant,
    /// Since when it has been normal.
    normal_since: Option<Instant>,
    peak: Level,
    at_peak: Duration,
    /// The highest.
    pressure: u16,
    /// All of them.
    causes: u32,
    /// The level was at its peak at the last reading.
    is_at_peak: bool,
}

impl Incident {
    /// Takes a reading; what has to be recorded now.
    pub(super) fn note(&mut self, reading: Reading, now: Instant) -> Option<Step> {
        let Reading { level, pressure, causes } = reading;
        let why = || format!("pressure {pressure} ‰: {}", cause_names(causes).join(", "));
        let Some(open) = &mut self.0 else {
            if level == Level::Normal {
                return None;
            }
            self.0 = Some(Open {
                begun: now,
                last: now,
                normal_since: None,
                peak: level,
                at_peak: Duration::ZERO,
                pressure,
                causes,
                is_at_peak: true,
            });
            return Some(Step { before: Level::Normal, after: level, reason: why() });
        };
        if open.is_at_peak {
            open.at_peak += now.since(open.last);
        }
        open.last = now;
        open.is_at_peak = level >= open.peak;
        if level == Level::Normal {
            let since = *open.normal_since.get_or_insert(now);
            return (now.since(since) >= QUIET).then(|| self.close(since)).flatten();
        }
        open.normal_since = None;
        open.pressure = open.pressure.max(pressure);
        open.causes |= causes;
        if level <= open.peak {
            return None;
        }
        open.at_peak = Duration::ZERO;
        let before = std::mem::replace(&mut open.peak, level);
        Some(Step { before, after: level, reason: why() })
    }

    fn close(&mut self, ended: Instant) -> Option<Step> {
        let Open { begun, peak, at_peak, pressure, causes, .. } = self.0.take()?;
        let reason = format!(
            "peak {} for {} at up to {pressure} ‰, above normal for {}: {}",
            peak.as_str(),
            seconds(at_peak.as_secs_f64()),
            seconds(ended.since(begun).as_secs_f64()),
            cause_names(causes).join(", ")
        );
        Some(Step { before: peak, after: Level::Normal, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_common::wire::reply::cause;

    /// Records of a level that is read every 100 ms; each stretch lasts so many seconds.
    fn recorded(stretches: &[(Level, u64)]) -> Vec<(u64, Level, Level, String)> {
        let mut incident = Incident::default();
        let (mut records, mut ms) = (Vec::new(), 0);
        for &(level, seconds) in stretches {
            for _ in 0..seconds * 10 {
                let pressure = u16::try_from(level as u32 * 333).unwrap();
                let now = Instant::ZERO.after(Duration::from_millis(ms));
                let reading = Reading { level, pressure, causes: cause::ACCEPT_FILL };
                let step = incident.note(reading, now);
                records.extend(step.map(|Step { before, after, reason }| (ms, before, after, reason)));
                ms += 100;
            }
        }
        records
    }

    #[test]
    fn a_short_incident_leaves_its_peak_and_how_long_that_lasted() {
        use Level::{Elevated, Normal, Overloaded};
        let records = recorded(&[(Normal, 5), (Elevated, 1), (Overloaded, 6), (Elevated, 1), (Normal, 20)]);
        let steps: Vec<_> = records.iter().map(|(ms, before, after, _)| (*ms, *before, *after)).collect();
        assert_eq!(steps, [(5_000, Normal, Elevated), (6_000, Elevated, Overloaded), (23_000, Overloaded, Normal)]);
        assert_eq!(records[2].3, "peak overloaded for 6.0 s at up to 999 ‰, above normal for 8.0 s: accept_fill");
    }

    #[test]
    fn a_level_that_flaps_is_one_incident() {
        use Level::{High, Normal};
        let flapping: Vec<_> = [(High, 1), (Normal, 2)].repeat(1000);
        let records = recorded(&flapping);
        assert_eq!(records.len(), 1, "it has not ended");
        let ended = recorded(&[flapping, vec![(Normal, 11)]].concat());
        assert!(ended.last().unwrap().3.starts_with("peak high for 1000 s at up to 666 ‰, above normal for 2998 s"));
    }

    #[test]
    fn each_incident_is_recorded_from_its_start() {
        use Level::{Elevated, Normal};
        let twice = recorded(&[(Elevated, 1), (Normal, 12), (Elevated, 1), (Normal, 12)]);
        assert_eq!(twice.iter().map(|record| record.0).collect::<Vec<_>>(), [0, 11_000, 13_000, 24_000]);
    }
}
