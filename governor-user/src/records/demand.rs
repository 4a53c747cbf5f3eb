//! Recorded demand: who asked, when, and how long it ran, as a bounded log in the state folder. `advise` replays it
//! under other settings. Keys are the proxies' keyed hashes; labels are left out. What is rare is written as JSON, what
//! comes with every request as `hot` has it. Decides nothing.

mod hot;

use self::hot::Hot;
use crate::naming;
use crate::records::ring::{Ring, RingHealth, Segment, Segments};
use governor_engine::id::{KeyId, LeaseId, OrgId, RequestId, SessionId};
use governor_engine::io::{Acquire, Context, Kind, Registration};
use governor_engine::snapshot::LeaseView;
use governor_engine::time::Instant;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// What happened. Times are nanoseconds of the monotonic clock; the names are short because earlier versions wrote all
/// facts by them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// First of a segment: when it began by the wall clock, in seconds since 1970. Earlier versions listed here what
    /// ran then; now a `Running` for each lease follows, among other facts.
    #[serde(rename = "open")]
    Opened {
        /// Monotonic time.
        t: u64,
        /// Wall time.
        wall: u64,
        /// Leases that ran: lease, session, pool, key.
        held: Vec<(u64, u64, String, Option<String>)>,
        /// Their orgs, one each; earlier versions recorded none.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        orgs: Vec<Option<String>>,
    },
    /// A lease ran when the segment began. A reader ignores it for a lease that it knows from an earlier fact of the
    /// segment.
    #[serde(rename = "run")]
    Running {
        /// When the segment began.
        t: u64,
        /// Session.
        s: u64,
        /// Lease.
        l: u64,
        /// Pool name.
        p: String,
        /// Key, in hexadecimal digits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        k: Option<String>,
        /// Org, in hexadecimal digits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        g: Option<String>,
    },
    /// A request came.
    #[serde(rename = "ask")]
    Asked {
        /// When.
        t: u64,
        /// Session.
        s: u64,
        /// Request id.
        r: u32,
        /// Pool name.
        p: String,
        /// Key, in hexadecimal digits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        k: Option<String>,
        /// Org, in hexadecimal digits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        g: Option<String>,
        /// Its own longest wait in milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        w: Option<u32>,
    },
    /// It was granted.
    #[serde(rename = "got")]
    Granted {
        /// When.
        t: u64,
        /// Session.
        s: u64,
        /// Request id.
        r: u32,
        /// Lease.
        l: u64,
    },
    /// A lease was registered after a reconnect or restart.
    #[serde(rename = "held")]
    Held {
        /// When.
        t: u64,
        /// Session that holds it now.
        s: u64,
        /// The id it was known by.
        o: u64,
        /// Its id now.
        l: u64,
        /// Pool name.
        p: String,
        /// Key, in hexadecimal digits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        k: Option<String>,
        /// Org, in hexadecimal digits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        g: Option<String>,
    },
    /// A lease ended.
    #[serde(rename = "end")]
    Ended {
        /// When.
        t: u64,
        /// Lease.
        l: u64,
    },
    /// A session ended with all its leases.
    #[serde(rename = "gone")]
    Gone {
        /// When.
        t: u64,
        /// Session.
        s: u64,
    },
}

/// The recorder.
#[derive(Debug)]
pub struct Demand(Option<Log>);

/// What comes with every request waits for what else belongs into its record.
#[derive(Debug)]
struct Log {
    ring: Ring,
    hot: Hot,
    opening: Option<Opening>,
    /// Records lost when it was looked last.
    lost: u64,
    /// Flushes since some of this segment were lost; `None`: it has all of them.
    flushes_since_loss: Option<u32>,
}

/// What ran when the segment began is written in steps, so that no iteration of the loop does work for every lease.
#[derive(Debug)]
struct Opening {
    /// When the segment began.
    at: Instant,
    /// Slot of the lease table to go on with.
    cursor: u32,
    /// Bytes left for it in the segment.
    room: u64,
}

/// What ran when a segment began takes one in so many parts of the segment at most: a segment that its opening fills
/// would be over with the next fact. Leases beyond are left out, and `advise` does not know them.
const OPENING_PART: u64 = 2;

/// A segment that lost records is given up after so many flushes without another loss (10 s and more): a disk at its
/// limit is not burdened with lists of what runs again and again.
const SETTLED: u32 = 50;

/// Bytes that a record of a running lease takes besides its pool's name.
const RUNNING_BYTES: u64 = 80;

impl Demand {
    /// Records into this state folder at most so many bytes; 0 records nothing.
    #[must_use]
    pub fn open(state_dir: &Path, bytes: u64) -> Self {
        Self((bytes > 0).then(|| Log {
            ring: Ring::open(folder(state_dir), bytes),
            hot: Hot::default(),
            opening: None,
            lost: 0,
            flushes_since_loss: None,
        }))
    }

    /// Whether the next fact begins a segment: call [`Self::opened`] first. A segment that is full ends here and in
    /// [`Self::flush`] only.
    #[must_use]
    pub fn needs_opening(&mut self) -> bool {
        self.0.as_mut().is_some_and(|log| {
            if log.ring.is_full() {
                log.flush();
            }
            log.ring.is_at_start()
        })
    }

    /// A segment begins. What runs is written by [`Self::running`] afterwards.
    pub fn opened(&mut self, wall: u64, now: Instant) {
        self.write(|| Fact::Opened { t: now.0, wall, held: Vec::new(), orgs: Vec::new() });
        if let Some(log) = &mut self.0 {
            log.opening = Some(Opening { at: now, cursor: 0, room: log.ring.segment_bytes() / OPENING_PART });
        }
    }

    /// Slot of the lease table at which [`Self::running`] goes on; `None` when all that ran when the segment began is
    /// written.
    #[must_use]
    pub fn opening(&self) -> Option<u32> {
        self.0.as_ref()?.opening.as_ref().map(|opening| opening.cursor)
    }

    /// Writes the next leases that ran when the segment began, each with its pool's name, and keeps the cursor to go on
    /// with; `None`: there are no more.
    pub fn running<'a>(&mut self, leases: impl Iterator<Item = (LeaseView, &'a str)>, next: Option<u32>) {
        let Some(log) = &mut self.0 else { return };
        let Some(opening) = &mut log.opening else { return };
        let mut is_full = false;
        // A lease granted since then has its own facts, and a suspended one does not run.
        for (lease, pool) in leases.filter(|(lease, _)| !lease.suspended && lease.granted <= opening.at) {
            let bytes = RUNNING_BYTES.saturating_add(u64::try_from(pool.len()).unwrap_or(u64::MAX));
            is_full = opening.room < bytes;
            if is_full {
                break;
            }
            opening.room -= bytes;
            log.hot.running(&mut log.ring, &lease, pool, opening.at);
        }
        match next.filter(|_| !is_full) {
            Some(cursor) => opening.cursor = cursor,
            None => log.opening = None,
        }
    }

    /// A request came. Only ordinary work is demand for slots by these rules.
    pub fn asked(&mut self, ask: &Acquire, pool: &str, now: Instant) {
        if let Some(log) = self.0.as_mut().filter(|_| ask.kind == Kind::Ordinary) {
            log.hot.asked(&mut log.ring, ask, pool, now);
        }
    }

    /// A request was granted.
    pub fn granted(&mut self, session: SessionId, request: RequestId, lease: LeaseId, now: Instant) {
        if let Some(log) = &mut self.0 {
            log.hot.granted(&mut log.ring, session, request, lease, now);
        }
    }

    /// A lease of this pool that was known as `old` was registered.
    pub fn held(&mut self, old: LeaseId, new: &Registration, pool: &str) {
        let Context { at, session, key, org, .. } = new.context;
        self.write(|| Fact::Held {
            t: at.0,
            s: session.0,
            o: old.0,
            l: new.lease.0,
            p: pool.to_owned(),
            k: key.map(hex),
            g: org.map(org_hex),
        });
    }

    /// A lease ended.
    pub fn ended(&mut self, lease: LeaseId, now: Instant) {
        if let Some(log) = &mut self.0 {
            log.hot.ended(&mut log.ring, lease, now);
        }
    }

    /// A session ended with all its leases.
    pub fn gone(&mut self, session: SessionId, now: Instant) {
        self.write(|| Fact::Gone { t: now.0, s: session.0 });
    }

    /// Whether something waits for a flush.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.0.as_ref().is_some_and(|log| log.ring.is_dirty() || !log.hot.is_empty())
    }

    /// Hands everything to the disk; never waits.
    pub fn flush(&mut self) {
        self.0.iter_mut().for_each(Log::flush);
    }

    /// How the disk fares; `None` when nothing is recorded.
    #[must_use]
    pub fn health(&self) -> Option<RingHealth> {
        self.0.as_ref().map(|log| log.ring.health())
    }

    /// Makes and writes a fact, unless nothing is recorded.
    fn write(&mut self, fact: impl FnOnce() -> Fact) {
        if let Some(log) = &mut self.0 {
            log.hot.settle(&mut log.ring);
            let record = serde_json::to_vec(&fact()).expect("facts have string keys and serialize");
            log.ring.append_with(record.len(), |out| out.extend_from_slice(&record));
        }
    }
}

impl Log {
    /// A segment from which records were lost says wrong things of what runs. It ends once none have been lost for a
    /// while, and the next one begins with what runs then.
    fn flush(&mut self) {
        self.hot.settle(&mut self.ring);
        self.ring.flush();
        let lost = std::mem::replace(&mut self.lost, self.ring.lost());
        if self.lost != lost {
            self.flushes_since_loss = Some(0);
        } else if let Some(flushes) = &mut self.flushes_since_loss {
            *flushes += 1;
            if *flushes >= SETTLED {
                self.flushes_since_loss = None;
                self.ring.end_segment();
            }
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.hot.settle(&mut self.ring);
    }
}

/// Takes facts in the order they were recorded.
pub trait FactReader {
    /// The next fact of the segment.
    fn fact(&mut self, fact: Fact);
    /// The segment ends.
    fn end_segment(&mut self);
}

/// Bytes of recorded demand that are read at most, the newest: reading takes some 5 s for a GiB.
const MOST_READ: u64 = 1 << 30;

/// Reads what was recorded in this state folder, oldest first, one record at a time. Segments that were over before
/// `from` (seconds since 1970), and the oldest beyond 1 GiB, are skipped. What cannot be read as a fact is left out.
///
/// # Errors
/// The folder or a segment cannot be read.
pub fn read_facts(state_dir: &Path, from: u64, reader: &mut impl FactReader) -> io::Result<()> {
    let segments = Segments::of(&folder(state_dir), MOST_READ)?;
    for (number, segment) in segments.iter().enumerate() {
        // A segment is over when the next one begins.
        if segments.get(number + 1).and_then(opened_at).is_some_and(|next| next < from) {
            continue;
        }
        segment.each(|record| {
            facts(record).into_iter().for_each(|fact| reader.fact(fact));
            true
        })?;
        reader.end_segment();
    }
    Ok(())
}

/// When a segment began, in seconds since 1970.
fn opened_at(segment: &Segment) -> Option<u64> {
    let mut wall = None;
    let first = segment.each(|record| {
        if let Some(Fact::Opened { wall: at, .. }) = facts(record).first() {
            wall = Some(*at);
        }
        false
    });
    first.ok().and(wall)
}

/// What was recorded in this state folder, oldest first, each segment by itself: all of it in memory, for tests and
/// tools.
///
/// # Errors
/// As for [`read_facts`].
pub fn recorded(state_dir: &Path) -> io::Result<Vec<Vec<Fact>>> {
    #[derive(Default)]
    struct All {
        segments: Vec<Vec<Fact>>,
        segment: Vec<Fact>,
    }
    impl FactReader for All {
        fn fact(&mut self, fact: Fact) {
            self.segment.push(fact);
        }
        fn end_segment(&mut self) {
            self.segments.push(std::mem::take(&mut self.segment));
        }
    }
    let mut all = All::default();
    read_facts(state_dir, 0, &mut all)?;
    Ok(all.segments)
}

/// The facts of one record. Earlier versions wrote all of them as JSON.
#[must_use]
pub fn facts(record: &[u8]) -> Vec<Fact> {
    match record.first() {
        Some(b'{') => serde_json::from_slice(record).into_iter().collect(),
        _ => hot::facts(record).unwrap_or_default(),
    }
}

fn folder(state_dir: &Path) -> PathBuf {
    state_dir.join("demand")
}

fn org_hex(org: OrgId) -> String {
    naming::org_hash(org).to_string()
}

fn hex(key: KeyId) -> String {
    naming::hash(key).to_string()
}

#[cfg(test)]
mod tests;
