//! The page as shared memory: made and sealed by the daemon, mapped read-only by proxies. The one unsafe island of the
//! signal page; what the words mean is `signal`'s business.
//!
//! The file is sealed before its descriptor leaves the daemon: it can neither shrink (so no reader is ever killed by
//! SIGBUS) nor grow, no process can write to it or map it writable any more, and the seals cannot be taken off.

use super::{PAGE_SIZE, PAGE_VERSION, Page, Signals};
use core::ops::Deref;
use core::ptr::NonNull;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;

/// Why a descriptor is no signal page.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The file is shorter than a page.
    #[error("the file has {size} bytes, a signal page has {PAGE_SIZE}")]
    Short {
        /// Its length.
        size: i64,
    },
    /// The file could shrink under its readers.
    #[error("the file is not sealed against shrinking")]
    NotSealed,
    /// It does not begin as a signal page does.
    #[error("the file is no signal page")]
    NotAPage,
    /// The layout is of a version this build does not know.
    #[error("the page has layout version {version}, this build reads {PAGE_VERSION}")]
    Version {
        /// Its version.
        version: u32,
    },
    /// The system refuses.
    #[error("the page cannot be mapped")]
    Io(#[from] io::Error),
}

/// The daemon's end: the only writer.
#[derive(Debug)]
pub struct PageWriter {
    mapping: Mapping,
    readable: OwnedFd,
}

impl PageWriter {
    /// Makes a page that says nothing yet, for the run of the daemon with this epoch.
    ///
    /// # Errors
    ///
    /// The system has no sealed memory (Linux before 5.1), or none left.
    pub fn create(epoch: u32) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Hosts may insist on memory that cannot be executed; kernels before 6.3 do not know the flag.
        let file = match memfd_create("governor-signals", flags | MemfdFlags::NOEXEC_SEAL) {
            Err(Errno::INVAL) => memfd_create("governor-signals", flags),
            made => made,
        }?;
        ftruncate(&file, PAGE_SIZE as u64)?;
        let mapping = Mapping::new(file.as_fd(), ProtFlags::READ | ProtFlags::WRITE)?;
        mapping.sign(epoch);
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let readable = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { mapping, readable })
    }

    /// The descriptor for proxies: it can be mapped for reading and nothing else.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    /// Replaces what the page says and moves its heartbeat.
    pub fn write(&mut self, signals: &Signals) {
        self.mapping.publish(signals);
    }
}

/// A proxy's end.
#[derive(Debug)]
pub struct PageReader {
    mapping: Mapping,
}

impl PageReader {
    /// Maps what a daemon sent. The descriptor is not needed afterwards.
    ///
    /// # Errors
    ///
    /// [`MapError`]: it is no signal page, or one that cannot be trusted to stay.
    pub fn map(descriptor: impl AsFd) -> Result<Self, MapError> {
        let descriptor = descriptor.as_fd();
        let size = fstat(descriptor).map_err(io::Error::from)?.st_size;
        if usize::try_from(size).unwrap_or(0) < PAGE_SIZE {
            return Err(MapError::Short { size });
        }
        // Only memory files have seals: anything else could shrink.
        let seals = fcntl_get_seals(descriptor).map_err(|_| MapError::NotSealed)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(MapError::NotSealed);
        }
        let mapping = Mapping::new(descriptor, ProtFlags::READ)?;
        match mapping.version() {
            None => Err(MapError::NotAPage),
            Some((PAGE_VERSION, _)) => Ok(Self { mapping }),
            Some((version, _)) => Err(MapError::Version { version }),
        }
    }

    /// The epoch of the daemon that writes it, as in its `Welcome`.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.mapping.version().map_or(0, |(_, epoch)| epoch)
    }
}

impl Deref for PageReader {
    type Target = Page;

    #[inline]
    fn deref(&self) -> &Page {
        &self.mapping
    }
}

/// A mapped page. Only [`PageWriter`] stores to one, and it maps it writable.
#[derive(Debug)]
struct Mapping(NonNull<Page>);

impl Mapping {
    fn new(file: BorrowedFd<'_>, protection: ProtFlags) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice overlaps no other memory.
        let start = unsafe { mmap(core::ptr::null_mut(), PAGE_SIZE, protection, MapFlags::SHARED, file, 0) }?;
        let page = NonNull::new(start.cast::<Page>()).ok_or(Errno::NOMEM)?;
        Ok(Self(page))
    }
}

impl Deref for Mapping {
    type Target = Page;

    #[inline]
    fn deref(&self) -> &Page {
        // SAFETY: the mapping is page-aligned, PAGE_SIZE long and lives as long as `self`; the file behind it has that
        // length and is sealed against shrinking. Any bytes are a `Page`, and others change them through atomics only.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it outlives `self`. It fails only for a mapping that is
        // none.
        unsafe { munmap(self.0.as_ptr().cast(), PAGE_SIZE) }.ok();
    }
}

// SAFETY: a `Page` is atomics, and the mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; storing takes `&mut PageWriter`.
unsafe impl Sync for Mapping {}
