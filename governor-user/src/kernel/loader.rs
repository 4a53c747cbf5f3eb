//! Puts the programs into the kernel: resolves the field offsets, loads the embedded object, attaches what this kernel
//! takes, and keeps for every hook whether it is active and why not. Knows nothing of what the programs report.

use super::btf::{BtfError, Layouts};
use super::maps::{self, Maps, Source};
use super::overflow_hooks::{self, now_ns};
use super::pin::{Links, Programs};
use super::selftest::{self, SelfTestError};
use super::tracepoint::Options;
use super::view::{HookCandidate, HookEvent, HookView, Tier};
use aya::programs::{BtfTracePoint, Iter, ProgramError};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader};
use aya_log::EbpfLogger;
use governor_common::abi::Offsets;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::{fmt, io};
use thiserror::Error;

/// Built by this package's build script.
pub(super) static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/governor-ebpf"));

const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";
/// Levels of the programs' log: nothing, or up to debug.
const LOG_OFF: u8 = 0;
const LOG_DEBUG: u8 = 4;

/// Why the tier cannot be used. `Display` is one line without its sources; [`super::tracepoint::AttachError`] joins
/// them.
#[derive(Debug, Error)]
pub(super) enum LoadError {
    /// The kernel tells no field offsets.
    #[error("no kernel BTF at {KERNEL_BTF}")]
    NoBtf(#[source] io::Error),
    /// A field that everything needs is missing, or the file is damaged.
    #[error(transparent)]
    Layout(#[from] BtfError),
    /// The object cannot be loaded: usually a missing right.
    #[error("the kernel refuses the eBPF maps")]
    Object(#[source] Box<EbpfError>),
    /// A map is not what this program expects.
    #[error(transparent)]
    Map(#[from] maps::Error),
    /// The one program without which there is nothing to see.
    #[error("{hook} cannot be attached: {reason}")]
    Program {
        /// The hook.
        hook: &'static str,
        /// What the kernel said, on one line.
        reason: String,
    },
}

/// Programs that are run by their name after all is attached.
pub(super) const ON_DEMAND: [&str; 3] = ["scan_tcp", "scan_queues", "syn_ingress"];

/// Programs in the kernel; they detach when this is dropped, unless they are pinned.
pub(super) struct Loaded {
    pub(super) programs: Programs,
    /// What keeps the programs attached.
    pub(super) links: Links,
    pub(super) maps: Maps,
    pub(super) facts: Facts,
    pub(super) log: Option<EbpfLogger<ToTracing>>,
}

/// What was found out while attaching. A later life of the daemon that takes the programs over gets it as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Facts {
    pub(super) hooks: Vec<HookView>,
    /// Connections are counted per cgroup.
    pub(super) counts_cgroups: bool,
    /// Enqueues are seen as they happen.
    pub(super) sees_enqueues: bool,
    /// The socket iterator works.
    pub(super) scans: bool,
    /// The scan of the accept queues works.
    pub(super) scans_queues: bool,
    /// `CLOCK_MONOTONIC` nanoseconds from which on every last packet of a handshake that is refused is counted; `None`
    /// where they are not.
    pub(super) acks_since_ns: Option<u64>,
    /// Where the program that looks at SYNs is attached when there is reason to; `None` where it cannot be.
    pub(super) syn_root: Option<PathBuf>,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded").field("maps", &self.maps).field("facts", &self.facts).finish_non_exhaustive()
    }
}

impl Loaded {
    /// Proves with one connection that what is attached counts.
    ///
    /// # Errors
    /// What was counted wrong.
    pub(super) fn prove(&self) -> Result<(), SelfTestError> {
        let Facts { counts_cgroups, sees_enqueues, .. } = self.facts;
        selftest::run(&self.maps, selftest::Expected { enqueue: sees_enqueues, marks: counts_cgroups })
    }
}

/// Under what the programs' messages are logged.
pub const LOG_TARGET: &str = "governor::ebpf";

/// Loads and attaches. `made` sees the object while it still has its maps and nothing is attached.
pub(super) fn load(options: &Options, made: impl FnOnce(&Ebpf)) -> Result<Loaded, LoadError> {
    let Options { log, ref cgroup_root, .. } = *options;
    let file = std::fs::read(KERNEL_BTF).map_err(LoadError::NoBtf)?;
    let layouts = Layouts::parse(&file)?;
    let (mut offsets, no_cgroups) = resolve(&layouts)?;
    let obstacles = overflow_hooks::resolve(&layouts, &mut offsets);
    drop(layouts);
    drop(file);
    let btf = Btf::from_sys_fs().map_err(|error| LoadError::Object(Box::new(error.into())))?;
    let mut object = EbpfLoader::new()
        .btf(Some(&btf))
        .override_global("OFFSETS", &offsets, true)
        .override_global("AYA_LOG_LEVEL", if log { &LOG_DEBUG } else { &LOG_OFF }, true)
        .map_max_entries("LISTENERS", options.max_listeners())
        .load(OBJECT)
        .map_err(|error| LoadError::Object(Box::new(error)))?;
    made(&object);
    let maps = Maps::take(Source::Object(&mut object))?;

    let mut links = Links::default();
    let states = attach_twins(&mut object, &mut links, ["inet_sock_set_state", "inet_sock_set_state_twin"], &btf);
    let enqueues = attach_twins(&mut object, &mut links, ["sk_data_ready", "sk_data_ready_twin"], &btf);
    let scans = load_iterator(&mut object, &btf);
    let unless = |obstacle: &Option<String>| obstacle.clone().map_or(Ok(()), Err);
    let refused_acks = unless(&obstacles.ack)
        .and_then(|()| attach_twins(&mut object, &mut links, ["kfree_skb", "kfree_skb_twin"], &btf));
    let no_root = if cgroup_root.is_none() { Some("no cgroup2 is mounted".to_owned()) } else { None };
    let refused_syns =
        unless(&obstacles.syn).and_then(|()| unless(&no_root)).and_then(|()| overflow_hooks::load_syn(&mut object));
    let queues = unless(&obstacles.queues).and_then(|()| overflow_hooks::load_queue_scan(&mut object, &btf));
    let hooks = vec![
        hook(
            (HookEvent::Connections, "listeners, connections"),
            "tp_btf/inet_sock_set_state",
            &states,
            no_cgroups.as_deref().unwrap_or(""),
            "listeners that opened and closed between ticks, connections per cgroup",
        ),
        hook(
            (HookEvent::Enqueue, "enqueue, depth peak"),
            "tp_btf/sk_data_ready",
            &enqueues,
            "",
            "depth peak, connections that entered and left the queue",
        ),
        hook((HookEvent::Scan, "seeding, audit"), "iter/tcp", &scans, "", "connections that were open before, drift"),
        hook(
            (HookEvent::QueueAge, "queue age, abandoned"),
            "iter/tcp scan_queues",
            &queues,
            "",
            "age of the oldest queued connection",
        ),
        hook(
            (HookEvent::OverflowAck, "overflow at ACK"),
            "tp_btf/kfree_skb",
            &refused_acks,
            "",
            "overflows per listener once it dropped anything",
        ),
        hook(
            (HookEvent::OverflowSyn, "overflow at SYN"),
            "cgroup_skb/ingress",
            &refused_syns,
            "attached only while a queue is nearly full or a namespace refuses handshakes",
            "overflows per listener once it dropped anything",
        ),
    ];
    states.map_err(|reason| LoadError::Program { hook: "tp_btf/inet_sock_set_state", reason })?;
    let log = if log { EbpfLogger::init_with_logger(&mut object, ToTracing).ok() } else { None };
    let facts = Facts {
        hooks,
        counts_cgroups: no_cgroups.is_none(),
        sees_enqueues: enqueues.is_ok(),
        scans: scans.is_ok(),
        scans_queues: queues.is_ok(),
        acks_since_ns: refused_acks.is_ok().then(now_ns),
        syn_root: cgroup_root.clone().filter(|_| refused_syns.is_ok()),
    };
    Ok(Loaded { programs: Programs::Loaded(Box::new(object)), links, maps, facts, log })
}

/// The offsets, and why connections cannot be counted per cgroup if so.
fn resolve(kernel: &Layouts<'_>) -> Result<(Offsets, Option<String>), BtfError> {
    let mut offsets = Offsets {
        sock_family: kernel.offset("sock.__sk_common.skc_family", 2)?,
        sock_state: kernel.offset("sock.__sk_common.skc_state", 1)?,
        sock_port: kernel.offset("sock.__sk_common.skc_num", 2)?,
        sock_address4: kernel.offset("sock.__sk_common.skc_rcv_saddr", 4)?,
        sock_net: kernel.offset("sock.__sk_common.skc_net.net", 8)?,
        sock_protocol: kernel.offset("sock.sk_protocol", 2)?,
        sock_depth: kernel.offset("sock.sk_ack_backlog", 4)?,
        sock_backlog: kernel.offset("sock.sk_max_ack_backlog", 4)?,
        net_inode: kernel.offset("net.ns.inum", 4)?,
        ..Offsets::default()
    };
    if let Ok(offset) = kernel.offset("sock.__sk_common.skc_v6_rcv_saddr", 16) {
        offsets.sock_address6 = offset;
        offsets.has_ipv6 = 1;
    }
    let cgroup = || -> Result<[u32; 3], BtfError> {
        Ok([
            kernel.offset("sock.sk_cgrp_data.cgroup", 8)?,
            kernel.offset("cgroup.kn", 8)?,
            kernel.offset("kernfs_node.id", 8)?,
        ])
    };
    match cgroup() {
        Ok([in_sock, in_cgroup, in_node]) => {
            offsets.sock_cgroup = in_sock;
            offsets.cgroup_node = in_cgroup;
            offsets.node_id = in_node;
            offsets.has_cgroups = 1;
            Ok((offsets, None))
        }
        Err(error) => Ok((offsets, Some(format!("connections per cgroup are unknown: {error}")))),
    }
}

/// Loads and attaches two programs to the BTF tracepoint that the first is named after, in this order: the kernel calls
/// them so, and the second does what the first could not. An error is one line.
fn attach_twins(object: &mut Ebpf, links: &mut Links, names: [&str; 2], btf: &Btf) -> Result<(), String> {
    for name in names {
        let program = object.program_mut(name).ok_or_else(|| "the object has no such program".to_owned())?;
        let program: &mut BtfTracePoint = program.try_into().map_err(|error| one_line(&error))?;
        program.load(names[0], btf).map_err(|error| one_line(&error))?;
        let link = program.attach().and_then(|link| program.take_link(link)).map_err(|error| one_line(&error))?;
        links.keep(name, link.into());
    }
    Ok(())
}

fn load_iterator(object: &mut Ebpf, btf: &Btf) -> Result<(), String> {
    let program = object.program_mut("scan_tcp").ok_or_else(|| "the object has no such program".to_owned())?;
    let program: &mut Iter = program.try_into().map_err(|error| one_line(&error))?;
    program.load("tcp", btf).map_err(|error| one_line(&error))
}

fn hook(
    (event, purpose): (HookEvent, &str),
    hook: &str,
    result: &Result<(), String>,
    note: &str,
    lost_without: &str,
) -> HookView {
    let candidate = HookCandidate {
        hook: hook.to_owned(),
        tier: Tier::Tracepoint,
        fires: result.is_ok(),
        reason: result.as_ref().err().cloned().unwrap_or_default(),
    };
    HookView {
        event: Some(event),
        purpose: purpose.to_owned(),
        hook: hook.to_owned(),
        active: result.is_ok(),
        note: result.as_ref().err().map_or(note, String::as_str).to_owned(),
        candidates: vec![candidate],
        lost_without: lost_without.to_owned(),
    }
}

/// What the kernel said, without the verifier's pages: their last line is the objection.
pub(super) fn one_line(error: &ProgramError) -> String {
    let ProgramError::LoadError { io_error, verifier_log } = error else {
        return chain(error);
    };
    let log = verifier_log.to_string();
    let statistics = |line: &str| line.starts_with("processed ") || line.starts_with("verification time");
    let objection = log.lines().rev().map(str::trim).find(|line| !line.is_empty() && !statistics(line));
    objection.map_or_else(|| io_error.to_string(), |objection| format!("{io_error}: {objection}"))
}

/// An error and its sources on one line. An error that already prints its source says it once.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !line.ends_with(&said) {
            line.push_str(": ");
            line.push_str(&said);
        }
        source = cause.source();
    }
    line.lines().next().unwrap_or_default().to_owned()
}

/// Passes the programs' messages on to `tracing`.
#[derive(Clone, Copy, Debug)]
pub(super) struct ToTracing;

impl log::Log for ToTracing {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        tracing::debug!(target: LOG_TARGET, "{}", record.args());
    }

    fn flush(&self) {}
}
