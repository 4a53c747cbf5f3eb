//! Reads a ring back: its segments oldest first, one record in memory at a time. Knows nothing of what the records say.

use crate::records::ring::writer::segments;
use crate::state::file::{self, Damage};
use std::io::{self, BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Longest record a reader believes in, in bytes.
const LONGEST: usize = 16 * 1024 * 1024;

/// Bytes read from the disk at once.
const CHUNK: usize = 64 * 1024;

/// The segments of a ring, oldest first.
#[derive(Debug)]
pub struct Segments;

impl Segments {
    /// Those in `folder`; of more than `most` bytes the oldest are left out. A folder that is not there has none.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn of(folder: &Path, most: u64) -> io::Result<Vec<Segment>> {
        let mut bytes = 0_u64;
        let mut kept: Vec<Segment> = segments(folder)?
            .into_iter()
            .rev()
            .map(|(_, path)| Segment(path))
            .take_while(|Segment(path)| {
                bytes = bytes.saturating_add(std::fs::metadata(path).map_or(0, |metadata| metadata.len()));
                bytes <= most
            })
            .collect();
        kept.reverse();
        Ok(kept)
    }
}

/// One segment.
#[derive(Debug)]
pub struct Segment(PathBuf);

impl Segment {
    /// Shows every record to `look`, in order, until it returns false or a record is cut short. A segment that was removed
    /// meanwhile, because newer ones came, has none; one that is a link, no file or another user's is left out.
    ///
    /// # Errors
    /// The segment cannot be read.
    pub fn each(&self, mut look: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
        match file::open(&self.0) {
            Ok(Some(file)) => each(BufReader::with_capacity(CHUNK, file), &mut look),
            Ok(None) => Ok(()),
            Err(Damage::Unreadable(error)) => Err(error),
            Err(damage) => {
                tracing::warn!(path = %self.0.display(), "a segment of a log is not read: {damage}");
                Ok(())
            }
        }
    }
}

/// The records of all segments in `folder`, oldest first; each segment's records together. For rings that are small, and tests.
///
/// # Errors
/// The folder or a segment cannot be read. A folder that is not there holds nothing.
pub fn read(folder: &Path) -> io::Result<Vec<Vec<Vec<u8>>>> {
    let all = |segment: Segment| {
        let mut records = Vec::new();
        segment.each(|record| {
            records.push(record.to_vec());
            true
        })?;
        Ok(records)
    };
    Segments::of(folder, u64::MAX)?.into_iter().map(all).collect()
}

/// Hands the records in `folder` to `each`, the newest first, until it wants no more. The records of one segment are in memory at
/// a time; one that the writer removes meanwhile is passed over.
///
/// # Errors
/// The folder or a segment cannot be read. A folder that is not there holds nothing.
pub fn newest_first(folder: &Path, mut each: impl FnMut(&[u8]) -> ControlFlow<()>) -> io::Result<()> {
    for segment in Segments::of(folder, u64::MAX)?.into_iter().rev() {
        let mut records = Vec::new();
        segment.each(|record| {
            records.push(Box::<[u8]>::from(record));
            true
        })?;
        if records.iter().rev().any(|record| each(record).is_break()) {
            return Ok(());
        }
    }
    Ok(())
}

/// The oldest record in `folder`.
///
/// # Errors
/// As [`newest_first`].
pub fn oldest(folder: &Path) -> io::Result<Option<Vec<u8>>> {
    for segment in Segments::of(folder, u64::MAX)? {
        let mut first = None;
        segment.each(|record| {
            first = Some(record.to_vec());
            false
        })?;
        if first.is_some() {
            return Ok(first);
        }
    }
    Ok(None)
}

/// The records of one segment's bytes, up to the first that is cut short.
#[must_use]
pub fn records(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    let read = each(bytes, &mut |record: &[u8]| {
        records.push(record.to_vec());
        true
    });
    debug_assert!(read.is_ok(), "bytes in memory can be read");
    records
}

fn each(mut from: impl Read, look: &mut impl FnMut(&[u8]) -> bool) -> io::Result<()> {
    let mut record = Vec::new();
    loop {
        let mut length = [0; 4];
        if !filled(from.read_exact(&mut length))? {
            return Ok(());
        }
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        if length > LONGEST {
            return Ok(());
        }
        record.resize(length, 0);
        if !filled(from.read_exact(&mut record))? || !look(&record) {
            return Ok(());
        }
    }
}

/// Whether there was as much as asked for.
fn filled(read: io::Result<()>) -> io::Result<bool> {
    match read {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
