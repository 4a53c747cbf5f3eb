//! One tick of the kernel plane: whose turn it is, what the sources say, what is shown. Owns every source; knows no
//! daemon and no cadence but its own audits.

use super::{
    assemble::{Counted, Id, Ledger, Row},
    cgroup::{Cgroups, Group},
    connections::{Connections, Open},
    netns::{MOST_PER_TICK, Namespaces},
    pids::Holders,
    plane::{Options, PlaneError},
    preflight,
    privileged::{EnterError, Home},
    procfs,
    sockdiag::{Diag, DiagError, Select, SocketRow},
    tier::{self, Ladder},
    view::{Basis, CgroupView, Health, HookView, Observation, Tier},
    walk::{Walk, Walker},
};
use rustix::time::{ClockId, clock_gettime};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    time::{Duration, Instant},
};

/// Connection tables are read for at most one part in this many of the time.
const CONNECTIONS_SHARE: u32 = 20;

/// Why the plane cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fatal {
    /// The thread is stuck in a foreign network namespace.
    #[error("the kernel plane could not return to its network namespace")]
    Stranded(#[source] io::Error),
    /// A bug.
    #[error("the kernel plane met an internal error")]
    Panicked,
}

impl Fatal {
    /// The last observation: nothing is known any more, and why.
    pub(crate) fn last_words(self) -> Observation {
        Observation { taken_ns: monotonic_ns(), degraded: vec![self.to_string()], ..Observation::default() }
    }
}

/// All state of the plane.
#[derive(Debug)]
pub(crate) struct Sampler {
    tier: Tier,
    /// Why it is not a better tier.
    reasons: Vec<String>,
    hooks: Vec<HookView>,
    audit_every: Duration,
    next_audit: Instant,
    namespaces: Namespaces,
    walker: Walker,
    holders: Holders,
    cgroups: Cgroups,
    ledger: Ledger,
    connections: BTreeMap<u64, Polled>,
    health: Health,
    /// What went wrong in a namespace when it was last looked at.
    trouble: BTreeMap<u64, String>,
    /// What the last walk could not see.
    blind: Vec<String>,
    scratch: Vec<SocketRow>,
}

/// Connections of one namespace and when to count them again.
#[derive(Debug, Default)]
struct Polled {
    connections: Connections,
    due: Option<Instant>,
}

impl Sampler {
    /// Chooses the tier and looks around once.
    ///
    /// # Errors
    /// When `/proc` is unreadable, no thread can be had, or the tier is less than required.
    pub(crate) fn start(options: &Options) -> Result<Self, PlaneError> {
        let home = Home::of_this_thread().map_err(PlaneError::Proc)?;
        let Ladder { tier, reasons, hooks } = tier::choose(options)?;
        let namespaces = Namespaces::new(home);
        let mut sampler = Self {
            tier,
            reasons,
            hooks,
            audit_every: options.audit_every,
            next_audit: Instant::now() + options.audit_every,
            namespaces,
            walker: Walker::start().map_err(PlaneError::Thread)?,
            holders: Holders::new(),
            cgroups: Cgroups::detect(options.cgroup_root.as_deref()),
            ledger: Ledger::default(),
            connections: BTreeMap::new(),
            health: Health::default(),
            trouble: BTreeMap::new(),
            blind: Vec::new(),
            scratch: Vec::new(),
        };
        sampler.ask_for_walk(Instant::now());
        Ok(sampler)
    }

    /// Looks at the namespaces whose turn it is and says what is known now.
    ///
    /// # Errors
    /// Only when the thread cannot go on; everything else shows in the observation.
    pub(crate) fn tick(&mut self, now: Instant) -> Result<Observation, Fatal> {
        if let Some(walk) = self.walker.take() {
            self.take_walk(walk, now);
        }
        let counted = BTreeMap::new();
        for netns in self.namespaces.turn(MOST_PER_TICK) {
            self.look_at(netns, now, &counted)?;
        }
        if now >= self.next_audit {
            self.audit(now);
        } else if self.holders.wants_walk(self.ledger.inodes(), now) {
            self.ask_for_walk(now);
        }
        let open = self.open_connections();
        let ids = self.ledger.owners().chain(open.iter().flat_map(|open| open.keys().copied())).collect();
        self.cgroups.learn(&ids, now);
        Ok(self.observation(open.as_ref()))
    }

    /// Reads one namespace's tables. What cannot be read stays as it was and is reported; it is never taken as empty.
    fn look_at(&mut self, netns: u64, now: Instant, counted: &BTreeMap<u64, Counted>) -> Result<(), Fatal> {
        let looked = match self.tier {
            Tier::Procfs => self.look_by_procfs(netns),
            Tier::Netlink | Tier::Tracepoint | Tier::Trampoline => self.look_by_diag(netns, now, counted),
        };
        match looked {
            Ok(()) => drop(self.trouble.remove(&netns)),
            Err(Trouble::Enter(EnterError::Stranded(error))) => return Err(Fatal::Stranded(error)),
            Err(Trouble::Enter(EnterError::Gone)) => {
                self.ledger.hide(netns);
                self.connections.remove(&netns);
                self.trouble.remove(&netns);
            }
            // Counted and reported as one line for all of them.
            Err(Trouble::Enter(EnterError::Denied)) => {}
            Err(trouble) => drop(self.trouble.insert(netns, trouble.to_string())),
        }
        Ok(())
    }

    fn look_by_procfs(&mut self, netns: u64) -> Result<(), Trouble> {
        let task = self.namespaces.task_in(netns);
        let rows = match task {
            Some(task) => procfs::listeners(&task)?,
            None => self.namespaces.visit(netns, || procfs::listeners("/proc/thread-self".as_ref()))??,
        };
        self.ledger.absorb(netns, rows, |_| None);
        Ok(())
    }

    fn look_by_diag(&mut self, netns: u64, now: Instant, counted: &BTreeMap<u64, Counted>) -> Result<(), Trouble> {
        // The socket belongs to the namespace it is opened in, so the thread need not stay there while it reads.
        let mut diag = self.namespaces.visit(netns, Diag::open)??;
        diag.dump(Select::Listeners, &mut self.scratch)?;
        let ports: Vec<u16> = self.scratch.iter().map(|row| row.port).collect();
        let rows = self.scratch.drain(..).map(listener_row).collect();
        self.ledger.absorb(netns, rows, |cookie| counted.get(&cookie).copied());
        if self.tier == Tier::Netlink {
            self.count_connections(netns, &mut diag, ports, now)?;
        }
        Ok(())
    }

    fn count_connections(
        &mut self,
        netns: u64,
        diag: &mut Diag,
        listening: Vec<u16>,
        now: Instant,
    ) -> Result<(), DiagError> {
        let namespaces = u32::try_from(self.namespaces.count()).unwrap_or(u32::MAX);
        let polled = self.connections.entry(netns).or_default();
        if polled.due.is_some_and(|due| now < due) {
            return Ok(());
        }
        let begun = Instant::now();
        diag.dump(Select::Connections, &mut self.scratch)?;
        polled.connections.count(listening, &self.scratch);
        polled.due = Some(now + begun.elapsed().saturating_mul(CONNECTIONS_SHARE).saturating_mul(namespaces));
        Ok(())
    }

    fn take_walk(&mut self, walk: Walk, now: Instant) {
        self.namespaces.update(walk.namespaces);
        self.ledger.retain(|netns| self.namespaces.knows(netns));
        self.connections.retain(|netns, _| self.namespaces.knows(*netns));
        self.trouble.retain(|netns, _| self.namespaces.knows(*netns));
        self.holders.update(walk.holders, now);
        self.blind.clear();
        if walk.unreadable > 0 {
            self.blind.push(format!(
                "{} processes cannot be read: their listeners show no pids and their namespaces may be missing",
                walk.unreadable
            ));
        }
        if walk.truncated {
            self.blind.push("the walk over /proc ended at its bound: pids and namespaces are incomplete".to_owned());
        }
    }

    fn ask_for_walk(&mut self, now: Instant) {
        let inodes: BTreeSet<u64> = self.ledger.inodes().collect();
        if self.walker.ask(inodes.clone()) {
            self.holders.asked(inodes, now);
        }
    }

    /// Looks up anew what ticks only remember.
    fn audit(&mut self, now: Instant) {
        self.next_audit = now + self.audit_every;
        self.cgroups.refresh();
        self.ask_for_walk(now);
        if self.trouble.is_empty() {
            self.health.audits += 1;
        } else {
            self.health.audits_failed += 1;
        }
    }

    /// Open connections by cgroup id; `None` where this tier or this host cannot tell.
    fn open_connections(&self) -> Option<BTreeMap<u64, Open>> {
        if self.tier == Tier::Procfs || self.cgroups.unavailable().is_some() {
            return None;
        }
        let mut sum: BTreeMap<u64, Open> = BTreeMap::new();
        for (id, open) in self.connections.values().flat_map(|polled| &polled.connections.by_cgroup) {
            let entry = sum.entry(*id).or_default();
            entry.inbound += open.inbound;
            entry.outbound += open.outbound;
        }
        Some(sum)
    }

    fn observation(&self, open: Option<&BTreeMap<u64, Open>>) -> Observation {
        let owner = |id| match self.cgroups.group(id) {
            Group::At(path) => Some(path),
            Group::Gone | Group::Unattributed => None,
        };
        let listeners = self.ledger.views(self.tier, owner, |inode| self.holders.of(inode));
        let mut unattributed = 0;
        let cgroups = open.map(|open| {
            let mut views = Vec::with_capacity(open.len());
            for (id, open) in open {
                let path = match self.cgroups.group(*id) {
                    Group::At(path) => Some(path),
                    Group::Gone => None,
                    Group::Unattributed => {
                        unattributed += open.inbound + open.outbound;
                        continue;
                    }
                };
                let (id, Open { inbound, outbound }) = (*id, *open);
                views.push(CgroupView { id, path, inbound, outbound, inbound_basis: Basis::Owner });
            }
            views.sort_by(|a, b| (a.path.is_none(), &a.path, a.id).cmp(&(b.path.is_none(), &b.path, b.id)));
            views
        });
        Observation {
            taken_ns: monotonic_ns(),
            tier: self.tier,
            degraded: self.degraded(unattributed),
            listeners,
            cgroups,
            health: self.health,
            hooks: self.hooks.clone(),
        }
    }

    fn degraded(&self, unattributed: u64) -> Vec<String> {
        let mut lines = self.reasons.clone();
        if self.tier == Tier::Procfs {
            lines.push("connections per cgroup are unavailable on the procfs tier".to_owned());
        } else if let Some(reason) = self.cgroups.unavailable() {
            lines.push(reason.to_owned());
        } else if unattributed > 0 {
            lines.push(
                "connections of processes in the v2 root are in no group: this host is not pure cgroup v2".to_owned(),
            );
        }
        let denied = self.namespaces.denied();
        if denied > 0 {
            let why = preflight::namespaces_obstacle().unwrap_or_else(|| "not permitted".to_owned());
            lines.push(format!("{denied} other network namespaces are not observed: {why}"));
        }
        lines.extend(self.blind.iter().cloned());
        lines.extend(self.trouble.iter().map(|(netns, what)| format!("network namespace {netns}: {what}")));
        lines
    }
}

/// Why a namespace could not be looked at.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Enter(#[from] EnterError),
    #[error(transparent)]
    Diag(#[from] DiagError),
    #[error(transparent)]
    Procfs(#[from] procfs::ProcfsError),
}

fn listener_row(row: SocketRow) -> Row {
    Row {
        id: Id::Cookie(row.cookie),
        inode: row.inode,
        address: row.address,
        port: row.port,
        depth: row.receive_queue,
        backlog: Some(row.send_queue),
        drops: row.drops,
        cgroup: row.cgroup,
    }
}

/// Nanoseconds of the clock that BPF reads too.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).expect("the monotonic clock starts at 0");
    let nanoseconds = u64::try_from(now.tv_nsec).expect("nanoseconds of a second are never negative");
    seconds * 1_000_000_000 + nanoseconds
}
