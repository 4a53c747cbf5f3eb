//! The thread that brings a ring to the disk: segments, what a disk that refuses leaves waiting, and what is lost then.

use crate::records::ring::Chunk;
use crate::records::ring::PARTS;
use crate::records::ring::Shared;
use rustix::fs::Mode;
use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Bytes the writer holds back while the disk refuses them.
const HELD_BACK: usize = 4 * 1024 * 1024;

/// How often a refusing disk is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Segments at most, however small: a daemon that restarts all the time leaves many.
const MOST_SEGMENTS: usize = 256;

/// The thread.
pub(super) struct Writer {
    folder: PathBuf,
    bytes: u64,
    file: Option<File>,
    held: VecDeque<Chunk>,
    shared: Arc<Shared>,
}

impl Writer {
    /// For a ring in `folder` of at most `bytes` in all.
    pub(super) fn new(folder: PathBuf, bytes: u64, shared: Arc<Shared>) -> Self {
        Self { folder, bytes, file: None, held: VecDeque::new(), shared }
    }

    /// Writes what comes until every sender is gone, and then what is left.
    pub(super) fn run(mut self, chunks: &Receiver<Chunk>) {
        loop {
            match chunks.recv_timeout(RETRY) {
                Ok(chunk) => self.held.push_back(chunk),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.write_held();
        }
        self.write_held();
    }

    fn write_held(&mut self) {
        while let Some(mut chunk) = self.held.pop_front() {
            match self.write(&mut chunk) {
                Ok(()) => {
                    self.shared.written.fetch_add(chunk.records, Ordering::Relaxed);
                    self.shared.keep(chunk.bytes);
                    self.report(None);
                }
                Err(error) => {
                    self.report(Some(format!("{}: {error}", self.folder.display())));
                    self.held.push_front(chunk);
                    self.forget();
                    return;
                }
            }
        }
    }

    /// Writes all of a chunk or nothing. Where even that cannot be had, a new segment keeps the reader from stumbling
    /// over half a chunk.
    fn write(&mut self, chunk: &mut Chunk) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) if !chunk.opens => file,
            _ => {
                let file = self.next_segment()?;
                chunk.opens = false;
                self.file.insert(file)
            }
        };
        let before = file.metadata()?.len();
        let written = file.write_all(&chunk.bytes);
        if written.is_err() && file.set_len(before).is_err() {
            self.file = None;
        }
        written
    }

    /// Makes room and opens the next segment.
    fn next_segment(&self) -> io::Result<File> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let mut old = segments(&self.folder)?;
        let next = old.last().map_or(1, |(number, _)| number.saturating_add(1));
        let size = |path: &PathBuf| fs::metadata(path).map_or(0, |metadata| metadata.len());
        let mut total: u64 = old.iter().map(|(_, path)| size(path)).sum();
        while !old.is_empty() && (total + self.bytes / PARTS > self.bytes || old.len() >= MOST_SEGMENTS) {
            let (_, path) = old.remove(0);
            total = total.saturating_sub(size(&path));
            fs::remove_file(path)?;
        }
        let mode = (Mode::RUSR | Mode::WUSR).as_raw_mode();
        OpenOptions::new().create_new(true).append(true).mode(mode).open(self.folder.join(format!("{next:010}.log")))
    }

    /// Drops the oldest of what is held back beyond the bound; what begins a segment only when there is nothing else.
    fn forget(&mut self) {
        let mut held: usize = self.held.iter().map(|chunk| chunk.bytes.len()).sum();
        while held > HELD_BACK {
            let oldest = self.held.iter().position(|chunk| !chunk.opens).unwrap_or(0);
            let Some(chunk) = self.held.remove(oldest) else { break };
            held -= chunk.bytes.len();
            self.shared.lost.fetch_add(chunk.records, Ordering::Relaxed);
        }
    }

    fn report(&self, failing: Option<String>) {
        let mut known = self.shared.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_some() != failing.is_some() {
            match &failing {
                Some(why) => tracing::warn!("a log cannot be written, newest records wait in memory: {why}"),
                None => tracing::info!("a log can be written again: {}", self.folder.display()),
            }
        }
        *known = failing;
    }
}

/// Segments by number, oldest first.
pub(super) fn segments(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".log")?.parse().ok());
        found.extend(number.map(|number| (number, path)));
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::ring::Ring;
    use crate::records::ring::read;
    use std::process::Command;

    #[test]
    fn a_disk_that_refuses_stops_nobody_and_loses_nothing_within_the_bound() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("log");
        // A file where the folder should be: as root, modes would not refuse.
        fs::write(&place, "").unwrap();
        let mut ring = Ring::open(place.clone(), 1 << 20);
        ring.append(b"kept");
        ring.flush();
        while ring.health().failing.is_none() {
            std::thread::yield_now();
        }
        fs::remove_file(&place).unwrap();
        drop(ring);
        assert_eq!(read(&place).unwrap().concat(), [b"kept"]);
    }

    #[test]
    fn what_a_full_disk_took_half_of_is_written_once_and_whole_when_there_is_room() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().to_owned();
        let fill = move || {
            let (filler, place) = (disk.join("filler"), disk.join("log"));
            fs::write(&filler, [0; 32 << 10]).unwrap();
            let mut ring = Ring::open(place.clone(), 1 << 20);
            (0..10).for_each(|n| ring.append(&[n; 1000]));
            ring.flush();
            while ring.health().written < 10 {
                std::thread::yield_now();
            }
            (10..50).for_each(|n| ring.append(&[n; 1000]));
            ring.flush();
            while ring.health().failing.is_none() {
                std::thread::yield_now();
            }
            let (_, segment) = segments(&place).unwrap().remove(0);
            assert_eq!(fs::metadata(segment).unwrap().len(), 10 * 1004, "no half of a chunk is left");
            fs::remove_file(filler).unwrap();
            drop(ring);
            let all: Vec<Vec<u8>> = (0..50).map(|n| vec![n; 1000]).collect();
            assert_eq!(read(&place).unwrap(), [all]);
        };
        if !on_a_small_disk(folder.path(), fill) {
            println!("SKIP: no right to a private mount namespace");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the disk was nobody else's");
    }

    /// Runs something where `folder` is an empty disk of 64 KiB, which ends with the last thread that sees it. False
    /// without the right to do so.
    fn on_a_small_disk(folder: &Path, run: impl FnOnce() + Send) -> bool {
        let mount = |arguments: &[&str]| Command::new("mount").args(arguments).status().is_ok_and(|end| end.success());
        let inside = || {
            let there = enter_private_mounts().is_ok()
                && mount(&["--make-rprivate", "/"])
                && mount(&["-t", "tmpfs", "-o", "size=64k", "tmpfs", &folder.display().to_string()]);
            if there {
                run();
            }
            there
        };
        std::thread::scope(|scope| scope.spawn(inside).join()).expect("what ran there holds")
    }

    #[expect(deprecated, reason = "what is unsafe about it is another flag: unsharing the descriptor table")]
    fn enter_private_mounts() -> rustix::io::Result<()> {
        rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNS)
    }
}
