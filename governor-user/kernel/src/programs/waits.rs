//! Reads how long connections waited: the histograms of the programs' map, only those that changed. What becomes of them is
//! the part of `accounting::waits`.

use super::maps::{self, Maps};
use super::reading::{ListenerReading, SojournReading};
use governor_common::abi::{Control, Longest, Sojourn};
use std::collections::BTreeMap;

/// Reads the histograms.
#[derive(Debug, Default)]
pub(crate) struct WaitReader {
    /// Number of the interval that this reading ends.
    ended: u16,
    known: BTreeMap<u64, Known>,
}

/// A listener's histogram as it was last read.
#[derive(Debug, Default)]
struct Known {
    reading: SojournReading,
    /// Accepts counted when it was read.
    accepted: u64,
    /// It was read once more since that changed: a program counts the accept first and its wait a moment later.
    settled: bool,
}

impl WaitReader {
    /// Begins a reading, and with it a new interval for the programs.
    pub(crate) fn begin(&mut self, maps: &mut Maps) -> Result<(), maps::Error> {
        let control = maps.control()?;
        let [low, high, ..] = control.interval.to_le_bytes();
        self.ended = u16::from_le_bytes([low, high]);
        maps.set_control(Control { interval: control.interval.wrapping_add(1), ..control })
    }

    /// The waits of a listener that has `accepted` so many.
    pub(crate) fn read(&mut self, maps: &Maps, cookie: u64, accepted: u64) -> Result<SojournReading, maps::Error> {
        let known = self.known.entry(cookie).or_default();
        if known.accepted == accepted && known.settled {
            known.reading.longest_ns = None;
            return Ok(known.reading.clone());
        }
        known.settled = known.accepted == accepted;
        known.accepted = accepted;
        known.reading = summary(&maps.sojourn(cookie)?.unwrap_or_default(), self.ended);
        Ok(known.reading.clone())
    }

    /// Forgets the listeners that are gone.
    pub(crate) fn retain(&mut self, listeners: &[ListenerReading]) {
        let mut there = listeners.iter().map(|listener| listener.cookie).peekable();
        // Both ascend.
        self.known.retain(|cookie, _| {
            while there.next_if(|other| other < cookie).is_some() {}
            there.peek() == Some(cookie)
        });
    }
}

/// What of a histogram is not zero, and the longest wait of the interval that `ended`.
pub(crate) fn summary(sojourn: &Sojourn, ended: u16) -> SojournReading {
    let cells = sojourn.longest.map(Longest::from_raw);
    let longest = cells.into_iter().find(|longest| longest.interval == ended && longest.wait_ns != 0);
    SojournReading {
        buckets: sojourn.buckets.iter().copied().enumerate().filter(|(_, count)| *count != 0).collect(),
        sum_ns: sojourn.sum_ns,
        longest_ns: longest.map(|longest| longest.wait_ns),
    }
}
