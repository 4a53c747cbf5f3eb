//! Which text a scraper gets, by its `Accept` header (RFC 9110): OpenMetrics where it is asked for and not liked less than
//! plain text, else the Prometheus text format, which every scraper and `promtool` reads. Pure.

/// Forms of the page as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// Prometheus text format 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl TextFormat {
    /// The one that a scraper with this `Accept` header gets; with an empty one, or where it accepts neither, plain text.
    #[must_use]
    pub fn of(accept: &str) -> Self {
        let open = quality(accept, "application/openmetrics-text").unwrap_or(0.0);
        // The most specific range that matches counts (RFC 9110, 12.5.1).
        let plain = ["text/plain", "text/*", "*/*"].into_iter().find_map(|range| quality(accept, range)).unwrap_or(0.0);
        if open > 0.0 && open >= plain { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// Value of `Content-Type`.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The highest quality that the header gives to this media range; `None` where it does not name it.
fn quality(accept: &str, wanted: &str) -> Option<f64> {
    let of = |item: &str| {
        let mut parts = item.split(';').map(str::trim);
        let range = parts.next()?.to_ascii_lowercase();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let weight = weight.map_or(Some(1.0), |weight| weight.parse::<f64>().ok())?;
        (range == wanted).then_some(weight)
    };
    accept.split(',').filter_map(of).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scraper_gets_the_text_it_likes_best() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, format) in [
            ("", TextFormat::Prometheus),
            ("*/*", TextFormat::Prometheus),
            ("text/plain", TextFormat::Prometheus),
            ("text/html", TextFormat::Prometheus),
            ("application/openmetrics-text", TextFormat::OpenMetrics),
            ("Application/OpenMetrics-Text; version=1.0.0", TextFormat::OpenMetrics),
            ("application/openmetrics-text;q=0", TextFormat::Prometheus),
            ("text/plain, application/openmetrics-text;q=0.5", TextFormat::Prometheus),
            ("text/plain;q=0.5, application/openmetrics-text;q=0.5", TextFormat::OpenMetrics),
            ("text/plain;q=nonsense", TextFormat::Prometheus),
            ("application/openmetrics-text;q=0.5, text/plain;q=0.1, */*", TextFormat::OpenMetrics),
            ("application/openmetrics-text;q=0.5, text/*;q=0.8, */*;q=0.1", TextFormat::Prometheus),
            (prometheus, TextFormat::OpenMetrics),
        ] {
            assert_eq!(TextFormat::of(accept), format, "{accept:?}");
        }
    }
}
