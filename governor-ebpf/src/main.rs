//! The BPF programs: entry points only. Each hands over to the file of its hook; an error becomes a counter.
//!
//! The kernel does not run a tracing program that is already running on the same CPU (it only counts
//! `recursion_misses`). A change of state in process context can be interrupted by a softirq that closes a whole burst
//! of connections, and all of them would be missed: 14 of 20 were, in one burst of 9,100. So such a hook has a twin,
//! another program for the same event, which runs where the first one could not. Softirqs do not interrupt each other,
//! so one twin is enough. An event that both see counts once: see `connection`, `listener`, `accept` and
//! `sk_data_ready`. Functions that run with softirqs off throughout cannot be interrupted by themselves, and their
//! hooks have no twin.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![cfg_attr(target_arch = "bpf", feature(core_intrinsics), expect(internal_features, reason = "see atomic.rs"))]
#![expect(unsafe_code, reason = "kernel pointers, map values and helper calls; each block says why it holds")]

mod hooks;
mod kernel;
mod state;

use aya_ebpf::macros::{btf_tracepoint, cgroup_skb, fentry, fexit, kprobe};
use aya_ebpf::programs::{BtfTracePointContext, FEntryContext, FExitContext, ProbeContext, SkBuffContext};
use core::ffi::c_void;

/// Every change of a socket's state: listeners and connections that open and close.
#[btf_tracepoint(function = "inet_sock_set_state")]
pub(crate) fn inet_sock_set_state(ctx: BtfTracePointContext) -> i32 {
    state::error::count(hooks::state_change::handle(&ctx));
    0
}

/// The twin of [`inet_sock_set_state`].
#[btf_tracepoint(function = "inet_sock_set_state")]
pub(crate) fn inet_sock_set_state_twin(ctx: BtfTracePointContext) -> i32 {
    state::error::count(hooks::state_change::handle_missed(&ctx));
    0
}

/// A socket is notified of data. For a listener that means: a connection entered its accept queue.
#[btf_tracepoint(function = "sk_data_ready")]
pub(crate) fn sk_data_ready(ctx: BtfTracePointContext) -> i32 {
    state::error::count(hooks::sk_data_ready::handle(&ctx));
    0
}

/// The twin of [`sk_data_ready`]; attached after it, so that the kernel calls it second.
#[btf_tracepoint(function = "sk_data_ready")]
pub(crate) fn sk_data_ready_twin(ctx: BtfTracePointContext) -> i32 {
    state::error::count(hooks::sk_data_ready::handle_missed(&ctx));
    0
}

/// A packet is dropped. For a listener that can mean: the last packet of a handshake was refused.
#[btf_tracepoint(function = "kfree_skb")]
pub(crate) fn kfree_skb(ctx: BtfTracePointContext) -> i32 {
    state::error::count(hooks::discard::handle(&ctx));
    0
}

/// The twin of [`kfree_skb`]; attached after it, so that the kernel calls it second.
#[btf_tracepoint(function = "kfree_skb")]
pub(crate) fn kfree_skb_twin(ctx: BtfTracePointContext) -> i32 {
    state::error::count(hooks::discard::handle_missed(&ctx));
    0
}

/// A socket is about to receive a packet. For a listener that can mean: a SYN will be refused. It always passes.
/// Attached now and then only, and without a twin: the kernel runs it again within itself, unlike tracing programs.
#[cgroup_skb(ingress)]
pub(crate) fn syn_ingress(ctx: SkBuffContext) -> i32 {
    state::error::count(hooks::ingress::handle(&ctx));
    1
}

/// Visits the listeners of a network namespace and writes one record for each accept queue that is not empty.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/tcp")]
pub(crate) extern "C" fn scan_queues(ctx: *mut c_void) -> i32 {
    hooks::queue_scan::handle(ctx.cast())
}

/// A connection that made its handshake entered an accept queue.
#[fexit(function = "inet_csk_complete_hashdance")]
pub(crate) fn enqueue_handshake(ctx: FExitContext) -> i32 {
    state::error::count(hooks::enqueue::handle(ctx.arg(0), ctx.arg(4)));
    0
}

/// A connection entered an accept queue by another way: a SYN cookie, Fast Open.
#[fexit(function = "inet_csk_reqsk_queue_add")]
pub(crate) fn enqueue_other(ctx: FExitContext) -> i32 {
    state::error::count(hooks::enqueue::handle(ctx.arg(0), ctx.arg(3)));
    0
}

/// A request is copied for another listener. One that is a connection already moves from queue to queue.
#[fentry(function = "inet_reqsk_clone")]
pub(crate) fn enqueue_moved(ctx: FEntryContext) -> i32 {
    state::error::count(hooks::enqueue::moved(ctx.arg(1), ctx.arg(0)));
    0
}

/// A task accepts.
#[fentry(function = "__inet_accept")]
pub(crate) fn accept_socket(ctx: FEntryContext) -> i32 {
    state::error::count(hooks::accept::from_socket(ctx.arg(0), ctx.arg(2)));
    0
}

/// The twin of [`accept_socket`].
#[fentry(function = "__inet_accept")]
pub(crate) fn accept_socket_twin(ctx: FEntryContext) -> i32 {
    state::error::count(hooks::accept::from_socket(ctx.arg(0), ctx.arg(2)));
    0
}

/// A task accepts, where that has no function of its own.
#[fentry(function = "security_sock_graft")]
pub(crate) fn accept_graft(ctx: FEntryContext) -> i32 {
    state::error::count(hooks::accept::grafted(ctx.arg(0)));
    0
}

/// The twin of [`accept_graft`].
#[fentry(function = "security_sock_graft")]
pub(crate) fn accept_graft_twin(ctx: FEntryContext) -> i32 {
    state::error::count(hooks::accept::grafted(ctx.arg(0)));
    0
}

/// A task took a connection out of a queue, where the function has two arguments.
#[fexit(function = "inet_csk_accept")]
pub(crate) fn accept_queue(ctx: FExitContext) -> i32 {
    state::error::count(hooks::accept::from_listener(ctx.arg(0), ctx.arg(2)));
    0
}

/// The twin of [`accept_queue`].
#[fexit(function = "inet_csk_accept")]
pub(crate) fn accept_queue_twin(ctx: FExitContext) -> i32 {
    state::error::count(hooks::accept::from_listener(ctx.arg(0), ctx.arg(2)));
    0
}

/// As [`accept_queue`], where the function has four arguments.
#[fexit(function = "inet_csk_accept")]
pub(crate) fn accept_queue_4(ctx: FExitContext) -> i32 {
    state::error::count(hooks::accept::from_listener(ctx.arg(0), ctx.arg(4)));
    0
}

/// The twin of [`accept_queue_4`].
#[fexit(function = "inet_csk_accept")]
pub(crate) fn accept_queue_4_twin(ctx: FExitContext) -> i32 {
    state::error::count(hooks::accept::from_listener(ctx.arg(0), ctx.arg(4)));
    0
}

/// A SYN arrives at a listener.
#[fentry(function = "tcp_conn_request")]
pub(crate) fn refuse_syn(ctx: FEntryContext) -> i32 {
    state::error::count(hooks::refusal::at_syn(ctx.arg(2)));
    0
}

/// The last packet of a handshake arrives at a listener.
#[fentry(function = "tcp_v4_syn_recv_sock")]
pub(crate) fn refuse_ack(ctx: FEntryContext) -> i32 {
    state::error::count(hooks::refusal::at_ack(ctx.arg(0)));
    0
}

/// As [`refuse_ack`], by IPv6.
#[fentry(function = "tcp_v6_syn_recv_sock")]
pub(crate) fn refuse_ack_v6(ctx: FEntryContext) -> i32 {
    state::error::count(hooks::refusal::at_ack_v6(ctx.arg(0), ctx.arg(1)));
    0
}

/// As [`refuse_ack`], where that has too many arguments for a trampoline.
#[kprobe]
pub(crate) fn refuse_ack_probe(ctx: ProbeContext) -> u32 {
    state::error::count(hooks::refusal::at_ack_probed(&ctx));
    0
}

/// As [`refuse_ack_v6`], where that has too many arguments for a trampoline.
#[kprobe]
pub(crate) fn refuse_ack_v6_probe(ctx: ProbeContext) -> u32 {
    state::error::count(hooks::refusal::at_ack_v6_probed(&ctx));
    0
}

/// Visits every TCP socket of a network namespace: marks what is not counted yet and writes one record each.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/tcp")]
pub(crate) extern "C" fn scan_tcp(ctx: *mut c_void) -> i32 {
    state::error::count(hooks::scan::handle(ctx.cast()));
    0
}

/// Some helpers are for programs under the GPL only; the kernel reads this to decide.
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
pub(crate) static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(not(target_arch = "bpf"))]
fn main() {}

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
