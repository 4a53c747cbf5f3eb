//! A workload as TOML: who asks for what, and the bands each policy's figures must fall into.

use super::figures::Figures;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A workload.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// For headings and file names.
    pub name: String,
    /// One sentence.
    pub about: String,
    /// Simulated time.
    pub seconds: u64,
    /// Time before figures count.
    #[serde(default)]
    pub warm_up_seconds: u64,
    /// Of the random numbers.
    pub seed: u64,
    pub(super) pool: Pool,
    pub(super) keys: Vec<Group>,
    pub(super) stream: Stream,
    pub(super) client: Client,
    pub(super) refusing: Option<Refusing>,
    /// Each policy with its bands, in the order of the table.
    pub run: Vec<Run>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pool {
    pub(super) members: u32,
    pub(super) slots: u32,
    pub(super) reserve: u32,
    /// Longest park.
    pub(super) max_wait_seconds: u64,
    /// Percent, for the equal split.
    pub(super) threshold: u8,
    /// Slots of one key at most, for the static cap.
    pub(super) static_cap: u32,
}

/// Keys that behave alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    /// How many keys.
    pub(super) count: u32,
    /// Requests each keeps going at once.
    pub(super) streams: u32,
    /// Between the end of one request and the next, evenly within.
    pub(super) pause_seconds: [f64; 2],
    /// The org that all of them are of, if any.
    pub(super) org: Option<u32>,
    /// Whether these are the ones to protect.
    #[serde(default)]
    pub(super) light: bool,
}

/// Lengths of streams: Pareto, cut.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stream {
    pub(super) shortest_seconds: f64,
    pub(super) longest_seconds: f64,
    pub(super) shape: f64,
}

/// What clients do with a refusal: try again after the longer of this, doubling, and Retry-After, so many times.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Client {
    pub(super) retries: u32,
    pub(super) backoff_seconds: f64,
}

/// The first member answers 429 to whatever is new when this share of the time is over; its running streams go on.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Refusing {
    pub(super) from_percent: u64,
}

/// A policy and the bands its figures must fall into, by the name of the figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The policy.
    pub policy: Choice,
    /// Bands by figure.
    pub bands: BTreeMap<String, Band>,
}

/// Lowest and highest allowed value.
pub type Band = [f64; 2];

/// A policy to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// No governor: what a proxy does by itself. Members' caps without a reserve, first come first served, immediate
    /// refusal without Retry-After, a member that answered 429 left alone for a while, no second member.
    None,
    /// Member slots, parking and cool-down, no fair-share rule.
    Off,
    /// Every key may hold so many, full pool or not; over it is refused at once.
    StaticCap,
    /// `fair_share = THRESHOLD`, recorded and not enforced.
    Observe,
    /// `fair_share = THRESHOLD`.
    EqualSplit,
    /// `fair_share = "max-min"` with the usual headroom.
    MaxMin,
}

impl Choice {
    /// As tables name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "no governor",
            Self::Off => "off",
            Self::StaticCap => "static cap",
            Self::Observe => "observe",
            Self::EqualSplit => "equal-split",
            Self::MaxMin => "max-min",
        }
    }
}

impl Workload {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    /// Those of `tests/scenarios`.
    ///
    /// # Panics
    /// If one of them is broken.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let texts = [
            include_str!("../../scenarios/incident.toml"),
            include_str!("../../scenarios/one-heavy-nine-light.toml"),
            include_str!("../../scenarios/equals.toml"),
            include_str!("../../scenarios/mixed.toml"),
            include_str!("../../scenarios/orgs.toml"),
        ];
        texts.map(|text| Self::parse(text).expect("a scenario is sound")).into()
    }

    /// Slots for ordinary requests on members that do not refuse.
    pub(super) fn ordinary_slots(&self, choice: Choice) -> u32 {
        let well = self.pool.members - u32::from(self.refusing.is_some());
        well * (self.pool.slots - self.reserve(choice))
    }

    /// Before the governor nothing was kept back: the cap of a member was all of its slots.
    pub(super) fn reserve(&self, choice: Choice) -> u32 {
        if choice == Choice::None { 0 } else { self.pool.reserve }
    }
}

impl Run {
    /// Every figure that is outside its band, one sentence each; a band for a figure there is not is one too.
    #[must_use]
    pub fn misses(&self, figures: &Figures) -> Vec<String> {
        let check = |(name, [low, high]): (&String, &Band)| {
            let Some(value) = figures.by_name(name) else { return Some(format!("there is no figure \"{name}\"")) };
            (!(*low..=*high).contains(&value)).then(|| format!("{name} is {value:.3}, not within {low}-{high}"))
        };
        self.bands.iter().filter_map(check).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_outside_its_band_and_a_band_without_a_figure_are_told() {
        let bands = [("jain", [0.9, 1.0]), ("refused_percent", [0.0, 1.0]), ("joy", [0.0, 1.0])];
        let bands = bands.map(|(name, band)| (name.to_owned(), band)).into();
        let run = Run { policy: Choice::Off, bands };
        let figures = Figures { jain: 0.5, ..Figures::default() };
        let misses = run.misses(&figures);
        assert_eq!(misses, ["jain is 0.500, not within 0.9-1", "there is no figure \"joy\""]);
    }

    #[test]
    fn a_misspelt_setting_is_an_error() {
        let text = include_str!("../../scenarios/incident.toml").replace("seed =", "sead =");
        assert!(Workload::parse(&text).is_err_and(|error| error.contains("sead")));
    }
}
