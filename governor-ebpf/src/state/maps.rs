//! The maps, and typed access to their values as [`crate::state::cells`].

use crate::kernel::sock::Sock;
use crate::state::atomic::Cell;
use crate::state::cells::{CgroupCell, ListenerCell, MarkerCell, QuickCell, SojournCell, StatsCell};
use crate::state::error::Error;
use aya_ebpf::bindings::{BPF_ANY, BPF_F_NO_PREALLOC, BPF_NOEXIST, BPF_RB_NO_WAKEUP, BPF_SK_STORAGE_GET_F_CREATE};
use aya_ebpf::btf_maps::{Array, HashMap, LruHashMap, PerCpuArray, RingBuf};
use aya_ebpf::helpers::generated::bpf_sk_storage_get;
use aya_ebpf::macros::btf_map;
use core::ptr;
use governor_common::abi::{
    CgroupKey, CgroupState, Control, Event, GlobalStats, ListenPort, ListenerState, MAX_CGROUPS, MAX_LEASED,
    MAX_LISTEN_PORTS, MAX_LISTENERS, Marker, QUICK_MARKS as PLACES, QuickMark, Sojourn, leased_places,
};

/// Holds some 1,600 events: what a program with many listeners causes at its end, between two ticks of a slow machine.
const EVENT_BYTES: usize = 256 * 1024;

/// Holds 8,192 ends: what closes at once when a proxy with as many clients is killed.
const CLOSED_BYTES: usize = 128 * 1024;

#[btf_map]
static LISTENERS: HashMap<u64, ListenerState, { MAX_LISTENERS as usize }> = HashMap::new();

#[btf_map]
static CGROUPS: HashMap<CgroupKey, CgroupState, { MAX_CGROUPS as usize }> = HashMap::new();

#[btf_map]
static LISTEN_PORTS: HashMap<ListenPort, u32, { MAX_LISTEN_PORTS as usize }> = HashMap::new();

/// Made for a listener at its first measured accept, because a histogram is large.
#[btf_map]
static SOJOURN: HashMap<u64, Sojourn, { MAX_LISTENERS as usize }, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

#[btf_map]
static CONTROL: Array<Control, 1> = Array::new();

#[btf_map]
static STATS: Array<GlobalStats, 1> = Array::new();

/// When a listener on this port last closed and handed its queue on. Old ports make room for new ones.
#[btf_map]
static HANDED_ON: LruHashMap<ListenPort, u64, 1024> = LruHashMap::new();

/// First subflows of Multipath TCP that wait for their accept, by their cookie: the listener's cookie and when they
/// entered its queue. Accept hands over another socket, which has no mark. Those of connections that are not accepted
/// are evicted.
#[btf_map]
static SUBFLOWS: LruHashMap<u64, [u64; 2], 4096> = LruHashMap::new();

/// The cookie of the listener whose enqueue was counted last on this CPU, until the twin has read it.
#[btf_map]
static WORDS: PerCpuArray<u64, 1> = PerCpuArray::new();

/// The change of state that was seen last on this CPU, until the twin has read it: the socket's address and its new
/// state.
#[btf_map]
static STATE_WORDS: PerCpuArray<[u64; 2], 1> = PerCpuArray::new();

/// The packet whose refusal was counted last on this CPU, until the twin has read it.
#[btf_map]
static DISCARD_WORDS: PerCpuArray<u64, 1> = PerCpuArray::new();

#[btf_map]
pub(crate) static EVENTS: RingBuf<Event, EVENT_BYTES> = RingBuf::new();

/// By the cookie of the socket: see `quick`.
#[btf_map]
static QUICK_MARKS: Array<QuickMark, { PLACES as usize }> = Array::new();

/// One less than the length of that table, as a mask; overwritten by the loader.
#[unsafe(no_mangle)]
static LAST_PLACE: u32 = 0;

/// Cookies of connections whose end is to be reported, each in one of two places that it leads to: see `leased`.
/// Written by the daemon, removed by the program that sees the end.
#[btf_map]
static LEASED: Array<u64, { MAX_LEASED as usize }> = Array::new();

/// The cookies of those that have ended.
#[btf_map]
static CLOSED: RingBuf<u64, CLOSED_BYTES> = RingBuf::new();

/// aya's own type serves socket-address programs only, so the definition is written out here.
#[btf_map]
static MARKERS: MarkerStorage = MarkerStorage {
    r#type: ptr::null(),
    key: ptr::null(),
    value: ptr::null(),
    max_entries: ptr::null(),
    map_flags: ptr::null(),
};

const BPF_MAP_TYPE_SK_STORAGE: usize = 24;
/// `BPF_F_NO_PREALLOC`, which the kernel demands; not `BPF_F_CLONE`: a child is marked when it is established.
const STORAGE_FLAGS: usize = 1;

/// A map definition in the shape that loaders read from BTF: the numbers are array lengths.
#[repr(C)]
struct MarkerStorage {
    r#type: *const [i32; BPF_MAP_TYPE_SK_STORAGE],
    key: *const i32,
    value: *const Marker,
    max_entries: *const [i32; 0],
    map_flags: *const [i32; STORAGE_FLAGS],
}

// SAFETY: the pointers are placeholders that the loader replaces; nothing reads them.
unsafe impl Sync for MarkerStorage {}

/// A listener's entry.
#[inline(always)]
pub(crate) fn listener(cookie: u64) -> Option<&'static ListenerCell> {
    // SAFETY: a value of this map, alive until the program ends; the cell has the value's layout.
    LISTENERS.get_ptr(cookie).map(|value| unsafe { &*value.cast() })
}

/// Makes or replaces a listener's entry.
#[inline(always)]
pub(crate) fn put_listener(cookie: u64, state: &ListenerState) -> Result<(), Error> {
    LISTENERS.insert(cookie, state, u64::from(BPF_ANY)).map_err(|_| Error::ListenerUntracked)
}

/// The entry, made from `state` unless it is there.
#[inline(always)]
pub(crate) fn listener_or_insert(cookie: u64, state: &ListenerState) -> Result<&'static ListenerCell, Error> {
    // When another CPU made the entry in between, this fails and the look-up finds that one.
    let _raced = LISTENERS.insert(cookie, state, u64::from(BPF_NOEXIST));
    listener(cookie).ok_or(Error::ListenerUntracked)
}

/// The waits of a listener, made unless they are there.
#[inline(always)]
#[expect(clippy::needless_borrows_for_generic_args, reason = "by value it would go over the stack, which it exceeds")]
pub(crate) fn sojourn_or_insert(cookie: u64) -> Result<&'static SojournCell, Error> {
    /// Too large for a program's stack.
    static EMPTY: Sojourn = Sojourn::EMPTY;
    if let Some(sojourn) = sojourn(cookie) {
        return Ok(sojourn);
    }
    let _raced = SOJOURN.insert(cookie, &EMPTY, u64::from(BPF_NOEXIST));
    sojourn(cookie).ok_or(Error::ListenerUntracked)
}

#[inline(always)]
fn sojourn(cookie: u64) -> Option<&'static SojournCell> {
    // SAFETY: as in `listener`.
    SOJOURN.get_ptr(cookie).map(|value| unsafe { &*value.cast() })
}

/// Whether an inbound connection counts from its accept.
#[inline(always)]
pub(crate) fn counts_at_accept() -> bool {
    // SAFETY: a value of this map; the daemon writes each number in one piece.
    CONTROL.get_ptr(0).is_some_and(|control| unsafe { (&raw const (*control).counts_at_accept).read_volatile() } != 0)
}

/// The interval that waits are collected for.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "intervals are told apart modulo 2¹⁶")]
pub(crate) fn interval() -> u16 {
    // SAFETY: as in `counts_at_accept`.
    CONTROL.get_ptr(0).map_or(0, |control| unsafe { (&raw const (*control).interval).read_volatile() } as u16)
}

/// Says on this CPU that the enqueue of a listener is counted.
#[inline(always)]
pub(crate) fn leave_word(cookie: u64) {
    if let Some(word) = WORDS.get_ptr_mut(0) {
        // SAFETY: this CPU's own value, and nothing else runs here that uses it: see `sk_data_ready`.
        unsafe { word.write(cookie) };
    }
}

/// What was said on this CPU, once; 0 if nothing was. No socket has the cookie 0.
#[inline(always)]
pub(crate) fn take_word() -> u64 {
    // SAFETY: as in `leave_word`.
    WORDS.get_ptr_mut(0).map_or(0, |word| unsafe { word.replace(0) })
}

/// Says on this CPU that a change of state is dealt with.
#[inline(always)]
pub(crate) fn leave_state_word(socket: u64, state: u64) {
    if let Some(word) = STATE_WORDS.get_ptr_mut(0) {
        // SAFETY: this CPU's own value. What interrupts between the two writes leaves a word that is not this event's.
        unsafe { word.write([socket, state]) };
    }
}

/// Whether this change of state was the last that was seen on this CPU. Asked once, because a socket can have the
/// address and the state of one that is gone.
#[inline(always)]
pub(crate) fn take_state_word(socket: u64, state: u64) -> bool {
    let Some(word) = STATE_WORDS.get_ptr_mut(0) else { return false };
    // SAFETY: as in `leave_state_word`.
    let seen = unsafe { (*word)[0] == socket && (*word)[1] == state };
    if seen {
        // SAFETY: as above. No socket has the address 0.
        unsafe { (*word)[0] = 0 };
    }
    seen
}

/// Says on this CPU that the refusal of a packet is counted.
#[inline(always)]
pub(crate) fn leave_discard_word(packet: u64) {
    if let Some(word) = DISCARD_WORDS.get_ptr_mut(0) {
        // SAFETY: this CPU's own value, and nothing else runs here that uses it: see `discard`.
        unsafe { word.write(packet) };
    }
}

/// What was said on this CPU, once; 0 if nothing was.
#[inline(always)]
pub(crate) fn take_discard_word() -> u64 {
    // SAFETY: as in `leave_discard_word`.
    DISCARD_WORDS.get_ptr_mut(0).map_or(0, |word| unsafe { word.replace(0) })
}

/// The counters of a cgroup in the namespace of a socket.
#[inline(always)]
pub(crate) fn cgroup(sk: Sock, id: u64) -> Option<&'static CgroupCell> {
    counters(CgroupKey::new(id, sk.netns()))
}

/// The counters of a cgroup in the namespace of a socket, made unless they are there.
#[inline(always)]
pub(crate) fn cgroup_or_insert(sk: Sock, id: u64) -> Result<&'static CgroupCell, Error> {
    let key = CgroupKey::new(id, sk.netns());
    if let Some(state) = counters(key) {
        return Ok(state);
    }
    let _raced = CGROUPS.insert(key, ZERO_CGROUP, u64::from(BPF_NOEXIST));
    counters(key).ok_or(Error::ConnectionUntracked)
}

#[inline(always)]
fn counters(key: CgroupKey) -> Option<&'static CgroupCell> {
    // SAFETY: as in `listener`.
    CGROUPS.get_ptr(key).map(|value| unsafe { &*value.cast() })
}

const ZERO_CGROUP: CgroupState =
    CgroupState { inbound_opened: 0, inbound_closed: 0, outbound_opened: 0, outbound_closed: 0 };

/// Remembers a listening port for the scan that runs.
#[inline(always)]
pub(crate) fn remember_port(port: ListenPort) -> Result<(), Error> {
    LISTEN_PORTS.insert(port, 1, u64::from(BPF_ANY)).map_err(|_| Error::ListenerUntracked)
}

/// Whether the scan that runs has seen a listener on this port.
#[inline(always)]
pub(crate) fn is_listen_port(port: ListenPort) -> bool {
    LISTEN_PORTS.get_ptr(port).is_some()
}

/// Remembers that a listener hands its queue on to others of its port.
#[inline(always)]
pub(crate) fn note_handed_on(port: ListenPort, now_ns: u64) {
    // A full map makes room; if it cannot, the connections count as new ones.
    let _unknown = HANDED_ON.insert(port, now_ns, u64::from(BPF_ANY));
    count(|stats| &stats.handed_on);
}

/// When a listener on this port last handed its queue on; 0 if none did.
#[inline(always)]
pub(crate) fn handed_on_at(port: ListenPort) -> u64 {
    // Most hosts never see it, and so need no look-up at each enqueue.
    // SAFETY: as in `listener`.
    let ever = STATS.get_ptr(0).is_some_and(|stats| unsafe { &*stats.cast::<StatsCell>() }.handed_on.load() != 0);
    if !ever {
        return 0;
    }
    // SAFETY: as in `listener`; a number written in one piece.
    HANDED_ON.get_ptr(port).map_or(0, |moment| unsafe { moment.read_volatile() })
}

/// Takes a connection off those whose end is to be reported; false for all others. No call: the kernel does look-ups in
/// arrays in place.
#[inline(always)]
pub(crate) fn take_leased(cookie: u64) -> bool {
    let [one, other] = leased_places(cookie);
    take_place(one, cookie) || take_place(other, cookie)
}

#[inline(always)]
fn take_place(place: u32, cookie: u64) -> bool {
    // SAFETY: as in `listener`; a number that the daemon writes in one piece.
    let known = LEASED.get_ptr(place).map(|value| unsafe { &*value.cast::<Cell<u64>>() });
    known.is_some_and(|known| known.load() == cookie && known.replace(cookie, 0).is_ok())
}

/// Reports that a connection has ended.
#[inline(always)]
pub(crate) fn tell_closed(cookie: u64) -> Result<(), Error> {
    CLOSED.output(cookie, u64::from(BPF_RB_NO_WAKEUP)).map_err(|_| Error::EventLost)
}

/// Remembers where and since when the first subflow of a Multipath TCP connection waits.
#[inline(always)]
pub(crate) fn note_subflow(cookie: u64, listener: u64, enqueued_ns: u64) {
    // Without it its accept has no wait.
    let _unknown = SUBFLOWS.insert(cookie, [listener, enqueued_ns], u64::from(BPF_ANY));
}

/// What [`note_subflow`] remembered, once.
#[inline(always)]
pub(crate) fn take_subflow(cookie: u64) -> Option<[u64; 2]> {
    // SAFETY: as in `listener`; an entry is written once.
    let known = SUBFLOWS.get_ptr(cookie).map(|value| unsafe { value.read_volatile() })?;
    let _gone = SUBFLOWS.remove(cookie);
    Some(known)
}

/// The mark on a socket.
#[inline(always)]
pub(crate) fn marker(sk: Sock) -> Option<&'static MarkerCell> {
    // SAFETY: map and socket are what the helper takes; it gives null or a live value of the map.
    unsafe { bpf_sk_storage_get(markers(), sk.as_ptr(), ptr::null_mut(), 0).cast::<MarkerCell>().as_ref() }
}

/// The mark on a socket, made unless it is there.
#[inline(always)]
pub(crate) fn marker_or_insert(sk: Sock, mut marker: Marker) -> Result<&'static MarkerCell, Error> {
    let value = (&raw mut marker).cast();
    let create = u64::from(BPF_SK_STORAGE_GET_F_CREATE);
    // SAFETY: as in `marker`; the helper copies the value.
    let made = unsafe { bpf_sk_storage_get(markers(), sk.as_ptr(), value, create).cast::<MarkerCell>().as_ref() };
    made.ok_or(Error::ConnectionUntracked)
}

/// The place in the table of quick marks that a cookie leads to.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "only the low bits are kept")]
pub(crate) fn quick_mark(cookie: u64) -> Option<&'static QuickCell> {
    // SAFETY: the pointer comes from a reference to a static. Volatile for the reason that `offsets` gives.
    let last_place = unsafe { (&raw const LAST_PLACE).read_volatile() };
    // SAFETY: as in `listener`.
    QUICK_MARKS.get_ptr(cookie as u32 & last_place).map(|value| unsafe { &*value.cast() })
}

/// Adds one to a statistic.
#[inline(always)]
pub(crate) fn count(statistic: impl FnOnce(&'static StatsCell) -> &'static Cell<u64>) {
    if let Some(stats) = STATS.get_ptr(0) {
        // SAFETY: as in `listener`.
        statistic(unsafe { &*stats.cast() }).add(1);
    }
}

#[inline(always)]
fn markers() -> *mut core::ffi::c_void {
    (&raw const MARKERS).cast_mut().cast()
}
