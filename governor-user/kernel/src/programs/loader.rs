//! Puts the programs into the kernel: resolves the field offsets, loads the embedded object, attaches what this kernel
//! takes, and keeps for every hook whether it is active and why not. Knows nothing of what the programs report.

use crate::btf::{BtfError, Layouts};
use crate::proc::own_namespaces::kernel_monotonic_ns;
use crate::programs::ladder::{self, Climbed, Ground, Way};
use crate::programs::maps::{self, Maps, Source};
use crate::programs::overflow_hooks;
use crate::programs::pin::{Links, Programs};
use crate::programs::selftest::{self, Expected, SelfTestError};
use crate::programs::tracepoint::Options;
use aya::programs::{BtfTracePoint, Iter, ProgramError};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader};
use aya_log::EbpfLogger;
use governor_common::abi::{Control, Offsets};
use governor_observation::{HookView, Tier};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::{fmt, io};
use thiserror::Error;

/// Built by this package's build script.
pub(crate) static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/governor-ebpf"));

const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";
/// Levels of the programs' log: nothing, or up to debug.
const LOG_OFF: u8 = 0;
const LOG_DEBUG: u8 = 4;

/// Why the tier cannot be used. `Display` is one line without its sources; [`crate::programs::tracepoint::AttachError`]
/// joins them.
#[derive(Debug, Error)]
pub(crate) enum LoadError {
    /// The kernel has no BTF with field offsets.
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
pub(crate) const ON_DEMAND: [&str; 3] = ["scan_tcp", "scan_queues", "syn_ingress"];

/// Programs in the kernel; they detach when this is dropped, unless they are pinned.
pub(crate) struct Loaded {
    pub(crate) programs: Programs,
    /// What keeps the programs attached.
    pub(crate) links: Links,
    pub(crate) maps: Maps,
    pub(crate) facts: Facts,
    pub(crate) log: Option<EbpfLogger<ToTracing>>,
}

/// What was found out while attaching. A later run of the daemon that takes the programs over gets it as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) hooks: Vec<HookView>,
    /// The lowest tier of what observes the events.
    pub(crate) tier: Tier,
    /// Connections are counted per cgroup.
    pub(crate) counts_cgroups: bool,
    /// Enqueues are seen as they happen.
    pub(crate) sees_enqueues: bool,
    /// So are accepts, and inbound connections count from them.
    pub(crate) sees_accepts: bool,
    /// The socket iterator works.
    pub(crate) scans: bool,
    /// The scan of the accept queues works.
    pub(crate) scans_queues: bool,
    /// `CLOCK_MONOTONIC` nanoseconds from which on every last packet of a handshake that is refused is counted; `None`
    /// where they are not.
    pub(crate) acks_since_ns: Option<u64>,
    /// The same for SYNs, where all of them are seen all the time.
    pub(crate) syns_since_ns: Option<u64>,
    /// Where the program that looks at SYNs is attached when there is reason to; `None` where it cannot be, or all are
    /// seen.
    pub(crate) syn_root: Option<PathBuf>,
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
    pub(crate) fn prove(&self) -> Result<(), SelfTestError> {
        let Facts { counts_cgroups: marks, sees_enqueues: enqueue, sees_accepts: accept, .. } = self.facts;
        selftest::run(&self.maps, Expected { enqueue, accept, marks })
    }
}

/// Under what the programs' messages are logged.
pub const LOG_TARGET: &str = "governor::ebpf";

/// Loads and attaches. `made` sees the object while it still has its maps and nothing is attached.
pub(crate) fn load(options: &Options, made: impl FnOnce(&Ebpf)) -> Result<Loaded, LoadError> {
    let Options { log, best, ref cgroup_root, .. } = *options;
    let file = std::fs::read(KERNEL_BTF).map_err(LoadError::NoBtf)?;
    let kernel = Layouts::parse(&file)?;
    let (mut offsets, no_cgroups) = resolve(&kernel)?;
    let obstacles = overflow_hooks::resolve(&kernel, &mut offsets);
    let btf = Btf::from_sys_fs().map_err(|error| LoadError::Object(Box::new(error.into())))?;
    let mut object = EbpfLoader::new()
        .btf(Some(&btf))
        .override_global("OFFSETS", &offsets, true)
        .override_global("AYA_LOG_LEVEL", if log { &LOG_DEBUG } else { &LOG_OFF }, true)
        .override_global("LAST_PLACE", &(options.quick_marks() - 1), true)
        .map_max_entries("QUICK_MARKS", options.quick_marks())
        .map_max_entries("LISTENERS", options.max_listeners())
        .map_max_entries("SOJOURN", options.max_listeners())
        .load(OBJECT)
        .map_err(|error| LoadError::Object(Box::new(error)))?;
    made(&object);
    let mut maps = Maps::take(Source::Object(&mut object))?;

    let mut links = Links::default();
    let states = attach_twins(&mut object, &mut links, ["inet_sock_set_state", "inet_sock_set_state_twin"], &btf);
    let scans = load_iterator(&mut object, &btf);
    let queues = obstacles.queues.map_or(Ok(()), Err);
    let queues = queues.and_then(|()| overflow_hooks::load_queue_scan(&mut object, &btf));
    let mut hooks = vec![
        ladder::CONNECTIONS.only(&states, no_cgroups.as_deref().unwrap_or("")),
        ladder::SCAN.only(&scans, ""),
        ladder::QUEUE_AGE.only(&queues, ""),
    ];
    states.map_err(|reason| LoadError::Program { hook: "tp_btf/inet_sock_set_state", reason })?;

    let barred = [
        ("tp_btf/kfree_skb", obstacles.ack),
        ("fentry/tcp_conn_request", obstacles.syn.clone()),
        ("cgroup_skb/ingress", obstacles.syn),
    ];
    let barred = barred.into_iter().filter_map(|(hook, reason)| Some((hook, reason?))).collect();
    let mut ground = Ground { object: &mut object, btf: &btf, kernel: &kernel, best, barred };
    let marks = no_cgroups.is_none();
    let enqueues =
        ground.climb(&ladder::ENQUEUE, |_, _| prove(&maps, Expected { enqueue: true, accept: false, marks }));
    let enqueue = enqueues.fires.is_some();
    let accepts = ground.climb(&ladder::ACCEPT, |_, _| {
        count_at_accept(&mut maps, true)?;
        let proved = prove(&maps, Expected { enqueue, accept: true, marks });
        proved.or_else(|reason| count_at_accept(&mut maps, false).and(Err(reason)))
    });
    let refused_acks = ground.climb(&ladder::OVERFLOW_ACK, |_, _| overflow_hooks::prove_ack(&maps));
    let refused_syns = ground.climb(&ladder::OVERFLOW_SYN, |object, way| {
        if !way.is_on_demand() {
            return overflow_hooks::prove_syn(&maps);
        }
        let root = cgroup_root.as_deref().ok_or("no cgroup2 is mounted")?;
        overflow_hooks::load_syn(object)?;
        overflow_hooks::prove_syn_watch(object, root, &maps)
    });
    let sees_accepts = accepts.fires.is_some();
    let counts_acks = refused_acks.fires.is_some();
    let syns_on_demand = refused_syns.fires.is_some_and(Way::is_on_demand);
    let counts_syns = refused_syns.fires.is_some() && !syns_on_demand;
    let climbed = [enqueues, accepts, refused_syns, refused_acks];
    let tiers = climbed.iter().map(|climbed| climbed.fires.map_or(Tier::Tracepoint, |way| way.tier));
    let tier = tiers.min().unwrap_or(Tier::Tracepoint);
    for Climbed { view, links: more, .. } in climbed {
        hooks.push(view);
        more.into_iter().for_each(|(program, link)| links.keep(program, link));
    }

    let log = if log { EbpfLogger::init_with_logger(&mut object, ToTracing).ok() } else { None };
    let facts = Facts {
        hooks,
        tier,
        counts_cgroups: no_cgroups.is_none(),
        sees_enqueues: enqueue,
        sees_accepts,
        scans: scans.is_ok(),
        scans_queues: queues.is_ok(),
        acks_since_ns: counts_acks.then(kernel_monotonic_ns),
        syns_since_ns: counts_syns.then(kernel_monotonic_ns),
        syn_root: cgroup_root.clone().filter(|_| syns_on_demand),
    };
    Ok(Loaded { programs: Programs::Loaded(Box::new(object)), links, maps, facts, log })
}

/// One connection, counted by what is attached so far.
fn prove(maps: &Maps, expected: Expected) -> Result<(), String> {
    selftest::run(maps, expected).map_err(|error| chain(&error))
}

/// Has inbound connections count from their accept on, or from their establishment.
fn count_at_accept(maps: &mut Maps, yes: bool) -> Result<(), String> {
    let tell = |maps: &mut Maps| maps.set_control(Control { counts_at_accept: yes.into(), ..maps.control()? });
    tell(maps).map_err(|error: maps::Error| chain(&error))
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
        sock_socket: kernel.offset("sock.sk_socket", 8)?,
        sock_cookie: kernel.offset("sock.__sk_common.skc_cookie", 8)?,
        socket_sock: kernel.offset("socket.sk", 8)?,
        packet_protocol: kernel.offset("sk_buff.protocol", 2)?,
        ..Offsets::default()
    };
    if let Ok(offset) = kernel.offset("sock.__sk_common.skc_v6_rcv_saddr", 16) {
        offsets.sock_address6 = offset;
        offsets.has_ipv6 = 1;
    }
    if let Ok(offset) = kernel.offset("sock.sk_bpf_storage", 8) {
        offsets.sock_storage = offset;
        offsets.has_storage = 1;
    }
    let subflow = kernel.offset("tcp_sock.is_mptcp", 1);
    if let (Ok(is_subflow), Ok(first)) = (subflow, kernel.offset("mptcp_sock.first", 8)) {
        offsets.tcp_is_subflow = is_subflow;
        offsets.mptcp_first = first;
        offsets.has_mptcp = 1;
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

/// What the kernel said, without the verifier's pages: their last line is the objection.
pub(crate) fn one_line(error: &ProgramError) -> String {
    let ProgramError::LoadError { io_error, verifier_log } = error else {
        return chain(error);
    };
    let log = verifier_log.to_string();
    /// What kernels before 5.12 say.
    const NO_ATOMICS: &str = "BPF_STX uses reserved fields";
    const STATISTICS: [&str; 3] = ["processed ", "verification time", "stack depth"];
    let statistics = |line: &str| STATISTICS.iter().any(|word| line.starts_with(word));
    let objection = log.lines().rev().map(str::trim).find(|line| !line.is_empty() && !statistics(line));
    match objection {
        Some(NO_ATOMICS) => format!("{io_error}: this kernel's BPF has no atomic exchange"),
        Some(objection) => format!("{io_error}: {objection}"),
        None => io_error.to_string(),
    }
}

/// An error and its sources on one line. An error that already prints its source says it once.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
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
pub(crate) struct ToTracing;

impl log::Log for ToTracing {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        tracing::debug!(target: LOG_TARGET, "{}", record.args());
    }

    fn flush(&self) {}
}
