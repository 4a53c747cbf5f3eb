//! One tick of the kernel plane: whose turn it is, what the sources say, what is shown. Owns every source; knows no
//! daemon and no cadence but its own audits.

mod show;

use super::{
    abandoned,
    assemble::{Counted, Id, Ledger, Note, Row},
    cgroup::{Cgroups, Group},
    closed::Closed,
    connections::{Connections, Open},
    netns::{MOST_PER_TICK, Namespaces},
    netstat::{self, Counters},
    pids::Holders,
    pin,
    plane::{Options, PlaneError},
    privileged::{EnterError, Home},
    procfs,
    reconcile::{Reconciler, Stranded},
    refusals::Watched,
    sockdiag::{Diag, DiagError, Select, SocketRow},
    suspicion::Suspicion,
    tier::{self, Ladder},
    tracepoint::{Reading, Tracepoint},
    view::{Health, HookView, Observation, PinState, PinsView, Protocol, Tier},
    waits::Waits,
    walk::{Walk, Walker},
};
use rustix::time::{ClockId, clock_gettime};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::IpAddr,
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

impl From<Stranded> for Fatal {
    fn from(Stranded(error): Stranded) -> Self {
        Self::Stranded(error)
    }
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
    pins: PinsView,
    tracepoint: Option<Tracepoint>,
    reconciler: Reconciler,
    namespaces: Namespaces,
    /// Namespaces of counted listeners that the walk under way is to find …
    sought: BTreeSet<u64>,
    /// … and those that none has found; tried again at the next audit.
    unfound: BTreeSet<u64>,
    walker: Walker,
    holders: Holders,
    cgroups: Cgroups,
    ledger: Ledger,
    /// Of listeners older than the programs.
    notes: BTreeMap<u64, Note>,
    closed: Closed,
    counters: Counters,
    /// Waits in accept queues by the listener's cookie.
    waits: BTreeMap<u64, Waits>,
    /// Inbound connections count under the cgroup of the task that accepted them.
    sees_accepts: bool,
    audit_every: Duration,
    connections: BTreeMap<u64, Polled>,
    abandoned: BTreeMap<u64, Abandoned>,
    health: Health,
    /// What went wrong in a namespace when it was last looked at.
    trouble: BTreeMap<u64, String>,
    suspicion: Suspicion,
    /// Why SYNs are not looked at although there is reason to.
    unwatched: Option<String>,
    /// Why the BPF maps could not be read at this tick.
    unread: Option<String>,
    /// What the last walk could not see.
    blind: Vec<String>,
    scratch: Vec<SocketRow>,
    /// The first tick has seeded.
    begun: bool,
}

/// Connections of one namespace and when to count them again.
#[derive(Debug, Default)]
struct Polled {
    connections: Connections,
    due: Option<Instant>,
}

/// Local ends of the abandoned connections of one namespace and when to look for them again.
#[derive(Debug, Default)]
struct Abandoned {
    sockets: Vec<(IpAddr, u16)>,
    due: Option<Instant>,
}

impl Sampler {
    /// Chooses the tier and looks around once.
    ///
    /// # Errors
    /// When `/proc` is unreadable, no thread can be had, or the tier is less than required.
    pub(crate) fn start(options: &Options) -> Result<Self, PlaneError> {
        let home = Home::of_this_thread().map_err(PlaneError::Proc)?;
        let Ladder { tier, reasons, hooks, tracepoint } = tier::choose(options)?;
        let pins = pins(options, tracepoint.as_ref())?;
        let notes = tracepoint.as_ref().map(Tracepoint::notes).unwrap_or_default();
        let now = Instant::now();
        let mut sampler = Self {
            tier,
            reasons,
            hooks,
            pins,
            tracepoint,
            reconciler: Reconciler::new(options.audit_every, now),
            namespaces: Namespaces::new(home),
            sought: BTreeSet::new(),
            unfound: BTreeSet::new(),
            walker: Walker::start().map_err(PlaneError::Thread)?,
            holders: Holders::new(),
            cgroups: Cgroups::detect(options.cgroup_root.as_deref()),
            ledger: Ledger::default(),
            notes,
            closed: Closed::default(),
            counters: Counters::default(),
            waits: BTreeMap::new(),
            sees_accepts: false,
            audit_every: options.audit_every,
            connections: BTreeMap::new(),
            abandoned: BTreeMap::new(),
            health: Health::default(),
            trouble: BTreeMap::new(),
            suspicion: Suspicion::default(),
            unwatched: None,
            unread: None,
            blind: Vec::new(),
            scratch: Vec::new(),
            begun: false,
        };
        // The first observation is to be complete, so this one walk is waited for.
        sampler.ask_for_walk(now);
        if let Some(walk) = sampler.walker.wait() {
            sampler.take_walk(walk, now);
        }
        Ok(sampler)
    }

    /// Ends and leaves what is pinned.
    pub(crate) fn hand_over(self) {
        if let Some(tracepoint) = self.tracepoint {
            tracepoint.hand_over();
        }
    }

    /// Looks at the namespaces whose turn it is and says what is known now.
    ///
    /// # Errors
    /// Only when the thread cannot go on; everything else shows in the observation.
    pub(crate) fn tick(&mut self, now: Instant) -> Result<Observation, Fatal> {
        if let Some(walk) = self.walker.take() {
            self.take_walk(walk, now);
            self.on_fresh_namespaces()?;
        } else if !self.begun {
            self.begun = true;
            self.on_fresh_namespaces()?;
        }
        // Before the tables: see `assemble`.
        let reading = self.read();
        self.take_waits(reading.as_ref(), now);
        let counted = reading.as_ref().map(|reading| counted_by_cookie(reading, &self.notes)).unwrap_or_default();
        for netns in self.namespaces.turn(MOST_PER_TICK) {
            self.look_at(netns, now, &counted)?;
        }
        self.watch_for_refusals(now);
        if self.reconciler.begin(now) {
            self.cgroups.refresh();
            self.unfound.clear();
            self.forget_gone_cgroups(reading.as_ref());
            self.ask_for_walk(now);
        } else if self.holders.may_walk(now) {
            let unknown = self.unknown_namespaces(reading.as_ref());
            if !unknown.is_empty() || self.holders.wants_walk(self.ledger.inodes(), now) {
                self.sought = unknown;
                self.ask_for_walk(now);
            }
        }
        let open = self.open_connections(reading.as_ref());
        let owned = self.owned_connections();
        let counted = open.iter().flat_map(|open| open.keys()).chain(owned.iter().flat_map(|owned| owned.keys()));
        let ids = self.ledger.owners().chain(counted.copied()).collect();
        self.cgroups.learn(&ids, now);
        Ok(self.observation(open, owned.as_ref()))
    }

    /// What the programs saw; `None` on other tiers or when the maps cannot be read, which is reported.
    fn read(&mut self) -> Option<Reading> {
        let read = self.tracepoint.as_mut()?.read();
        self.unread = read.as_ref().err().map(|error| format!("counts are unknown: {}", tier::chain(error)));
        let reading = read.ok()?;
        self.health.lost_events = reading.lost_events;
        self.health.untracked = reading.untracked;
        if !self.notes.is_empty() {
            let listening: BTreeSet<u64> = reading.listeners.iter().map(|listener| listener.cookie).collect();
            self.notes.retain(|cookie, _| listening.contains(cookie));
        }
        reading.closed.iter().for_each(|listener| self.closed.note(listener));
        Some(reading)
    }

    /// Looks at SYNs while there is reason to, and only then.
    fn watch_for_refusals(&mut self, now: Instant) {
        let Some(tracepoint) = &mut self.tracepoint else { return };
        for (depth, backlog) in self.ledger.queues() {
            self.suspicion.queue(depth, backlog, now);
        }
        let overflows = self.counters.totals().filter_map(|(netns, totals)| {
            netstat::named(totals.all).listen_overflows.map(|overflows| (netns, overflows))
        });
        self.suspicion.namespaces(overflows, now);
        if !self.suspicion.is_awake(now) {
            tracepoint.unwatch_syns();
            self.unwatched = None;
            return;
        }
        let watched = tracepoint.watch_syns();
        self.unwatched = watched.err().map(|reason| format!("overflow at SYN is not counted: {reason}"));
    }

    /// Goes on with what is known of the waits; they stay as they were while the maps cannot be read.
    fn take_waits(&mut self, reading: Option<&Reading>, now: Instant) {
        let Some(reading) = reading else { return };
        self.sees_accepts = reading.sees_accepts;
        let mut waits = std::mem::take(&mut self.waits);
        for listener in &reading.listeners {
            if let Some(sojourn) = &listener.sojourn {
                let mut known = waits.remove(&listener.cookie).unwrap_or_default();
                known.absorb(sojourn.clone(), now);
                self.waits.insert(listener.cookie, known);
            }
        }
    }

    /// Seeds new namespaces and goes on with an audit.
    fn on_fresh_namespaces(&mut self) -> Result<(), Fatal> {
        self.reconciler.advance(self.tracepoint.as_mut(), &mut self.namespaces, &mut self.health)?;
        Ok(())
    }

    /// Namespaces in which a listener was opened and that no walk has looked for yet.
    fn unknown_namespaces(&self, reading: Option<&Reading>) -> BTreeSet<u64> {
        let counted = reading.into_iter().flat_map(|reading| &reading.listeners).map(|listener| listener.netns);
        counted.filter(|netns| !self.namespaces.knows(*netns) && !self.unfound.contains(netns)).collect()
    }

    /// Removes the counters of cgroups whose folder is gone and that have nothing open.
    fn forget_gone_cgroups(&mut self, reading: Option<&Reading>) {
        let Some(tracepoint) = &mut self.tracepoint else { return };
        for (id, open) in reading.and_then(|reading| reading.cgroups.as_ref()).into_iter().flatten() {
            let idle = open.inbound == 0 && open.outbound == 0;
            if idle
                && self.cgroups.group(*id) == Group::Gone
                && let Err(error) = tracepoint.forget_cgroup(*id)
            {
                tracing::debug!(cgroup = id, %error, "counters of a removed cgroup stay");
            }
        }
    }

    /// Reads one namespace's tables. What cannot be read stays as it was and is reported; it is never taken as empty.
    fn look_at(&mut self, netns: u64, now: Instant, counted: &BTreeMap<u64, Counted>) -> Result<(), Fatal> {
        // First, so that no listener of the table is older than the counters that the next one is held against.
        self.count_namespace(netns, now)?;
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

    /// Reads a namespace's own counters: inside it, else by a task of it, which shows less.
    fn count_namespace(&mut self, netns: u64, now: Instant) -> Result<(), Fatal> {
        if !self.counters.due(netns, now) {
            return Ok(());
        }
        let read_ns = monotonic_ns();
        let sample = match self.namespaces.visit(netns, netstat::read_here) {
            Ok(sample) => Some(sample),
            Err(EnterError::Stranded(error)) => return Err(Fatal::Stranded(error)),
            Err(EnterError::Gone) => None,
            Err(EnterError::Denied | EnterError::Other(_)) => {
                self.namespaces.task_in(netns).map(|task| netstat::read_of(&task))
            }
        };
        match sample {
            Some(Ok(sample)) => {
                self.counters.absorb(netns, sample, now);
                if let Some(overflows) = self.counters.overflows(netns) {
                    self.ledger.note_overflows(netns, overflows, read_ns);
                }
            }
            // The totals stay as they were; a namespace never read has none, which is not 0.
            Some(Err(error)) => tracing::debug!(netns, %error, "counters of a namespace not read"),
            None => {}
        }
        Ok(())
    }

    fn look_by_procfs(&mut self, netns: u64) -> Result<(), Trouble> {
        let task = self.namespaces.task_in(netns);
        let rows = match task {
            Some(task) => procfs::listeners(&task)?,
            None => self.namespaces.visit(netns, || procfs::listeners("/proc/thread-self".as_ref()))??,
        };
        drop(self.ledger.absorb(netns, rows, monotonic_ns(), |_| None));
        Ok(())
    }

    fn look_by_diag(&mut self, netns: u64, now: Instant, counted: &BTreeMap<u64, Counted>) -> Result<(), Trouble> {
        // The socket belongs to the namespace it is opened in, so the thread need not stay there while it reads.
        let mut diag = self.namespaces.visit(netns, Diag::open)??;
        diag.dump(Select::Listeners, &mut self.scratch)?;
        let ports: Vec<u16> = self.scratch.iter().map(|row| row.port).collect();
        let mut rows: Vec<Row> = self.scratch.drain(..).map(listener_row).collect();
        let taken_ns = monotonic_ns();
        if !self.look_into_queues(netns, &mut rows)? {
            self.count_abandoned(netns, &mut diag, &mut rows, now)?;
        }
        for (cookie, note) in self.ledger.absorb(netns, rows, taken_ns, |cookie| counted.get(&cookie).copied()) {
            if let Some(tracepoint) = &mut self.tracepoint {
                tracepoint.note(cookie, note);
            }
        }
        if self.tier == Tier::Netlink || self.sees_accepts {
            self.count_connections(netns, &mut diag, ports, now)?;
        }
        Ok(())
    }

    /// Has the programs look into the queues that are not empty: who waits longest, and whose client is gone. `false`
    /// where they cannot.
    fn look_into_queues(&mut self, netns: u64, rows: &mut [Row]) -> Result<bool, EnterError> {
        let Some(tracepoint) = &mut self.tracepoint else { return Ok(false) };
        if rows.iter().all(|row| row.depth == 0) {
            abandoned::attribute(rows, &[]);
            return Ok(true);
        }
        let Ok(queues) = self.namespaces.visit(netns, || tracepoint.scan_queues())? else { return Ok(false) };
        let mut whole = true;
        for row in rows.iter_mut() {
            let queue = match row.id {
                Id::Cookie(cookie) => queues.get(&cookie),
                Id::Inode(_) => None,
            };
            // Emptied since the table was read: nothing waits, and nobody is gone.
            let abandoned = queue.map_or(Some(0), |queue| queue.abandoned);
            row.abandoned = abandoned.map(|count| count.min(row.depth));
            row.oldest_ns = queue.and_then(|queue| queue.oldest_ns).filter(|_| row.depth > 0);
            whole &= abandoned.is_some();
        }
        Ok(whole)
    }

    /// Finds out how many of the queued connections are closed by their client. Reads nothing while nothing is queued,
    /// and keeps the last answer, at most as much as is queued, until it is time to read again.
    fn count_abandoned(
        &mut self,
        netns: u64,
        diag: &mut Diag,
        rows: &mut [Row],
        now: Instant,
    ) -> Result<(), DiagError> {
        if rows.iter().all(|row| row.depth == 0) {
            abandoned::attribute(rows, &[]);
            return Ok(());
        }
        let namespaces = u32::try_from(self.namespaces.count()).unwrap_or(u32::MAX);
        let polled = self.abandoned.entry(netns).or_default();
        if polled.due.is_none_or(|due| now >= due) {
            let begun = Instant::now();
            diag.dump(Select::ClosedByPeer, &mut self.scratch)?;
            polled.sockets =
                self.scratch.drain(..).filter(SocketRow::is_abandoned).map(|r| (r.address, r.port)).collect();
            polled.due = Some(now + begun.elapsed().saturating_mul(CONNECTIONS_SHARE).saturating_mul(namespaces));
        }
        abandoned::attribute(rows, &polled.sockets);
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
        let pause = begun.elapsed().saturating_mul(CONNECTIONS_SHARE).saturating_mul(namespaces);
        // Beside exact counts it only says whose the listeners are, which is not worth more.
        let least = if self.tier == Tier::Netlink { Duration::ZERO } else { self.audit_every };
        polled.due = Some(now + pause.max(least));
        Ok(())
    }

    fn take_walk(&mut self, walk: Walk, now: Instant) {
        self.namespaces.update(walk.namespaces);
        self.counters.update(&self.namespaces.all().into_iter().collect());
        self.ledger.retain(|netns| self.namespaces.knows(netns));
        self.closed.retain(|netns| self.namespaces.knows(netns));
        self.connections.retain(|netns, _| self.namespaces.knows(*netns));
        self.abandoned.retain(|netns, _| self.namespaces.knows(*netns));
        self.trouble.retain(|netns, _| self.namespaces.knows(*netns));
        self.holders.update(walk.holders, walk.took, now);
        self.unfound.extend(std::mem::take(&mut self.sought));
        self.unfound.retain(|netns| !self.namespaces.knows(*netns));
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

    /// Connections by the cgroup that created their listener, where they count under the one that accepted.
    fn owned_connections(&self) -> Option<BTreeMap<u64, u64>> {
        if !self.sees_accepts || self.cgroups.unavailable().is_some() {
            return None;
        }
        // 0 stands for sockets whose cgroup the kernel does not tell.
        let owned = self.polled_connections().into_iter().filter(|(id, open)| *id != 0 && open.inbound > 0);
        Some(owned.map(|(id, open)| (id, open.inbound)).collect())
    }

    fn polled_connections(&self) -> BTreeMap<u64, Open> {
        let mut sum: BTreeMap<u64, Open> = BTreeMap::new();
        for (id, open) in self.connections.values().flat_map(|polled| &polled.connections.by_cgroup) {
            let entry = sum.entry(*id).or_default();
            entry.inbound += open.inbound;
            entry.outbound += open.outbound;
        }
        sum
    }

    /// Open connections by cgroup id; `None` where this tier or this host cannot tell.
    fn open_connections(&self, reading: Option<&Reading>) -> Option<BTreeMap<u64, Open>> {
        if self.cgroups.unavailable().is_some() {
            return None;
        }
        match self.tier {
            Tier::Procfs => None,
            Tier::Netlink => Some(self.polled_connections()),
            Tier::Tracepoint | Tier::Trampoline => {
                let counted = reading?.cgroups.as_ref()?.iter();
                let open = counted.map(|(id, open)| (*id, Open { inbound: open.inbound, outbound: open.outbound }));
                Some(open.filter(|(_, open)| *open != Open::default()).collect())
            }
        }
    }
}

/// What became of the pins.
///
/// # Errors
/// When they are required and are not there.
fn pins(options: &Options, tracepoint: Option<&Tracepoint>) -> Result<PinsView, PlaneError> {
    let view = match (&options.pins, tracepoint) {
        (_, Some(tracepoint)) => tracepoint.pins().clone(),
        (Some(wanted), None) => PinsView { note: pin::abandon(wanted), ..PinsView::default() },
        (None, None) => PinsView::default(),
    };
    let pinned = matches!(view.state, PinState::Pinned | PinState::Adopted);
    if options.pins.as_ref().is_some_and(|wanted| wanted.required) && !pinned {
        let reason = if tracepoint.is_none() { "this tier has nothing to pin".to_owned() } else { view.note };
        return Err(PlaneError::Pins(reason));
    }
    Ok(view)
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

fn counted_by_cookie(reading: &Reading, notes: &BTreeMap<u64, Note>) -> BTreeMap<u64, Counted> {
    let counted = reading.listeners.iter().filter_map(|listener| {
        let counted = Counted {
            from_the_first: listener.opened_ns.is_some(),
            enqueued: listener.enqueued?,
            moved: listener.moved?,
            depth_peak: listener.depth_peak?,
            opened_ns: listener.opened_ns,
            refused: Watched {
                syn: listener.overflow_syn.unwrap_or(0),
                syn_since: reading.syns_since_ns,
                ack: listener.overflow_ack.unwrap_or(0),
                ack_since: reading.acks_since_ns,
            },
            note: notes.get(&listener.cookie).copied(),
            accepted: listener.accepted,
        };
        Some((listener.cookie, counted))
    });
    counted.collect()
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
        protocol: if row.mptcp { Protocol::Mptcp } else { Protocol::Tcp },
        abandoned: None,
        oldest_ns: None,
    }
}

/// Nanoseconds of the clock that BPF reads too.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).expect("the monotonic clock starts at 0");
    let nanoseconds = u64::try_from(now.tv_nsec).expect("nanoseconds of a second are never negative");
    seconds * 1_000_000_000 + nanoseconds
}
