//! A listener's entry: made when it opens or is first seen, brought up to date at every enqueue.

use crate::kernel::offsets;
use crate::kernel::sock::Sock;
use crate::state::cells::ListenerCell;
use crate::state::emit;
use crate::state::error::{self, Error};
use crate::state::maps;
use crate::state::queue;
use governor_common::abi::{EventKind, ListenerState};

/// Attempts to raise the peak. Each failed one means that another CPU raised it, so the next compares with more.
const PEAK_ATTEMPTS: usize = 16;

/// What a socket says about itself.
#[inline(always)]
pub(crate) fn describe(sk: Sock, opened_ns: u64) -> ListenerState {
    ListenerState {
        opened_ns,
        closed_ns: 0,
        enqueued: 0,
        moved: 0,
        accepted: 0,
        abandoned: 0,
        overflow_syn: 0,
        overflow_ack: 0,
        lost: 0,
        handed_on: 0,
        head_ns: 0,
        owner_cgroup: sk.cgroup(),
        address: sk.address(),
        netns: sk.netns(),
        depth: 0,
        peak: 0,
        backlog: u64::from(sk.backlog()),
        port: sk.port(),
        family: sk.family(),
        reopened: 0,
    }
}

/// The entry of a listener; one that listened before the programs were attached gets it now, with `opened_ns` 0.
#[inline(always)]
pub(crate) fn find(sk: Sock, cookie: u64) -> Result<&'static ListenerCell, Error> {
    match maps::listener(cookie) {
        Some(listener) => Ok(listener),
        None => maps::listener_or_insert(cookie, &describe(sk, 0)),
    }
}

/// Brings depth, head, peak and backlog up to date.
#[inline(always)]
pub(crate) fn refresh(sk: Sock, cookie: u64, listener: &ListenerCell) -> Result<(), Error> {
    let depth = sk.depth();
    listener.depth.store(depth);
    if offsets::has_queue() {
        listener.head_ns.store(queue::head_ns(sk));
    }
    raise_peak(listener, u64::from(depth))?;
    notice_relisten(sk, cookie, listener)
}

#[inline(always)]
fn raise_peak(listener: &ListenerCell, depth: u64) -> Result<(), Error> {
    let mut peak = listener.peak.load();
    for _ in 0..PEAK_ATTEMPTS {
        if depth <= peak {
            return Ok(());
        }
        match listener.peak.replace(peak, depth) {
            Ok(()) => return Ok(()),
            Err(raised) => peak = raised,
        }
    }
    Err(Error::Contended)
}

/// `listen()` on a socket that listens already changes the backlog and nothing else, without any event. The CPU that
/// replaces the old value reports it, so it is reported once.
#[inline(always)]
fn notice_relisten(sk: Sock, cookie: u64, listener: &ListenerCell) -> Result<(), Error> {
    let backlog = u64::from(sk.backlog());
    let before = listener.backlog.load();
    if before == backlog || listener.backlog.replace(before, backlog).is_err() {
        return Ok(());
    }
    emit::listener(EventKind::Relistened, cookie, before, &listener.snapshot())
}

/// Marks the entry closed and reports it; false if it is not there or closed already. The daemon removes it (see
/// [`ListenerState::closed_ns`]). What is still queued is reset next, unless the kernel hands it on.
#[inline(always)]
pub(crate) fn close(sk: Sock, now_ns: u64) -> Result<bool, Error> {
    let cookie = sk.cookie();
    let Some(listener) = maps::listener(cookie) else {
        return Ok(false);
    };
    if listener.closed_ns.load() != 0 {
        return Ok(false);
    }
    let queued = sk.depth();
    listener.depth.store(queued);
    if sk.hands_its_queue_on() {
        listener.handed_on.add(u64::from(queued));
        maps::note_handed_on(listener.listen_port(), now_ns);
    } else {
        listener.lost.add(u64::from(queued));
    }
    listener.closed_ns.store(now_ns);
    emit::listener(EventKind::Closed, cookie, 0, &listener.snapshot()).map(|()| true)
}

/// Makes the entry of a socket that just began to listen and reports it; false if that is done already. A socket that
/// stopped listening and begins again before the daemon has removed its entry keeps its counters: the cookie names the
/// socket, and a new generation of it.
#[inline(always)]
pub(crate) fn open(sk: Sock, cookie: u64, now_ns: u64) -> Result<bool, Error> {
    let before = maps::listener(cookie);
    if before.is_some_and(|before| before.was_opened() && before.closed_ns.load() == 0) {
        return Ok(false);
    }
    let mut opened = emit::event(EventKind::Opened, cookie, 0, describe(sk, now_ns));
    if let Some(before) = before {
        go_on(&mut opened.listener, before);
    }
    maps::put_listener(cookie, &opened.listener)?;
    error::count(emit::send(&opened));
    Ok(true)
}

/// Takes over what earlier generations of a listener counted. Their queue is empty, so that nothing adds to it meanwhile.
#[inline(always)]
fn go_on(listener: &mut ListenerState, before: &ListenerCell) {
    listener.enqueued = before.enqueued.load();
    listener.moved = before.moved.load();
    listener.accepted = before.accepted.load();
    listener.abandoned = before.abandoned.load();
    listener.overflow_syn = before.overflow_syn.load();
    listener.overflow_ack = before.overflow_ack.load();
    listener.lost = before.lost.load();
    listener.handed_on = before.handed_on.load();
    listener.peak = before.peak.load();
    listener.reopened = before.reopened.wrapping_add(1);
}
