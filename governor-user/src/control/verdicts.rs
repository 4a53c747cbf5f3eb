//! From the last report to the JSON types of the control API: verdicts by listener, monitors by cause. Pure.

use governor_api as api;
use governor_health::Judged;
use governor_health::Report;
use governor_health::Verdict;
use governor_health::pressure::monitors::cause_names;
use std::net::{IpAddr, SocketAddr};

/// Listeners in trouble that `status` lists.
const MOST_TROUBLED: usize = 20;

/// Which listeners are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    address: Option<IpAddr>,
    port: u16,
}

impl Place {
    /// Reads `443`, `:443`, `*:443`, `10.0.0.1:443` or `[::]:443`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Some(Self { address: Some(address.ip()), port: address.port() });
        }
        let port = text.strip_prefix("*:").or_else(|| text.strip_prefix(':')).unwrap_or(text);
        Some(Self { address: None, port: port.parse().ok()? })
    }

    fn is(self, row: &Judged) -> bool {
        self.port == row.port && self.address.is_none_or(|address| address == row.address)
    }
}

/// `GET /v1/verdicts`: all of them, or those of one place.
#[must_use]
pub fn verdicts(report: &Report, place: Option<Place>) -> Vec<api::ListenerVerdict> {
    let rows = report.listeners.iter().filter(|row| place.is_none_or(|place| place.is(row)));
    rows.map(|row| api::ListenerVerdict {
        netns: row.netns,
        address: row.address,
        port: row.port,
        cookie: row.cookie,
        pids: row.pids.clone(),
        pids_unknown: None,
        watched: row.watched,
        verdict: row.verdict,
        sentence: row.verdict.sentence(&row.evidence),
        remedy: row.verdict.remedy(&row.evidence).to_owned(),
        evidence: row.evidence.clone(),
    })
    .collect()
}

/// Listeners that are not `ok`, those that feed the level first.
#[must_use]
pub fn troubled(report: &Report) -> Vec<api::Troubled> {
    let mut rows: Vec<&Judged> =
        report.listeners.iter().map(AsRef::as_ref).filter(|row: &&Judged| row.verdict != Verdict::Ok).collect();
    rows.sort_by_key(|row| (!row.watched, !row.verdict.is_trouble()));
    rows.into_iter()
        .take(MOST_TROUBLED)
        .map(|row| api::Troubled {
            netns: row.netns,
            address: row.address,
            port: row.port,
            verdict: row.verdict,
            sentence: row.verdict.sentence(&row.evidence),
        })
        .collect()
}

/// Every monitor that knows its measurement.
#[must_use]
pub fn monitors(report: &Report) -> Vec<api::Monitor> {
    let readings = report.pressure.readings.iter();
    readings
        .map(|reading| api::Monitor {
            cause: cause_names(reading.cause).concat(),
            pressure: reading.permille,
            detail: reading.detail.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_health::Evidence;
    use std::sync::Arc;

    fn row(address: &str, port: u16, watched: bool, verdict: Verdict) -> Arc<Judged> {
        Arc::new(Judged {
            cookie: None,
            netns: 1,
            address: address.parse().unwrap(),
            port,
            pids: Vec::new(),
            watched,
            verdict,
            evidence: Evidence::default(),
        })
    }

    #[test]
    fn a_listener_is_named_by_its_port_or_its_address_too() {
        let report = Report {
            listeners: vec![
                row("127.0.0.1", 443, false, Verdict::Ok),
                row("::", 443, false, Verdict::Ok),
                row("::", 80, false, Verdict::Ok),
            ],
            ..Report::default()
        };
        let count = |text: &str| verdicts(&report, Some(Place::parse(text).unwrap())).len();
        assert_eq!(
            [count("443"), count(":443"), count("*:443"), count("[::]:443"), count("127.0.0.1:80")],
            [2, 2, 2, 1, 0]
        );
        for wrong in ["", ":", "https", "70000", "::443", "-1"] {
            assert_eq!(Place::parse(wrong), None, "{wrong:?}");
        }
        assert_eq!(verdicts(&report, None).len(), 3);
    }

    #[test]
    fn those_that_feed_the_level_come_first() {
        let report = Report {
            listeners: vec![
                row("::", 1, false, Verdict::AcceptStarved),
                row("::", 2, true, Verdict::Burst),
                row("::", 3, true, Verdict::Ok),
                row("::", 4, true, Verdict::FdExhausted),
            ],
            ..Report::default()
        };
        let ports: Vec<u16> = troubled(&report).iter().map(|row| row.port).collect();
        assert_eq!(ports, [4, 2, 1]);
    }
}
