//! What the demo found out, as data: the JSON that other checks read, and the rule for the exit code.

use serde::{Deserialize, Serialize};

/// Light keys must be answered this fast, in seconds, for all but one request in a hundred.
const LIGHT_WAIT: f64 = 5.0;

/// This share of the ordinary slots must be in use on average.
const UTILISATION: f64 = 0.7;

/// Everything `--json` writes. What is not known is null.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figures {
    /// First come, first served.
    pub(super) without: PhaseFigures,
    /// With the governor.
    pub(super) with: PhaseFigures,
    /// The gateway's listener while the governor was asked.
    pub(super) kernel: KernelFigures,
}

/// One phase.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PhaseFigures {
    pub(super) light: ClassFigures,
    pub(super) heavy: ClassFigures,
    /// Average use of the ordinary slots of accounts that served, 0–1.
    pub(super) utilisation: Option<f64>,
}

/// One class of keys; counts are logical requests, not tries.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct ClassFigures {
    pub(super) requests: u64,
    pub(super) ok: u64,
    pub(super) refused_429: u64,
    pub(super) refused_529: u64,
    pub(super) errors: u64,
    pub(super) wait_p50_seconds: Option<f64>,
    pub(super) wait_p99_seconds: Option<f64>,
    /// Tries of all requests, for the table only.
    #[serde(skip_serializing)]
    pub(super) attempts: u64,
}

/// What the kernel counted.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct KernelFigures {
    /// How the kernel was observed.
    pub(super) tier: Option<String>,
    pub(super) listener: ListenerFigures,
}

/// The gateway's listener.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct ListenerFigures {
    pub(super) port: Option<u16>,
    pub(super) backlog: Option<u64>,
    pub(super) depth_peak: Option<u64>,
    pub(super) accepted: Option<u64>,
    pub(super) overflows: Option<u64>,
}

impl ClassFigures {
    /// Requests that were not answered.
    pub(super) fn failed(&self) -> u64 {
        self.requests - self.ok.min(self.requests)
    }
}

impl Figures {
    /// What the governor was to achieve and did not; empty when it did.
    pub(super) fn failures(&self) -> Vec<String> {
        let PhaseFigures { light, utilisation, .. } = &self.with;
        let mut failures = Vec::new();
        if light.requests == 0 {
            failures.push("no light request was made".to_owned());
        }
        if light.failed() > 0 {
            failures.push(format!("{} of {} light requests failed", light.failed(), light.requests));
        }
        match light.wait_p99_seconds {
            Some(wait) if wait < LIGHT_WAIT => {}
            Some(wait) => failures.push(format!("light requests waited {wait:.2} s (p99), not under {LIGHT_WAIT} s")),
            None => failures.push("no light request's wait is known".to_owned()),
        }
        match utilisation {
            Some(share) if *share >= UTILISATION => {}
            Some(share) => failures.push(format!(
                "{:.1} % of the ordinary slots were used, not at least {:.0} %",
                share * 100.0,
                UTILISATION * 100.0
            )),
            None => failures.push("the use of the slots is not known".to_owned()),
        }
        failures
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::{Value, json};

    pub(in crate::demo) fn good() -> Figures {
        let light = ClassFigures {
            requests: 240,
            ok: 240,
            wait_p50_seconds: Some(0.05),
            wait_p99_seconds: Some(0.3),
            attempts: 240,
            ..ClassFigures::default()
        };
        let refused = ClassFigures { ok: 140, refused_429: 100, ..light.clone() };
        Figures {
            without: PhaseFigures { light: refused.clone(), heavy: refused.clone(), utilisation: Some(0.99) },
            with: PhaseFigures { light, heavy: refused, utilisation: Some(0.7) },
            kernel: KernelFigures::default(),
        }
    }

    #[test]
    fn all_three_conditions_met_is_a_success() {
        assert!(good().failures().is_empty());
    }

    #[test]
    fn each_missed_condition_is_named() {
        type Spoil = fn(&mut Figures);
        let rows: [(Spoil, &str); 7] = [
            (|f| f.with.light.ok -= 1, "1 of 240 light requests failed"),
            (|f| f.with.light = ClassFigures { wait_p99_seconds: Some(0.1), ..ClassFigures::default() }, "no light"),
            (|f| f.with.light.wait_p99_seconds = Some(5.0), "waited 5.00 s"),
            (|f| f.with.light.wait_p99_seconds = None, "wait is known"),
            (|f| f.with.utilisation = Some(0.699), "69.9 % of the ordinary slots"),
            (|f| f.with.utilisation = None, "not known"),
            (|f| f.with.utilisation = Some(f64::NAN), "NaN"),
        ];
        for (spoil, words) in rows {
            let mut figures = good();
            spoil(&mut figures);
            let failures = figures.failures();
            assert!(failures.len() == 1 && failures[0].contains(words), "{words}: {failures:?}");
        }
    }

    #[test]
    fn what_happened_without_the_governor_decides_nothing() {
        let mut figures = good();
        figures.without =
            PhaseFigures { light: ClassFigures::default(), heavy: ClassFigures::default(), utilisation: None };
        assert!(figures.failures().is_empty());
    }

    #[test]
    fn the_json_has_exactly_the_agreed_shape() {
        let class = json!({
            "requests": 240, "ok": 140, "refused_429": 100, "refused_529": 0, "errors": 0,
            "wait_p50_seconds": 0.05, "wait_p99_seconds": 0.3,
        });
        let mut served = class.clone();
        served["ok"] = 240.into();
        served["refused_429"] = 0.into();
        let listener = json!({"port": null, "backlog": null, "depth_peak": null, "accepted": null, "overflows": null});
        let expected = json!({
            "without": {"light": class, "heavy": class, "utilisation": 0.99},
            "with": {"light": served, "heavy": class, "utilisation": 0.7},
            "kernel": {"tier": null, "listener": listener},
        });
        let written: Value = serde_json::to_value(good()).unwrap();
        assert_eq!(written, expected);
    }

    #[test]
    fn a_load_report_is_read_with_what_it_has_beside() {
        let class: ClassFigures = serde_json::from_value(json!({
            "requests": 3, "ok": 1, "refused_429": 1, "refused_529": 1, "errors": 0, "attempts": 7,
            "wait_p50_seconds": 0.1, "wait_p99_seconds": null, "more": true,
        }))
        .unwrap();
        assert_eq!((class.failed(), class.attempts), (2, 7));
    }
}
