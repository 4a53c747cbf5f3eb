//! The hooks of the tracepoint tier that count packets refused because an accept queue was full: at the last packet of a
//! handshake by the kernel's reason for dropping it, at the SYN by a program at the root of the v2 hierarchy that is
//! attached for a while only. Resolves what they need, loads and attaches them; counts nothing.

use crate::btf::{BtfError, Layouts};
use crate::proc::own_namespaces::kernel_monotonic_ns;
use crate::programs::loader::{chain, one_line};
use crate::programs::maps::Maps;
use crate::programs::pin::Programs;
use crate::programs::provoke::{self, Refused};
use crate::programs::selftest;
use aya::programs::{CgroupAttachMode, CgroupSkb, CgroupSkbAttachType, Iter, ProgramError, cgroup_skb::CgroupSkbLink};
use aya::{Btf, Ebpf};
use governor_common::abi::{ListenerState, Offsets};
use governor_observation::wording;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::Instant;

/// Arguments of `kfree_skb`, of which the last is the socket that refused.
const DISCARD_ARGUMENTS: usize = 4;
/// Inode number of the root of the v2 hierarchy. A mount that begins below it shows part of the host only.
const HIERARCHY_ROOT: u64 = 1;
const NO_PROGRAM: &str = "the object has no such program";

/// Why each of the two stages, and the scan of the queues, cannot work on this kernel; empty where they can.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Obstacles {
    pub(crate) ack: Option<String>,
    pub(crate) syn: Option<String>,
    pub(crate) queues: Option<String>,
}

/// Finds what the programs of this file read, and says what is missing.
pub(crate) fn resolve(kernel: &Layouts<'_>, offsets: &mut Offsets) -> Obstacles {
    let queues = resolve_queue(kernel, offsets).err().map(|error| error.to_string());
    let cookies = resolve_cookies(kernel, offsets).err().map(|error| error.to_string());
    // A kernel that does not know migration resets every queue of a listener that closes, which the programs assume.
    let _none_here = resolve_migration(kernel, offsets);
    Obstacles { ack: resolve_reasons(kernel, offsets).err(), syn: queues.clone().or(cookies), queues }
}

fn resolve_queue(kernel: &Layouts<'_>, offsets: &mut Offsets) -> Result<(), BtfError> {
    offsets.queue_head = kernel.offset("inet_connection_sock.icsk_accept_queue.rskq_accept_head", 8)?;
    offsets.queue_tail = kernel.offset("inet_connection_sock.icsk_accept_queue.rskq_accept_tail", 8)?;
    offsets.queue_half_open = kernel.offset("inet_connection_sock.icsk_accept_queue.qlen", 4)?;
    offsets.request_child = kernel.offset("request_sock.sk", 8)?;
    offsets.request_next = kernel.offset("request_sock.dl_next", 8)?;
    offsets.has_queue = 1;
    Ok(())
}

fn resolve_migration(kernel: &Layouts<'_>, offsets: &mut Offsets) -> Result<(), BtfError> {
    offsets.net_migrate = kernel.offset("net.ipv4.sysctl_tcp_migrate_req", 1)?;
    offsets.sock_group = kernel.offset("sock.sk_reuseport_cb", 8)?;
    offsets.group_members = kernel.offset("sock_reuseport.num_socks", 2)?;
    offsets.has_migration = 1;
    Ok(())
}

fn resolve_cookies(kernel: &Layouts<'_>, offsets: &mut Offsets) -> Result<(), BtfError> {
    const SETTING: &str = "net.ipv4.sysctl_tcp_syncookies";
    // An int on older kernels, of which the first byte is as good on this byte order.
    let wide = if cfg!(target_endian = "little") { kernel.offset(SETTING, 4) } else { kernel.offset(SETTING, 1) };
    offsets.net_cookies = kernel.offset(SETTING, 1).or(wide)?;
    Ok(())
}

fn resolve_reasons(kernel: &Layouts<'_>, offsets: &mut Offsets) -> Result<(), String> {
    let reason = |name: &str| kernel.enumerator("skb_drop_reason", &format!("SKB_DROP_REASON_{name}"));
    offsets.reason_overflow = reason("TCP_LISTEN_OVERFLOW").map_err(|error| error.to_string())?;
    offsets.reason_no_socket = reason("NO_SOCKET").map_err(|error| error.to_string())?;
    match kernel.tracepoint_arguments("kfree_skb") {
        Ok(count) if count >= DISCARD_ARGUMENTS => Ok(()),
        Ok(count) => Err(format!("this kernel's kfree_skb has {count} arguments and does not name the socket")),
        Err(error) => Err(error.to_string()),
    }
}

/// Loads the program that looks at SYNs; it is attached by [`watch_syns`].
pub(crate) fn load_syn(object: &mut Ebpf) -> Result<(), String> {
    syn_program(object)?.load().map_err(|error| one_line(&error))
}

/// Loads the scan of the accept queues.
pub(crate) fn load_queue_scan(object: &mut Ebpf, btf: &Btf) -> Result<(), String> {
    let program = object.program_mut("scan_queues").ok_or(NO_PROGRAM)?;
    let program: &mut Iter = program.try_into().map_err(|error: ProgramError| one_line(&error))?;
    program.load("tcp", btf).map_err(|error| one_line(&error))
}

/// Has the last packet of a handshake refused and sees whether it is counted as often as the kernel counts it.
pub(crate) fn prove_ack(maps: &Maps) -> Result<(), String> {
    let proved = selftest::apart(|| {
        let refused = provoke::refuse_ack().map_err(|error| chain(&error))?;
        agree(maps, &refused, |listener| listener.overflow_ack)
    });
    proved.map_err(|error| chain(&error)).flatten()
}

/// As [`prove_ack`], with a SYN.
pub(crate) fn prove_syn(maps: &Maps) -> Result<(), String> {
    let proved = selftest::apart(|| {
        let refused = provoke::refuse_syn().map_err(|error| chain(&error))?;
        agree(maps, &refused, |listener| listener.overflow_syn)
    });
    proved.map_err(|error| chain(&error)).flatten()
}

fn agree(maps: &Maps, refused: &Refused, count: impl Fn(&ListenerState) -> u64) -> Result<(), String> {
    // The two are not counted at the same moment, and a client may try again in between.
    let deadline = Instant::now() + provoke::PATIENCE;
    loop {
        let listener = maps.listener(refused.cookie).map_err(|error| chain(&error))?;
        let counted = listener.as_ref().map_or(0, &count);
        let times = refused.times().map_err(|error| chain(&error))?;
        if counted == times && counted > 0 {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let packets = wording::counted(times, "packet", "packets");
            return Err(format!("the self-test had {packets} refused, and counted {counted}"));
        }
        thread::sleep(provoke::PAUSE);
    }
}

/// SYNs are being looked at. Dropping it ends that.
#[derive(Debug)]
pub(crate) struct SynWatch {
    _link: CgroupSkbLink,
    /// `CLOCK_MONOTONIC` nanoseconds from which on no SYN was missed.
    pub(crate) since_ns: u64,
}

/// Begins to look at the SYNs of every socket below `root`, the v2 mount.
pub(crate) fn watch_syns(programs: &mut Programs, root: &Path) -> Result<SynWatch, String> {
    attach_syn(programs.cgroup_skb("syn_ingress").map_err(|error| chain(&error))?, root)
}

/// As [`prove_ack`], with a SYN and the program that [`load_syn`] loaded.
pub(crate) fn prove_syn_watch(object: &mut Ebpf, root: &Path, maps: &Maps) -> Result<(), String> {
    let _watch = attach_syn(syn_program(object)?, root)?;
    prove_syn(maps)
}

fn attach_syn(program: &mut CgroupSkb, root: &Path) -> Result<SynWatch, String> {
    let said = |error: &dyn std::error::Error| format!("{}: {}", root.display(), chain(error));
    let folder = File::open(root).map_err(|error| said(&error))?;
    if folder.metadata().map_err(|error| said(&error))?.ino() != HIERARCHY_ROOT {
        return Err(format!("{} is not the root of the host's v2 hierarchy", root.display()));
    }
    let attached = program
        .attach(&folder, CgroupSkbAttachType::Ingress, CgroupAttachMode::Single)
        .map_err(|error| said(&error))?;
    let link = program.take_link(attached).map_err(|error| said(&error))?;
    Ok(SynWatch { _link: link, since_ns: kernel_monotonic_ns() })
}

fn syn_program(object: &mut Ebpf) -> Result<&mut CgroupSkb, String> {
    let program = object.program_mut("syn_ingress").ok_or(NO_PROGRAM)?;
    program.try_into().map_err(|error: ProgramError| one_line(&error))
}

#[cfg(test)]
mod tests;
