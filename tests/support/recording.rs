//! Recordings of situations: what the kernel, the processes and the pools showed, moment by moment, as JSON lines, and which
//! verdicts and records are right. Owns the format, reading and writing; replaying is the test's part.
//!
//! The first line is a [`Header`], each further one a [`Moment`]. Listeners and namespaces have the names of
//! `GET /v1/listeners` and `GET /v1/namespaces`, so that a recording outlives changes of the code inside. A reader refuses
//! another [`FORMAT`].

use governor_engine::snapshot::PoolFigures;
use governor_engine::time::Duration;
use governor_health::Loads;
use governor_health::pressure::loads::NamedLoad;
use governor_observation::vitals::Descriptors;
use governor_observation::vitals::Vitals;
use governor_observation::{ListenerView, NamespaceView, Observation, Tier};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::{fs, io};

/// The version of the format.
pub const FORMAT: u32 = 1;

/// The folder of the recordings, one file a situation.
pub const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/recordings/situations");

/// Set to a folder: tests that bring situations about write their recordings there.
pub const WRITE_TO: &str = "GOVERNOR_RECORD_SITUATIONS";

/// What a recording is of and what is right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// See [`FORMAT`].
    pub format: u32,
    /// What happened, in a sentence.
    pub situation: String,
    /// Ports whose listeners are judged; their listeners feed the level.
    pub ports: Vec<u16>,
    /// Processes of connected proxies.
    pub proxies: Vec<u32>,
    /// The right verdicts, in order of time; the last span is open.
    pub verdicts: Vec<Span>,
    /// The right records, in order: action, state before, state after.
    pub records: Vec<(String, String, String)>,
}

/// Until a moment each judged listener has one of these verdicts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// Milliseconds since the first moment, exclusive; `None` is the end.
    pub until_ms: Option<u64>,
    /// Names of verdicts.
    pub any_of: Vec<String>,
}

/// What was seen at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moment {
    /// Milliseconds since the first.
    pub ms: u64,
    /// How the kernel was observed.
    pub tier: Tier,
    /// Listening sockets.
    pub listeners: Vec<ListenerView>,
    /// Their namespaces.
    pub namespaces: Vec<NamespaceView>,
    /// Descriptors of the processes behind them.
    pub descriptors: Vec<Descriptors>,
    /// Counted requests of the node.
    pub counted: u32,
    /// At most so many; 0 is no cap.
    pub cap: u32,
    /// The pools.
    pub pools: Vec<Pool>,
}

/// A pool's figures; counters are since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Slots that count now.
    pub capacity: u32,
    /// Slots held.
    pub in_flight: u32,
    /// Requests that wait.
    pub parked: u32,
    /// Milliseconds for which the oldest of them has waited.
    pub oldest_ms: Option<u64>,
    /// Members.
    pub members: u32,
    /// Those that cool.
    pub cooling: u32,
    /// Those that take requests unless they cool.
    pub usable: u32,
    /// Of the usable, those in a cool-down.
    pub failing: u32,
    /// Grants.
    pub granted: u64,
    /// Reports that a member failed.
    pub failures: u64,
    /// Reports that a member is up.
    pub recoveries: u64,
    /// Refusals for want of a slot.
    pub refused: u64,
    /// All refusals.
    pub refused_in_all: u64,
    /// Leases that their holder released.
    pub ended: u64,
    /// Sum of the milliseconds for which those had held their slot.
    pub held_ms: u64,
}

/// One file.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// What is right.
    pub header: Header,
    /// What was seen.
    pub moments: Vec<Moment>,
}

impl Recording {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, has another format or no moment.
    pub fn read(path: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(path)?;
        let mut lines = text.lines();
        let header: Header = serde_json::from_str(lines.next().unwrap_or_default())?;
        if header.format != FORMAT {
            return Err(io::Error::other(format!("format {}, this reads {FORMAT}", header.format)));
        }
        let moments = lines.map(serde_json::from_str).collect::<Result<Vec<_>, _>>()?;
        if moments.is_empty() {
            return Err(io::Error::other("no moment was recorded"));
        }
        Ok(Self { header, moments })
    }

    /// Writes a file.
    ///
    /// # Errors
    /// The disk refuses it.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = serde_json::to_string(&self.header)?;
        for moment in &self.moments {
            text.push('\n');
            text.push_str(&serde_json::to_string(moment)?);
        }
        fs::write(path, text + "\n")
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Moment {
    /// As the kernel's observer shows it.
    #[must_use]
    pub fn observation(&self) -> Observation {
        Observation {
            tier: self.tier,
            listeners: self.listeners.clone(),
            namespaces: self.namespaces.clone(),
            ..Observation::default()
        }
    }

    /// As the reader of processes shows it.
    #[must_use]
    pub fn vitals(&self) -> Vitals {
        let descriptors = self.descriptors.iter().map(|one| (one.pid, *one)).collect();
        Vitals { descriptors, ..Vitals::default() }
    }

    /// As the engine shows it.
    #[must_use]
    pub fn loads(&self, proxies: &[u32]) -> Loads {
        Loads {
            counted: self.counted,
            cap: self.cap,
            proxies: proxies.iter().copied().collect(),
            pools: self.pools.iter().map(Pool::load).collect(),
        }
    }
}

impl Pool {
    /// From the engine's figures.
    #[must_use]
    pub fn of(name: &str, figures: &PoolFigures, oldest: Option<Duration>) -> Self {
        Self {
            name: name.to_owned(),
            capacity: figures.capacity,
            in_flight: figures.in_flight,
            parked: figures.parked,
            oldest_ms: oldest.map(millis),
            members: figures.members,
            cooling: figures.cooling,
            usable: figures.usable,
            failing: figures.failing,
            granted: figures.granted,
            failures: figures.failures,
            recoveries: figures.recoveries,
            refused: figures.refused,
            refused_in_all: figures.refused_in_all,
            ended: figures.ended,
            held_ms: millis(figures.held),
        }
    }

    fn load(&self) -> NamedLoad {
        let load = PoolFigures {
            capacity: self.capacity,
            unlimited: false,
            in_flight: self.in_flight,
            parked: self.parked,
            congested: self.parked > 0,
            granted: self.granted,
            members: self.members,
            cooling: self.cooling,
            usable: self.usable,
            failing: self.failing,
            failures: self.failures,
            recoveries: self.recoveries,
            refused: self.refused,
            refused_in_all: self.refused_in_all,
            ended: self.ended,
            held: Duration::from_millis(self.held_ms),
        };
        NamedLoad { name: self.name.clone(), load, oldest: self.oldest_ms.map(Duration::from_millis) }
    }
}
