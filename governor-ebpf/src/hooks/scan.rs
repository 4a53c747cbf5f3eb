//! `iter/tcp`: every TCP socket of the network namespace in which the iterator was opened, each under its lock.
//!
//! One pass both repairs and reports: a connection without a mark is counted and marked, a listener without an entry
//! gets one, and every socket leaves a record, from which the daemon learns what is really open. The kernel runs a
//! socket a second time when its record did not fit, so everything here can be done twice.

use crate::kernel::offsets;
use crate::kernel::sock::Sock;
use crate::state::connection;
use crate::state::error::{self, Error};
use crate::state::listener;
use crate::state::maps;
use aya_ebpf::bindings::seq_file;
use aya_ebpf::helpers::bpf_skc_to_tcp_sock;
use aya_ebpf::helpers::generated::bpf_seq_write;
use core::ffi::c_void;
use governor_common::abi::{Direction, ListenPort, ScanRecord};
use governor_ebpf::transition::{can_wait, is_open, state};

/// `struct bpf_iter__tcp`: every field is a 64-bit slot that the verifier knows by its offset.
#[repr(C)]
pub(crate) struct Context {
    meta: *const Meta,
    sk_common: *mut c_void,
}

/// `struct bpf_iter_meta`.
#[repr(C)]
struct Meta {
    seq: *mut seq_file,
}

impl Context {
    /// Whether the iteration is over: the program runs once more then, for no socket.
    #[inline(always)]
    pub(crate) fn is_end(&self) -> bool {
        self.sk_common.is_null()
    }
}

#[inline(always)]
pub(crate) fn handle(ctx: *const Context) -> Result<(), Error> {
    // SAFETY: the context of an iterator program.
    let context = unsafe { ctx.read() };
    if context.is_end() {
        return Ok(());
    }
    let Some(sk) = full_socket(&context) else { return Ok(()) };
    let record = match sk.state() {
        state::LISTEN => visit_listener(sk),
        open if is_open(open) => match visit_connection(sk) {
            Some(record) => record,
            None => return Ok(()),
        },
        _ => return Ok(()),
    };
    write_record(&context, &record);
    Ok(())
}

/// The socket visited; `None` for requests and TIME_WAIT, which are not full sockets and have no storage. The verifier
/// knows it as a `struct tcp_sock`.
#[inline(always)]
pub(crate) fn full_socket(context: &Context) -> Option<Sock> {
    // SAFETY: the helper takes any socket.
    let full = unsafe { bpf_skc_to_tcp_sock(context.sk_common) };
    // SAFETY: just checked.
    if full.is_null() { None } else { Some(unsafe { Sock::new(full.cast_const().cast()) }) }
}

/// Writes one record. When it does not fit, the kernel notices, drops it and comes back to this socket.
#[inline(always)]
pub(crate) fn write_record<R: Copy>(context: &Context, record: &R) {
    #[expect(clippy::cast_possible_truncation, reason = "a record has some tens of bytes")]
    let bytes = size_of::<R>() as u32;
    // SAFETY: `meta` is the context's, and the record is alive for the length of the call.
    let _retried = unsafe { bpf_seq_write((*context.meta).seq, (&raw const *record).cast(), bytes) };
}

#[inline(always)]
fn visit_listener(sk: Sock) -> ScanRecord {
    let cookie = sk.cookie();
    error::count(maps::remember_port(listen_port(sk)));
    error::count(listener::find(sk, cookie).and_then(|entry| listener::refresh(sk, cookie, entry)));
    ScanRecord {
        cookie,
        cgroup: sk.cgroup(),
        state: state::LISTEN.unsigned_abs(),
        direction: 0,
        depth: sk.depth(),
        backlog: sk.backlog(),
    }
}

/// Nothing for a connection that counts from its accept and waits for it.
#[inline(always)]
fn visit_connection(sk: Sock) -> Option<ScanRecord> {
    let mut counted = connection::counted_as(sk);
    if offsets::has_cgroups() && counted.is_none() {
        let waits = sk.is_held_by_nobody() && can_wait(sk.state()) && !sk.is_subflow();
        let inbound = maps::is_listen_port(listen_port(sk));
        let direction = if inbound { Direction::Inbound } else { Direction::Outbound };
        if waits && inbound && maps::counts_at_accept() {
            error::count(connection::expect(sk, direction));
            return None;
        }
        let seeded = connection::seed(sk, direction);
        if seeded.is_ok() {
            maps::count(|stats| &stats.seeded);
        }
        error::count(seeded);
        counted = connection::counted_as(sk);
    }
    let (cgroup, direction) = counted.unwrap_or((0, 0));
    Some(ScanRecord {
        cookie: sk.known_cookie(),
        cgroup,
        state: sk.state().unsigned_abs(),
        direction,
        depth: 0,
        backlog: 0,
    })
}

#[inline(always)]
fn listen_port(sk: Sock) -> ListenPort {
    ListenPort { netns: sk.netns(), port: u32::from(sk.port()) }
}
