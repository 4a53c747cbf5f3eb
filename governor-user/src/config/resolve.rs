//! From effective settings to the structs the daemon obeys. Checks what no single value can know: combinations that
//! cannot hold together.

mod entitlements;
mod overload;
mod pools;
mod tuner;

use super::Problem;
use super::layers::Settings;
use super::schema::{Daemon, Entry, Kernel, Node, Overload, Pins, Reader, Switch};
use governor_engine::id::{KeyId, OrgId};
use governor_engine::policy::{NodePolicy, Policy};
use governor_kernel::programs::pin::PinOptions;
use governor_observation::Tier;
pub use overload::{CgroupCeiling, OverloadConfig, Ranges};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use tuner::{AtExit, ListenerPattern, ListenerPolicy, TunerConfig, TunerMode};

/// Everything the daemon obeys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Sockets, folders, stop.
    pub daemon: DaemonConfig,
    /// How the kernel is observed.
    pub kernel: KernelConfig,
    /// When the level rises.
    pub overload: OverloadConfig,
    /// Ceilings of cgroups, by path.
    pub cgroups: Vec<CgroupCeiling>,
    /// When backlogs are raised.
    pub tuner: TunerConfig,
    /// What the engine obeys.
    pub policy: Policy,
    /// What the operator calls the orgs and keys that have settings.
    pub names: Names,
}

/// Names of orgs and keys by their keyed hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Of orgs.
    pub orgs: BTreeMap<OrgId, String>,
    /// Of keys.
    pub keys: BTreeMap<KeyId, String>,
}

impl Names {
    /// The key of this name.
    #[must_use]
    pub fn key(&self, name: &str) -> Option<KeyId> {
        self.keys.iter().find(|(_, known)| *known == name).map(|(key, _)| *key)
    }
}

/// Sockets, folders, stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonConfig {
    /// Proxy socket.
    pub socket: PathBuf,
    /// Its file mode.
    pub socket_mode: u32,
    /// Its group, if it is to have another.
    pub socket_group: Option<String>,
    /// Users that may open sessions; empty: all the socket's mode lets in.
    pub allow_users: Vec<String>,
    /// Control socket.
    pub control_socket: PathBuf,
    /// Its file mode.
    pub control_mode: u32,
    /// Its group, if it is to have another.
    pub control_group: Option<String>,
    /// Folder for overrides and the bypass switch.
    pub state_dir: PathBuf,
    /// Recorded demand at most, in bytes; 0 records nothing.
    pub record_bytes: u64,
    /// Metrics address; `None` opens none.
    pub metrics_listen: Option<SocketAddr>,
    /// Unix socket of the metrics; `None` opens none.
    pub metrics_socket: Option<PathBuf>,
    /// Proxy connections at most.
    pub max_sessions: u32,
    /// Proxy connections of one user at most.
    pub max_sessions_per_uid: u32,
    /// How long a stop waits for leases.
    pub drain_timeout: Duration,
}

/// How the kernel is observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelConfig {
    /// The only tier to use; `None`: the best that works.
    pub tier: Option<Tier>,
    /// The least tier to start with.
    pub require: Option<Tier>,
    /// Listener period.
    pub tick: Duration,
    /// Audit period.
    pub audit: Duration,
    /// Listeners that can be tracked, 1 to 16,384.
    pub max_listeners: u32,
    /// Folder for pins, also when nothing is to be pinned.
    pub pin_dir: PathBuf,
    /// Where counting is pinned; nowhere when `None`.
    pub pins: Option<PinOptions>,
}

/// Longest path of a Unix socket in bytes: what the kernel has room for, less the zero at its end.
const MOST_SOCKET_PATH: usize = 107;

/// Resolves effective settings.
///
/// # Errors
/// Every combination that cannot hold, naming both numbers.
pub fn resolve(
    settings: &Settings,
    names: &BTreeSet<Vec<String>>,
    warnings: &mut Vec<String>,
) -> Result<Config, Vec<Problem>> {
    let mut reader = Reader::new(settings);
    let (node, overload) = (Node::read(&reader, &[]), Overload::read(&reader, &[]));
    let policy = Policy {
        node: node_policy(&node, &overload),
        pools: pools::pools(&mut reader, names, warnings),
        classes: entitlements::classes(&mut reader, names),
        orgs: entitlements::orgs(&mut reader, names),
        keys: entitlements::keys(&mut reader, names),
    };
    let named = entitlements::names(&reader, names);
    entitlements::check(&mut reader, names, (&policy, &node), warnings);
    let config = Config {
        daemon: daemon(&mut reader),
        kernel: kernel(&mut reader),
        overload: overload::overload(&mut reader, &overload),
        cgroups: overload::cgroups(&mut reader, names),
        tuner: tuner::tuner(&mut reader, names),
        policy,
        names: named,
    };
    if reader.problems.is_empty() { Ok(config) } else { Err(reader.problems) }
}

fn node_policy(node: &Node<'_>, overload: &Overload<'_>) -> NodePolicy {
    NodePolicy {
        cap: node.cap.value,
        max_parked: node.max_parked.value,
        lease_ttl: node.lease_ttl.value,
        session_grace: node.session_grace.value,
        reclaim_grace: node.reclaim_grace.value,
        caps_mode: node.caps_mode.value,
        shed_mode: overload.mode.value,
        default_class: unless_empty(&node.default_class),
    }
}

fn daemon(reader: &mut Reader<'_>) -> DaemonConfig {
    let section = Daemon::read(reader, &[]);
    let (socket, control_socket) = (socket_path(reader, &section.socket), socket_path(reader, &section.control_socket));
    let metrics_socket =
        (!section.metrics_socket.value.is_empty()).then(|| socket_path(reader, &section.metrics_socket));
    if socket == control_socket {
        reader.problem(&section.control_socket, "proxies and the control API need different sockets");
    }
    if metrics_socket.as_ref().is_some_and(|path| [&socket, &control_socket].contains(&path)) {
        reader.problem(&section.metrics_socket, "metrics need a socket of their own");
    }
    DaemonConfig {
        socket,
        socket_mode: section.socket_mode.value,
        socket_group: unless_empty(&section.socket_group),
        allow_users: section.allow_users.value,
        control_socket,
        control_mode: section.control_mode.value,
        control_group: unless_empty(&section.control_group),
        state_dir: section.state_dir.value.into(),
        record_bytes: match section.record.value {
            Switch::Off => 0,
            Switch::On => u64::from(section.record_mib.value) * 1024 * 1024,
        },
        metrics_listen: section.metrics_listen.value,
        metrics_socket,
        max_sessions: section.max_sessions.value,
        max_sessions_per_uid: section.max_sessions_per_uid.value,
        drain_timeout: section.drain_timeout.value,
    }
}

fn unless_empty(text: &Entry<'_, String>) -> Option<String> {
    (!text.value.is_empty()).then(|| text.value.clone())
}

fn socket_path(reader: &mut Reader<'_>, path: &Entry<'_, String>) -> PathBuf {
    let length = path.value.len();
    if !(1..=MOST_SOCKET_PATH).contains(&length) {
        reader.problem(path, format!("a Unix socket's path has 1 to {MOST_SOCKET_PATH} bytes, this one {length}"));
    }
    path.value.as_str().into()
}

fn kernel(reader: &mut Reader<'_>) -> KernelConfig {
    let section = Kernel::read(reader, &[]);
    let pin_dir = PathBuf::from(&section.pin_dir.value);
    if !pin_dir.is_absolute() {
        reader.problem(&section.pin_dir, "expected an absolute path such as \"/sys/fs/bpf/governor\"");
    }
    KernelConfig {
        tier: section.tier.value.0,
        require: section.require.value.0,
        tick: section.tick.value,
        audit: section.audit.value,
        max_listeners: section.max_listeners.value,
        pins: match section.pins.value {
            Pins::Off => None,
            Pins::Auto => Some(PinOptions { folder: pin_dir.clone(), required: false }),
            Pins::Require => Some(PinOptions { folder: pin_dir.clone(), required: true }),
        },
        pin_dir,
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Base;
    use governor_engine::policy::{FairShare, Headroom};
    use std::io::Write;

    const MEMBER: &str = "[pools.a.members.x]\n";

    pub(super) fn load(text: &str) -> Result<crate::config::Loaded, String> {
        let mut file = tempfile::Builder::new().prefix("governor").suffix(".toml").tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        Base::read(Some(file.path()), std::iter::empty())
            .and_then(|base| base.resolve(&[]))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn fourteen_members_give_ninety_eight_ordinary_slots() {
        let members: String = (1..=14).map(|n| format!("[[pools.chat.members]]\nname = \"acct-{n:02}\"\n")).collect();
        let loaded = load(&format!("[pools.chat]\nfair_share = 80\n{members}")).unwrap();
        let pool = &loaded.config.policy.pools[0];
        let ordinary: u32 = pool.members.iter().map(|member| member.slots - member.reserve).sum();
        assert_eq!((pool.members.len(), ordinary), (14, 98));
    }

    #[test]
    fn combinations_that_cannot_hold_name_both_numbers() {
        let error = load("[pools.a.members.x]\nslots = 2\nreserve = 3\n").unwrap_err();
        assert!(error.contains("a reserve of 3 does not fit into 2 slots"), "{error}");
        let error = load("[overload]\naccept_fill_lo = 900\naccept_fill_hi = 800\n").unwrap_err();
        assert!(error.contains("900") && error.contains("800"), "{error}");
        let error = load(&format!("[pools.a]\nexhausted_status = 500\n{MEMBER}")).unwrap_err();
        assert!(error.contains(":2: ") && error.contains("429 or 529"), "{error}");
    }

    #[test]
    fn a_pool_has_members_or_is_unlimited() {
        assert!(load("[pools.a]\nunlimited = true\n").unwrap().config.policy.pools[0].unlimited);
        let error = load(&format!("[pools.a]\nunlimited = true\n{MEMBER}")).unwrap_err();
        assert!(error.contains(":2: ") && error.contains("is unlimited and has member \"x\""), "{error}");
        let error = load("[pools.a]\nfair_share = 80\n").unwrap_err();
        assert!(error.contains("has no members") && error.contains("unlimited = true"), "{error}");
        let off = load("[pools.a]\n[pools.a.members.x]\nslots = 0\n").unwrap();
        assert!(!off.config.policy.pools[0].unlimited && off.warnings[0].contains("nothing is granted"));
    }

    #[test]
    fn headroom_belongs_to_max_min_and_four_percent_is_the_default() {
        let rule = |text: &str| load(&format!("{text}{MEMBER}")).unwrap().config.policy.pools[0].fair_share;
        let max_min = |headroom| FairShare::MaxMin { headroom };
        assert_eq!(rule("[pools.a]\nfair_share = \"max-min\"\n"), max_min(Headroom::PerMille(40)));
        assert_eq!(rule("[pools.a]\nfair_share = \"max-min\"\nheadroom = 0\n"), max_min(Headroom::Slots(0)));
        assert_eq!(rule("[pools.a]\nheadroom = 8\n"), FairShare::Off);
    }

    #[test]
    fn a_socket_has_a_path_that_the_kernel_takes() {
        let path = |length: usize| "/".repeat(length);
        for key in ["socket", "control_socket"] {
            load(&format!("[daemon]\n{key} = \"{}\"\n", path(107))).unwrap();
            for length in [0, 108, 124] {
                let error = load(&format!("[daemon]\n{key} = \"{}\"\n", path(length))).unwrap_err();
                assert!(error.contains(":2: ") && error.contains(&format!("this one {length}")), "{error}");
            }
        }
        assert!(load("[daemon]\nsocket = \"/a\"\ncontrol_socket = \"/a\"\n").unwrap_err().contains("different"));
    }

    fn members(count: usize, length: usize) -> String {
        let member = |number| format!("[[pools.large.members]]\nname = \"{number:0length$}\"\n");
        (0..count).map(member).collect::<String>() + "[pools.small.members.a]\n"
    }

    #[test]
    fn more_members_than_proxies_can_be_sent_are_refused_with_the_numbers() {
        let error = load(&members(4000, 128)).unwrap_err();
        assert!(error.contains("2 pools with 4001 members take 560047 bytes"), "{error}");
        assert!(error.contains("at most 524288") && error.contains("\"large\" is the largest with 4000"), "{error}");
        load(&members(4000, 100)).unwrap();
    }

    /// CPU time of this thread in nanoseconds; the least of three attempts.
    fn cost(text: &str) -> i64 {
        let now = || {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            now.tv_sec * 1_000_000_000 + now.tv_nsec
        };
        let attempt = |_| {
            let start = now();
            load(text).unwrap();
            now() - start
        };
        (0..3).map(attempt).min().unwrap()
    }

    #[test]
    fn the_cost_of_a_configuration_grows_with_its_length() {
        let pools = |count: usize| -> String { (0..count).map(|n| format!("[pools.p{n}.members.a]\n")).collect() };
        let keys =
            |count: usize| -> String { (0..count).map(|n| format!("[keys.k{n}]\nid = \"{n:032x}\"\n")).collect() };
        let members = |count: usize| members(count, 5);
        let texts: [&dyn Fn(usize) -> String; 3] = [&members, &pools, &keys];
        for (what, text) in ["members", "pools", "keys"].into_iter().zip(texts) {
            // Four times as much of a cost that grows with the square is sixteen times as dear.
            let (small, large) = (cost(&text(500)), cost(&text(2000)));
            assert!(large < 8 * small, "{what}: 2000 cost {large} ns, 500 cost {small} ns");
        }
    }

    #[test]
    fn an_empty_file_is_a_working_configuration() {
        let loaded = load("").unwrap();
        assert_eq!(loaded.config.policy.node.cap, 1000);
        assert!(loaded.config.policy.pools.is_empty());
    }
}
