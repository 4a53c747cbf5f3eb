//! The signal page: 4 KiB of shared memory in which the daemon shows level, pressure, causes and how full node and
//! pools are, for proxies that look before every request and will not wait for a frame. Owns the layout (`PROTOCOL.md`
//! has it byte by byte, for other languages) and how it is read and written without a lock. Knows no policy and no
//! clock: whether a page is stale shows in its [heartbeat](Page::heartbeat) and the reader's own clock.

#[cfg(feature = "map")]
#[expect(unsafe_code, reason = "shared memory is mapped here and nowhere else")]
mod map;
mod seqlock;

#[cfg(feature = "map")]
pub use map::{MapError, PageReader, PageWriter};

use crate::wire::codec::{level_code, level_of};
use crate::wire::reply::Overload;
use core::sync::atomic::{AtomicU64, Ordering, fence};
use seqlock::Memory;

/// Length of the page in bytes.
pub const PAGE_SIZE: usize = 4096;

/// What the first 8 bytes say.
pub const MAGIC: [u8; 8] = *b"governor";

/// Version of the layout. Fields are only added where zeros stood; a reader refuses versions it does not know.
pub const PAGE_VERSION: u32 = 1;

/// Pools that fit the page.
pub const PAGE_POOLS: usize = 32;

/// A heartbeat that has not moved for this long by the reader's clock makes the page stale, in milliseconds.
pub const STALE_AFTER_MS: u64 = 1000;

/// The daemon writes the page this often, in milliseconds, and at once when the level changes.
pub const WRITE_EVERY_MS: u64 = 20;

/// The page is made of 64-bit words in the machine's byte order.
const WORDS: usize = PAGE_SIZE / 8;

/// Where things are, in words.
mod at {
    pub(super) const MAGIC: usize = 0;
    /// Low half: version of the layout. High half: epoch of the daemon.
    pub(super) const VERSION: usize = 1;
    pub(super) const SEQUENCE: usize = 2;
    pub(super) const HEARTBEAT: usize = 3;
    /// From the low end: u8 level, u8 flags, u16 pressure, u32 causes.
    pub(super) const OVERLOAD: usize = 4;
    /// Low half: retry_after_ms. High half: number of pools.
    pub(super) const ADVICE: usize = 5;
    /// Low half: requests counted. High half: node cap.
    pub(super) const NODE: usize = 6;
    /// Four words each: hash; capacity and in flight; parked and flags; reserved.
    pub(super) const POOLS: usize = 8;
}

/// Words of one pool.
const POOL_WORDS: usize = 4;

/// Flags of the node.
const DRAINING: u8 = 1;
const POOLS_LEFT_OUT: u8 = 2;

/// Flags of a pool.
const CONGESTED: u32 = 1;
const UNLIMITED: u32 = 2;

/// Attempts of a read before it gives up: a writer needs less than a microsecond, unless it is taken off its CPU.
const ATTEMPTS: usize = 256;

/// What the page says at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    /// Level, pressure, causes, and the advice for refusals made by the proxy itself.
    pub overload: Overload,
    /// The daemon is about to stop.
    pub draining: bool,
    /// There are more pools than [`PAGE_POOLS`]; the rest are not shown.
    pub pools_left_out: bool,
    /// Counted requests on the node, in flight and parked.
    pub node_counted: u32,
    /// What that may come to; 0 is no limit.
    pub node_cap: u32,
    /// The pools in the order of the daemon's configuration.
    pub pools: Vec<PoolSignal>,
}

/// One pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSignal {
    /// [`pool_hash`] of its name.
    pub hash: u64,
    /// Its capacity now (cooling members do not count).
    pub capacity: u32,
    /// Leases in flight.
    pub in_flight: u32,
    /// Parked requests.
    pub parked: u32,
    /// At or over its threshold: keys get their share only.
    pub congested: bool,
    /// It has no gate: no request waits for a slot of it.
    pub unlimited: bool,
}

impl PoolSignal {
    fn is_scarce(&self) -> bool {
        let nearly_full = u64::from(self.in_flight) * 10 >= u64::from(self.capacity) * 9;
        self.parked > 0 || nearly_full && !self.unlimited
    }
}

/// Why a page says nothing now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It was being written at each of a bounded number of attempts. Its heartbeat shows whether the writer is alive.
    #[error("the page is being written")]
    Busy,
    /// It holds a value that has no meaning.
    #[error("the page says something that has no meaning")]
    Nonsense,
}

/// By what the page calls a pool: 64-bit FNV-1a of its name in UTF-8.
#[must_use]
pub const fn pool_hash(name: &str) -> u64 {
    let (mut hash, mut index) = (0xcbf2_9ce4_8422_2325_u64, 0);
    let name = name.as_bytes();
    while index < name.len() {
        hash = (hash ^ name[index] as u64).wrapping_mul(0x0100_0000_01b3);
        index += 1;
    }
    hash
}

/// A page in memory. Whatever its bytes are, reading it ends soon and without a panic.
#[repr(transparent)]
#[derive(Debug)]
pub struct Page([AtomicU64; WORDS]);

impl Page {
    /// A page with these bytes, in this process only.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; PAGE_SIZE]) -> Self {
        let (words, _) = bytes.as_chunks::<8>();
        Self(core::array::from_fn(|index| AtomicU64::new(words.get(index).map_or(0, |word| u64::from_ne_bytes(*word)))))
    }

    /// Rises with every write; see [`STALE_AFTER_MS`].
    #[must_use]
    pub fn heartbeat(&self) -> u64 {
        self.load(at::HEARTBEAT)
    }

    /// Level, pressure, causes and advice: four loads.
    ///
    /// # Errors
    ///
    /// [`Unreadable`].
    #[inline]
    pub fn overload(&self) -> Result<Overload, Unreadable> {
        let read = seqlock::read(self, ATTEMPTS, |page| (page.load(at::OVERLOAD), page.load(at::ADVICE)));
        let (overload, advice) = read.ok_or(Unreadable::Busy)?;
        unpack_overload(overload, advice).ok_or(Unreadable::Nonsense)
    }

    /// The pool whose name has this [`pool_hash`]; `None` if the page does not show it.
    ///
    /// # Errors
    ///
    /// [`Unreadable`].
    pub fn pool(&self, hash: u64) -> Result<Option<PoolSignal>, Unreadable> {
        let find = |page: &Self| {
            let mut places = (0..page.pools()).map(|index| at::POOLS + index * POOL_WORDS);
            places.find(|place| page.load(*place) == hash).map(|place| page.pool_at(place))
        };
        seqlock::read(self, ATTEMPTS, find).ok_or(Unreadable::Busy)
    }

    /// Whether a request waits for a slot in any pool, or would have to: a pool has parked requests, or less than a
    /// tenth of its slots is free. True also where not all pools are shown.
    ///
    /// # Errors
    ///
    /// [`Unreadable`].
    pub fn is_scarce(&self) -> Result<bool, Unreadable> {
        let look = |page: &Self| {
            let [_, flags, ..] = page.load(at::OVERLOAD).to_le_bytes();
            let mut pools = (0..page.pools()).map(|index| page.pool_at(at::POOLS + index * POOL_WORDS));
            flags & POOLS_LEFT_OUT != 0 || pools.any(|pool| pool.is_scarce())
        };
        seqlock::read(self, ATTEMPTS, look).ok_or(Unreadable::Busy)
    }

    /// Everything.
    ///
    /// # Errors
    ///
    /// [`Unreadable`].
    pub fn read(&self) -> Result<Signals, Unreadable> {
        let take = |page: &Self| {
            let mut pools = [PoolSignal::default(); PAGE_POOLS];
            let count = page.pools();
            for (index, pool) in pools.iter_mut().enumerate().take(count) {
                *pool = page.pool_at(at::POOLS + index * POOL_WORDS);
            }
            (page.load(at::OVERLOAD), page.load(at::ADVICE), halves(page.load(at::NODE)), pools, count)
        };
        let read = seqlock::read(self, ATTEMPTS, take).ok_or(Unreadable::Busy)?;
        let (overload, advice, (node_counted, node_cap), pools, count) = read;
        let [_, flags, ..] = overload.to_le_bytes();
        Ok(Signals {
            overload: unpack_overload(overload, advice).ok_or(Unreadable::Nonsense)?,
            draining: flags & DRAINING != 0,
            pools_left_out: flags & POOLS_LEFT_OUT != 0,
            node_counted,
            node_cap,
            pools: pools[..count].to_vec(),
        })
    }

    /// Version of the layout and epoch of the daemon; `None` if this is no signal page.
    fn version(&self) -> Option<(u32, u32)> {
        (self.load(at::MAGIC).to_ne_bytes() == MAGIC).then(|| halves(self.load(at::VERSION)))
    }

    /// Says what kind of page this is.
    fn sign(&self, epoch: u32) {
        self.store(at::VERSION, word(PAGE_VERSION, epoch));
        self.store(at::MAGIC, u64::from_ne_bytes(MAGIC));
    }

    /// Replaces what the page says and moves the heartbeat. There must be one writer only.
    fn publish(&self, signals: &Signals) {
        let count = signals.pools.len().min(PAGE_POOLS);
        let left_out = signals.pools_left_out || count < signals.pools.len();
        let flags = if signals.draining { DRAINING } else { 0 } | if left_out { POOLS_LEFT_OUT } else { 0 };
        let overload = &signals.overload;
        let [low, high] = overload.pressure.to_le_bytes();
        let said = u32::from_le_bytes([level_code(overload.level), flags, low, high]);
        let heartbeat = self.heartbeat().wrapping_add(1);
        seqlock::write(self, |page| {
            page.store(at::HEARTBEAT, heartbeat);
            page.store(at::OVERLOAD, word(said, overload.causes));
            page.store(at::ADVICE, word(overload.retry_after_ms, u32::try_from(count).unwrap_or(0)));
            page.store(at::NODE, word(signals.node_counted, signals.node_cap));
            for (index, pool) in signals.pools.iter().enumerate().take(count) {
                let place = at::POOLS + index * POOL_WORDS;
                page.store(place, pool.hash);
                page.store(place + 1, word(pool.capacity, pool.in_flight));
                let congested = if pool.congested { CONGESTED } else { 0 };
                let unlimited = if pool.unlimited { UNLIMITED } else { 0 };
                page.store(place + 2, word(pool.parked, congested | unlimited));
            }
        });
    }

    /// How many pools there are to look at; the number is believed only as far as there is room.
    fn pools(&self) -> usize {
        usize::try_from(halves(self.load(at::ADVICE)).1).unwrap_or(PAGE_POOLS).min(PAGE_POOLS)
    }

    fn pool_at(&self, place: usize) -> PoolSignal {
        let ((capacity, in_flight), (parked, flags)) = (halves(self.load(place + 1)), halves(self.load(place + 2)));
        let (congested, unlimited) = (flags & CONGESTED != 0, flags & UNLIMITED != 0);
        PoolSignal { hash: self.load(place), capacity, in_flight, parked, congested, unlimited }
    }
}

impl Memory for Page {
    const SEQUENCE: usize = at::SEQUENCE;

    #[inline]
    fn load(&self, word: usize) -> u64 {
        // Plain loads for the processor, and allowed on memory that may not be written.
        self.0.get(word).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    #[inline]
    fn store(&self, word: usize, value: u64) {
        if let Some(word) = self.0.get(word) {
            word.store(value, Ordering::Relaxed);
        }
    }

    #[inline]
    fn fence(&self, order: Ordering) {
        fence(order);
    }
}

fn unpack_overload(overload: u64, advice: u64) -> Option<Overload> {
    let [level, _, low, high, causes @ ..] = overload.to_le_bytes();
    Some(Overload {
        level: level_of(level)?,
        pressure: u16::from_le_bytes([low, high]).min(1000),
        causes: u32::from_le_bytes(causes),
        retry_after_ms: halves(advice).0,
    })
}

/// The low half and the high half of a word.
fn halves(word: u64) -> (u32, u32) {
    let [a, b, c, d, high @ ..] = word.to_le_bytes();
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(high))
}

fn word(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[cfg(test)]
mod tests;
