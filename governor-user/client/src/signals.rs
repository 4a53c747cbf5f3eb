//! The daemon's signal page as a proxy looks at it: takes the descriptor that comes with `Welcome`, and tells by the
//! reader's own clock whether the page is still being written. Decides nothing.

use governor_common::signal::{Page, PageReader, PoolSignal, STALE_AFTER_MS, Signals as PageContent, pool_hash};
use governor_common::wire::reply::{Level, Overload};
use governor_common::wire::socket::Socket;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::warn;

/// A page whose heartbeat has not moved for this long says nothing any more.
const STALE_AFTER: Duration = Duration::from_millis(STALE_AFTER_MS);

/// The daemon's signals, see [`Governor::signals`](crate::Governor::signals). Cheap to clone and to look at, from any
/// thread. Every value is at most 20 ms old, or absent.
#[derive(Clone, Debug)]
pub struct Signals {
    page: watch::Receiver<Option<Arc<Shown>>>,
    frames: watch::Receiver<Overload>,
}

impl Signals {
    pub(crate) fn new(page: watch::Receiver<Option<Arc<Shown>>>, frames: watch::Receiver<Overload>) -> Self {
        Self { page, frames }
    }

    /// Level, pressure and causes. By the page; by the last `Overload` frame where the daemon has no page; and normal,
    /// as while the daemon is away, when the page is stale.
    #[must_use]
    pub fn overload(&self) -> Overload {
        match &*self.page.borrow() {
            None => *self.frames.borrow(),
            Some(shown) if shown.is_stale() => Overload::default(),
            // A page that is being written at this moment says what the frame says.
            Some(shown) => shown.page().overload().unwrap_or_else(|_| *self.frames.borrow()),
        }
    }

    /// [`Self::overload`]'s level.
    #[must_use]
    pub fn level(&self) -> Level {
        self.overload().level
    }

    /// One pool by its name; `None` if it is not known now.
    #[must_use]
    pub fn pool(&self, name: &str) -> Option<PoolSignal> {
        self.fresh(|page| page.pool(pool_hash(name)).ok().flatten())
    }

    /// The whole page; `None` if it says nothing now: there is none, it is stale or just being written.
    #[must_use]
    pub fn read(&self) -> Option<PageContent> {
        self.fresh(|page| page.read().ok())
    }

    /// There is a page and its heartbeat has not moved for a second of this process's clock: the daemon is stopped,
    /// stuck or gone. False where there is no page.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.page.borrow().as_ref().is_some_and(|shown| shown.is_stale())
    }

    fn fresh<T>(&self, look: impl FnOnce(&Page) -> Option<T>) -> Option<T> {
        let shown = self.page.borrow();
        shown.as_ref().filter(|shown| !shown.is_stale()).and_then(|shown| look(shown.page()))
    }
}

/// A mapped page, and when its heartbeat was last seen to move.
#[derive(Debug)]
pub(crate) struct Shown {
    page: PageReader,
    mapped: Instant,
    heartbeat: AtomicU64,
    /// Milliseconds after `mapped`.
    moved: AtomicU64,
}

impl Shown {
    fn new(page: PageReader) -> Self {
        let heartbeat = AtomicU64::new(page.heartbeat());
        Self { page, mapped: Instant::now(), heartbeat, moved: AtomicU64::new(0) }
    }

    fn page(&self) -> &Page {
        &self.page
    }

    /// Whether slots may be scarce: also where the page does not say so.
    pub(crate) fn is_scarce(&self) -> bool {
        self.is_stale() || self.page.is_scarce().unwrap_or(true)
    }

    /// Looks at the heartbeat.
    pub(crate) fn is_stale(&self) -> bool {
        let now = self.mapped.elapsed();
        let heartbeat = self.page.heartbeat();
        if self.heartbeat.load(Ordering::Acquire) != heartbeat {
            // In this order: another thread that sees the new heartbeat sees its time as well.
            self.moved.store(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
            self.heartbeat.store(heartbeat, Ordering::Release);
            return false;
        }
        now.saturating_sub(Duration::from_millis(self.moved.load(Ordering::Relaxed))) >= STALE_AFTER
    }
}

/// What was read while a greeting is pending.
pub(crate) struct Greeting {
    /// So many bytes.
    pub(crate) count: usize,
    /// What came along.
    pub(crate) descriptor: Option<OwnedFd>,
}

/// Reads as [`Socket::read`] does, and takes a descriptor that comes along.
pub(crate) async fn receive(socket: &Socket, chunk: &mut [u8]) -> io::Result<Greeting> {
    let read = |fd: BorrowedFd<'_>| {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = recvmsg(fd, &mut [IoSliceMut::new(chunk)], &mut control, flags)?;
        // A read ends where a descriptor came along, so a short one is no end of the stream.
        Ok((Greeting { count: received.bytes, descriptor: first_descriptor(&mut control) }, false))
    };
    socket.read_with(read).await
}

/// Shows the page that this is the descriptor of.
pub(crate) fn show(descriptor: OwnedFd, page: &watch::Sender<Option<Arc<Shown>>>) {
    match PageReader::map(descriptor) {
        Ok(mapped) => drop(page.send_replace(Some(Arc::new(Shown::new(mapped))))),
        Err(error) => warn!(%error, "the governor's signal page is not used"),
    }
}

/// The first descriptor; others are closed.
fn first_descriptor(control: &mut RecvAncillaryBuffer<'_>) -> Option<OwnedFd> {
    let mut first = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            first = descriptors.into_iter().next().or(first);
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor_common::signal::PageWriter;

    fn high() -> PageContent {
        let overload = Overload { level: Level::High, pressure: 800, ..Overload::default() };
        let pools = vec![PoolSignal { hash: pool_hash("chat"), capacity: 8, in_flight: 3, ..PoolSignal::default() }];
        PageContent { overload, node_counted: 3, pools, ..PageContent::default() }
    }

    struct World {
        writer: PageWriter,
        page: watch::Sender<Option<Arc<Shown>>>,
        frames: watch::Sender<Overload>,
        signals: Signals,
    }

    fn world() -> World {
        let mut writer = PageWriter::create(1).unwrap();
        writer.write(&high());
        let shown = Shown::new(PageReader::map(writer.descriptor()).unwrap());
        let (page, seen) = watch::channel(Some(Arc::new(shown)));
        let (frames, told) = watch::channel(Overload::default());
        World { writer, page, frames, signals: Signals::new(seen, told) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_says_what_the_daemon_wrote() {
        let World { signals, .. } = world();
        assert_eq!((signals.level(), signals.overload().pressure), (Level::High, 800));
        assert_eq!(signals.pool("chat").map(|pool| (pool.in_flight, pool.capacity)), Some((3, 8)));
        assert_eq!((signals.pool("other"), signals.read()), (None, Some(high())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_whose_heartbeat_stands_still_for_a_second_says_nothing_until_it_moves_again() {
        let World { mut writer, signals, .. } = world();
        tokio::time::advance(Duration::from_millis(999)).await;
        assert!(!signals.is_stale());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(signals.is_stale());
        assert_eq!((signals.level(), signals.pool("chat"), signals.read()), (Level::Normal, None, None));
        writer.write(&high());
        assert!(!signals.is_stale());
        assert_eq!(signals.level(), Level::High);
        tokio::time::advance(Duration::from_secs(60)).await;
        writer.write(&high());
        assert!(!signals.is_stale(), "nobody looked for a minute; the page was written nevertheless");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_page_frames_tell_the_level() {
        let World { page, frames, signals, .. } = world();
        page.send_replace(None);
        frames.send_replace(Overload { level: Level::Elevated, ..Overload::default() });
        assert_eq!((signals.level(), signals.is_stale(), signals.pool("chat")), (Level::Elevated, false, None));
    }

    #[tokio::test]
    async fn a_descriptor_that_is_no_page_is_closed_and_the_bytes_are_read() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let ours = Socket::new(ours).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
        let descriptors = [rustix::fd::AsFd::as_fd(&file), rustix::fd::AsFd::as_fd(&file)];
        assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&descriptors)));
        let said = [io::IoSlice::new(b"hello")];
        rustix::net::sendmsg(&theirs, &said, &mut control, rustix::net::SendFlags::empty()).unwrap();
        let (page, _seen) = watch::channel(None);
        let mut chunk = [0; 64];
        let greeting = receive(&ours, &mut chunk).await.unwrap();
        show(greeting.descriptor.unwrap(), &page);
        assert_eq!((&chunk[..greeting.count], page.borrow().is_none()), (&b"hello"[..], true));
    }
}
