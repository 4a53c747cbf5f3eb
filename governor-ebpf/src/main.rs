//! The BPF programs: entry points only. Each hands over to the file of its hook; an error becomes a counter.
//!
//! The kernel does not run a tracing program that is already running on the same CPU (it only counts
//! `recursion_misses`). A change of state in process context can be interrupted by a softirq that closes a whole burst of
//! connections, and all of them would be missed: 14 of 20 were, in one burst of 9,100. So every hook has a twin, another
//! program for the same event, which runs where the first one could not. Softirqs do not interrupt each other, so
//! one twin is enough. An event that both see counts once: see `connection`, `listener` and `sk_data_ready`.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![cfg_attr(target_arch = "bpf", feature(core_intrinsics), expect(internal_features, reason = "see atomic.rs"))]
#![expect(unsafe_code, reason = "kernel pointers, map values and helper calls; each block says why it holds")]

mod atomic;
mod cells;
mod connection;
mod discard;
mod emit;
mod error;
mod ingress;
mod listener;
mod maps;
mod offsets;
mod overflow;
mod queue;
mod queue_scan;
mod scan;
mod sk_data_ready;
mod sock;
mod state_change;

use aya_ebpf::macros::{btf_tracepoint, cgroup_skb};
use aya_ebpf::programs::{BtfTracePointContext, SkBuffContext};
use core::ffi::c_void;

/// Every change of a socket's state: listeners and connections that open and close.
#[btf_tracepoint(function = "inet_sock_set_state")]
pub(crate) fn inet_sock_set_state(ctx: BtfTracePointContext) -> i32 {
    error::count(state_change::handle(&ctx));
    0
}

/// The twin of [`inet_sock_set_state`].
#[btf_tracepoint(function = "inet_sock_set_state")]
pub(crate) fn inet_sock_set_state_twin(ctx: BtfTracePointContext) -> i32 {
    error::count(state_change::handle(&ctx));
    0
}

/// A socket is told that it has data. For a listener that means: a connection entered its accept queue.
#[btf_tracepoint(function = "sk_data_ready")]
pub(crate) fn sk_data_ready(ctx: BtfTracePointContext) -> i32 {
    error::count(sk_data_ready::handle(&ctx));
    0
}

/// The twin of [`sk_data_ready`]; attached after it, so that the kernel calls it second.
#[btf_tracepoint(function = "sk_data_ready")]
pub(crate) fn sk_data_ready_twin(ctx: BtfTracePointContext) -> i32 {
    error::count(sk_data_ready::handle_missed(&ctx));
    0
}

/// A packet is dropped. For a listener that can mean: the last packet of a handshake was refused.
#[btf_tracepoint(function = "kfree_skb")]
pub(crate) fn kfree_skb(ctx: BtfTracePointContext) -> i32 {
    error::count(discard::handle(&ctx));
    0
}

/// The twin of [`kfree_skb`]; attached after it, so that the kernel calls it second.
#[btf_tracepoint(function = "kfree_skb")]
pub(crate) fn kfree_skb_twin(ctx: BtfTracePointContext) -> i32 {
    error::count(discard::handle_missed(&ctx));
    0
}

/// A socket is about to receive a packet. For a listener that can mean: a SYN will be refused. It always passes. Attached
/// now and then only, and without a twin: the kernel runs it again within itself, unlike tracing programs.
#[cgroup_skb(ingress)]
pub(crate) fn syn_ingress(ctx: SkBuffContext) -> i32 {
    error::count(ingress::handle(&ctx));
    1
}

/// Visits the listeners of a network namespace and writes one record for each accept queue that is not empty.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/tcp")]
pub(crate) extern "C" fn scan_queues(ctx: *mut c_void) -> i32 {
    queue_scan::handle(ctx.cast())
}

/// Visits every TCP socket of a network namespace: marks what is not counted yet and writes one record each.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/tcp")]
pub(crate) extern "C" fn scan_tcp(ctx: *mut c_void) -> i32 {
    error::count(scan::handle(ctx.cast()));
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
