//! The last report as series: the pressure of each monitor, and what is wrong with each listener.

use super::kernel::MOST_LISTENERS;
use super::page::Page;
use governor_health::Judged;
use governor_health::Report;
use governor_health::pressure::monitors::cause_names;

/// Writes both.
pub(super) fn write(page: &mut Page, report: &Report) {
    page.gauge(
        "monitor_pressure_ratio",
        "How much each monitor of overload presses, 0 to 1; absent where its measurement is not known",
        report
            .pressure
            .readings
            .iter()
            .map(|reading| (vec![("cause", cause_names(reading.cause).concat())], f64::from(reading.permille) / 1000.0))
            .collect(),
    );
    let labels = |row: &Judged| {
        vec![
            ("netns", row.netns.to_string()),
            ("address", row.address.to_string()),
            ("port", row.port.to_string()),
            ("cookie", row.cookie.map(|cookie| cookie.to_string()).unwrap_or_default()),
            ("verdict", row.verdict.as_str().to_owned()),
        ]
    };
    page.gauge(
        "listener_verdict",
        "1 for what is wrong with the listener, ok if nothing is; governorctl explain listener has the evidence",
        report.listeners.iter().take(MOST_LISTENERS).map(|row| (labels(row), 1.0)).collect(),
    );
}
