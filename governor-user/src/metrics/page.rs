//! One exposition being written. Keeps the list of what was registered, so that the documentation can be held against
//! it.

use super::sojourn::Waits;
#[cfg(feature = "native-histograms")]
use prometheus_client::encoding::prometheus_protobuf::{EncodeError as ProtobufError, encode_to_vec};
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::atomic::AtomicU64;

/// Labels of one series.
pub(super) type Labels = Vec<(&'static str, String)>;
/// One series.
pub(super) type Row<T> = (Labels, T);

/// One metric as a scraper sees it, without its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Registered {
    /// Full name, with the suffix that a counter's samples have.
    pub(super) name: String,
    /// `counter`, `gauge` or `histogram`.
    pub(super) kind: &'static str,
    /// What it means.
    pub(super) help: String,
}

/// Series whose values are all there already.
#[derive(Debug)]
struct Rows(Vec<Row<Waits>>);

impl EncodeMetric for Rows {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.iter().try_for_each(|(labels, waits)| waits.encode(encoder.encode_family(labels)?))
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// The page.
#[derive(Debug)]
pub(super) struct Page {
    registry: Registry,
    registered: Vec<Registered>,
}

impl Page {
    pub(super) fn new() -> Self {
        Self { registry: Registry::with_prefix("governor"), registered: Vec::new() }
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, rows: Vec<Row<f64>>) {
        let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
        for (labels, value) in rows {
            family.get_or_create(&labels).set(value);
        }
        self.note(format!("governor_{name}"), "gauge", help);
        self.registry.register(name, help, family);
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, rows: Vec<Row<u64>>) {
        let family = Family::<Labels, Counter>::default();
        for (labels, value) in rows {
            family.get_or_create(&labels).inc_by(value);
        }
        self.note(format!("governor_{name}_total"), "counter", help);
        self.registry.register(name, help, family);
    }

    /// Histograms that were counted elsewhere.
    pub(super) fn histograms(&mut self, name: &str, help: &str, rows: Vec<Row<Waits>>) {
        self.note(format!("governor_{name}"), "histogram", help);
        self.registry.register(name, help, Rows(rows));
    }

    /// A histogram that the daemon observes itself.
    pub(super) fn histogram(&mut self, name: &str, help: &str, histogram: Histogram) {
        self.note(format!("governor_{name}"), "histogram", help);
        self.registry.register(name, help, histogram);
    }

    /// What was registered, in order.
    #[cfg(test)]
    pub(super) fn registered(&self) -> &[Registered] {
        &self.registered
    }

    /// In the Prometheus text format, where the family of a counter is called as its samples are.
    ///
    /// # Errors
    /// A string cannot be written to, which does not happen.
    pub(super) fn prometheus_text(&self) -> Result<String, fmt::Error> {
        Ok(prometheus(&self.text()?))
    }

    /// As OpenMetrics text.
    ///
    /// # Errors
    /// A string cannot be written to, which does not happen.
    pub(super) fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    /// As delimited protobuf, which has room for native histograms.
    ///
    /// # Errors
    /// A buffer cannot be written to, which does not happen.
    #[cfg(feature = "native-histograms")]
    pub(super) fn protobuf(&self) -> Result<Vec<u8>, ProtobufError> {
        encode_to_vec(&self.registry)
    }

    fn note(&mut self, name: String, kind: &'static str, help: &str) {
        self.registered.push(Registered { name, kind, help: help.to_owned() });
    }
}

/// OpenMetrics text in the Prometheus text format: names of counters with their suffix, no mark of the end.
fn prometheus(text: &str) -> String {
    let is_counter = |name: &str| text.contains(&format!("# TYPE {name} counter\n"));
    let mut out = String::with_capacity(text.len());
    for line in text.lines().filter(|line| *line != "# EOF") {
        let described = line.strip_prefix("# HELP ").map(|rest| ("HELP", rest));
        let described = described.or_else(|| line.strip_prefix("# TYPE ").map(|rest| ("TYPE", rest)));
        match described.and_then(|(kind, rest)| Some((kind, rest.split_once(' ')?))) {
            Some((kind, (name, rest))) if is_counter(name) => out.push_str(&format!("# {kind} {name}_total {rest}")),
            Some(_) | None => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_texts_have_the_same_series() {
        let mut page = Page::new();
        page.gauge("parked", "Parked requests", vec![(Vec::new(), 2.0)]);
        page.counter("shed", "Refusals", vec![(vec![("reason", "a\"b".to_owned())], 7)]);
        assert_eq!(
            page.prometheus_text().unwrap(),
            "# HELP governor_parked Parked requests.\n# TYPE governor_parked gauge\ngovernor_parked 2.0\n\
             # HELP governor_shed_total Refusals.\n# TYPE governor_shed_total counter\n\
             governor_shed_total{reason=\"a\\\"b\"} 7\n"
        );
    }
}
