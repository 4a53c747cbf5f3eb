//! A log on disk that cannot grow without bound: a folder of append-only segments, the oldest removed as new ones come.
//! A thread of its own writes, so that a slow or full disk never holds up the one who appends; what cannot be written
//! waits in a bounded buffer and is then lost, counted. Knows nothing of what the records say.
//!
//! A segment is a run of records, each a little-endian u32 length and as many bytes. A record cut short by a crash ends
//! its segment for the reader.

mod reader;
mod writer;

pub use self::reader::{Segment, Segments, newest_first, oldest, read, records};
use self::writer::Writer;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Bytes handed to the writer at once at most; larger ones only for a record that is larger itself. Each costs a wake-up.
const CHUNK: usize = 64 * 1024;

/// Chunks on their way to the writer.
const QUEUE: usize = 32;

/// Chunks that are written and kept to be filled again: memory of this size is dear to get and to give back.
const SPARE: usize = 2;

/// Segments a full ring consists of: one in so many parts of the log is forgotten at once.
const PARTS: u64 = 8;

/// The appending end.
#[derive(Debug)]
pub struct Ring {
    /// `None` once dropped.
    sender: Option<SyncSender<Chunk>>,
    writer: Option<JoinHandle<()>>,
    chunk: Chunk,
    /// Bytes appended to the segment so far.
    segment: u64,
    /// The segment's first records were lost, so that there is no such segment.
    is_lost: bool,
    bound: u64,
    shared: Arc<Shared>,
}

/// How a ring fares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingHealth {
    /// Records on disk, since the start.
    pub written: u64,
    /// Records lost because the disk refused them or could not keep up, since the start.
    pub lost: u64,
    /// Why the disk refuses now, if it does.
    pub failing: Option<String>,
}

#[derive(Debug, Default)]
struct Shared {
    written: AtomicU64,
    lost: AtomicU64,
    failing: Mutex<Option<String>>,
    /// Empty ones with room.
    spare: Mutex<Vec<Vec<u8>>>,
}

#[derive(Debug, Default)]
struct Chunk {
    bytes: Vec<u8>,
    records: u64,
    /// Begins a new segment.
    opens: bool,
}

/// The thread of each ring has a name of its own, by its folder; the kernel shows the first 15 bytes.
fn thread_name(folder: &Path) -> String {
    format!("ring-{}", folder.file_name().map(OsStr::to_string_lossy).unwrap_or_default())
}

impl Ring {
    /// A ring in `folder` of at most `bytes` in all. Begins a new segment; what is there stays until it is too old.
    /// Never fails: a folder that cannot be written is a disk that refuses.
    #[must_use]
    pub fn open(folder: PathBuf, bytes: u64) -> Self {
        let shared = Arc::<Shared>::default();
        let (sender, receiver) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new().name(thread_name(&folder));
        let writer = Writer::new(folder, bytes, Arc::clone(&shared));
        let writer = thread.spawn(move || writer.run(&receiver)).ok();
        let chunk = Chunk { opens: true, ..Chunk::default() };
        Self { sender: Some(sender), writer, chunk, segment: 0, is_lost: false, bound: bytes / PARTS, shared }
    }

    /// Whether the next record is the first of its segment. Only a flush makes it so again: the records between two
    /// flushes are of one segment.
    #[must_use]
    pub fn is_at_start(&self) -> bool {
        self.segment == 0
    }

    /// Whether the next [`Self::flush`] ends the segment.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.segment >= self.bound
    }

    /// Bytes after which a segment is full.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        self.bound
    }

    /// Appends a record. It is on its way to the disk after [`Self::flush`].
    pub fn append(&mut self, record: &[u8]) {
        self.append_with(record.len(), |bytes| bytes.extend_from_slice(record));
    }

    /// Appends a record that `write` appends to what it is given, of at most about so many bytes.
    pub fn append_with(&mut self, about: usize, write: impl FnOnce(&mut Vec<u8>)) {
        if self.chunk.bytes.len() + about > CHUNK {
            self.hand_over();
        }
        if self.chunk.bytes.capacity() == 0 {
            self.chunk.bytes = self.shared.spare().pop().unwrap_or_default();
            self.chunk.bytes.reserve(CHUNK.max(about) + 4);
        }
        let start = self.chunk.bytes.len();
        self.chunk.bytes.extend_from_slice(&[0; 4]);
        write(&mut self.chunk.bytes);
        let Ok(length) = u32::try_from(self.chunk.bytes.len() - start - 4) else {
            self.chunk.bytes.truncate(start);
            return;
        };
        self.chunk.bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
        self.chunk.records += 1;
        self.segment += u64::from(length) + 4;
    }

    /// Whether something was appended since the last flush.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.chunk.records > 0
    }

    /// Hands everything appended to the writer; never waits. A segment that is full ends here, and one that was never begun.
    pub fn flush(&mut self) {
        self.hand_over();
        let was_lost = std::mem::take(&mut self.is_lost);
        if self.is_full() || was_lost {
            self.end_segment();
        }
    }

    /// The next record begins a segment. Call it right after [`Self::flush`]: what was appended since would go with it.
    pub fn end_segment(&mut self) {
        self.segment = 0;
        self.chunk.opens = true;
    }

    /// Records lost so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    fn hand_over(&mut self) {
        if self.chunk.records == 0 {
            return;
        }
        let chunk = std::mem::take(&mut self.chunk);
        let sent = self.sender.as_ref().map(|sender| sender.try_send(chunk));
        if let Some(Err(TrySendError::Full(chunk) | TrySendError::Disconnected(chunk))) = sent {
            self.shared.lost.fetch_add(chunk.records, Ordering::Relaxed);
            // What comes until the next flush goes on in the segment before.
            self.is_lost |= chunk.opens;
        }
    }

    /// How it fares.
    #[must_use]
    pub fn health(&self) -> RingHealth {
        RingHealth {
            written: self.shared.written.load(Ordering::Relaxed),
            lost: self.lost(),
            failing: self.shared.failing.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

impl Shared {
    fn spare(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the room of a chunk that is written.
    fn keep(&self, mut bytes: Vec<u8>) {
        let mut spare = self.spare();
        // The room for one long record is not kept.
        if spare.len() < SPARE && bytes.capacity() <= 2 * CHUNK {
            bytes.clear();
            spare.push(bytes);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.flush();
        self.sender = None;
        if let Some(writer) = self.writer.take() {
            // It only ends in a panic of its own, which the hook has reported.
            drop(writer.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::ring::writer::segments;
    use std::fs;
    use std::ops::ControlFlow;

    #[test]
    fn records_come_back_in_order_over_restarts() {
        let folder = tempfile::tempdir().unwrap();
        for life in 0..3_u8 {
            let mut ring = Ring::open(folder.path().join("log"), 1 << 20);
            assert!(ring.is_at_start());
            ring.append(&[life]);
            ring.append(&[life, 9]);
        }
        let mut backwards = Vec::new();
        newest_first(&folder.path().join("log"), |record| {
            backwards.push(record.to_vec());
            if backwards.len() == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
        assert_eq!(backwards, [vec![2, 9], vec![2], vec![1, 9], vec![1], vec![0, 9]]);
        assert_eq!(oldest(&folder.path().join("log")).unwrap(), Some(vec![0]));
        let read = read(&folder.path().join("log")).unwrap();
        assert_eq!(read, [[vec![0], vec![0, 9]], [vec![1], vec![1, 9]], [vec![2], vec![2, 9]]]);
    }

    #[test]
    fn the_oldest_goes_when_the_bound_is_reached() {
        let folder = tempfile::tempdir().unwrap();
        let mut ring = Ring::open(folder.path().to_owned(), 8000);
        let mut openings = 0;
        for n in 0..200_u8 {
            openings += u32::from(ring.is_at_start());
            ring.append(&[n; 100]);
            ring.flush();
            // The writer has a bounded queue and this loop does not wait for anybody.
            while ring.health().written + ring.health().lost <= u64::from(n) {
                std::thread::yield_now();
            }
        }
        drop(ring);
        let size: u64 =
            segments(folder.path()).unwrap().iter().map(|(_, path)| fs::metadata(path).unwrap().len()).sum();
        assert!((5000..=9200).contains(&size), "{size} bytes");
        assert_eq!(openings, 20);
        let all: Vec<Vec<u8>> = read(folder.path()).unwrap().concat();
        assert_eq!(all.last(), Some(&vec![199; 100]));
        assert!(all.iter().zip(all.iter().skip(1)).all(|(one, next)| one[0] + 1 == next[0]), "none is missing between");
    }

    #[test]
    fn a_segment_begins_with_a_record_that_knew_it_would() {
        let folder = tempfile::tempdir().unwrap();
        let mut ring = Ring::open(folder.path().to_owned(), 1 << 20);
        let mut appended = 0;
        for batch in 1..=40_u16 {
            for _ in 0..batch * 10 {
                let first = ring.is_at_start();
                ring.append(&[u8::from(first); 100]);
            }
            ring.flush();
            appended += u64::from(batch) * 10;
            // The writer has a bounded queue and this loop does not wait for anybody.
            while ring.health().written < appended {
                std::thread::yield_now();
            }
        }
        drop(ring);
        let segments = read(folder.path()).unwrap();
        assert!(segments.len() > 5, "{} segments", segments.len());
        for segment in segments {
            let openers = segment.iter().map(|record| record[0]).collect::<Vec<_>>();
            assert_eq!((openers[0], openers[1..].iter().max()), (1, Some(&0)));
        }
    }

    #[test]
    fn a_record_cut_short_ends_its_segment() {
        assert_eq!(records(&[1, 0, 0, 0, 7, 5, 0, 0, 0, 1, 2]), [[7]]);
        assert_eq!(records(&[0xff, 0xff, 0xff, 0xff, 1]), Vec::<Vec<u8>>::new());
    }
}
