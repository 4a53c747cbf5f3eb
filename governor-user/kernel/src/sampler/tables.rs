//! The kernel's own tables of one namespace: its counters, its listeners, and what waits in their queues. A table that
//! cannot be read is reported to `sources`; its values become unknown.

use super::Fatal;
use super::Sampler;
use super::programs::Counts;
use crate::accounting::abandoned;
use crate::accounting::connections::Connections;
use crate::proc::own_namespaces::kernel_monotonic_ns;
use crate::proc::privileged::EnterError;
use crate::programs::tracepoint::ScanError;
use crate::rows::{Id, Row};
use crate::sources::Source;
use crate::tables::netstat;
use crate::tables::procfs;
use crate::tables::sockdiag::{Diag, DiagError, Select, SocketRow};
use governor_observation::wording::chain;
use governor_observation::{Protocol, Tier};
use std::{
    io,
    net::IpAddr,
    time::{Duration, Instant},
};

/// A table that could not be read is left alone this many times as long as the attempt took: a kernel that does not
/// answer costs two seconds each time, a refusal microseconds.
const REST_AFTER_FAILURE: u32 = 20;

/// Connection tables are read for at most one part in this many of the time.
const CONNECTIONS_SHARE: u32 = 20;

/// Connections of one namespace and when to count them again.
#[derive(Debug, Default)]
pub(super) struct Polled {
    pub(super) connections: Connections,
    due: Option<Instant>,
}

/// Local ends of the abandoned connections of one namespace and when to look for them again.
#[derive(Debug, Default)]
pub(super) struct Abandoned {
    sockets: Vec<(IpAddr, u16)>,
    due: Option<Instant>,
}

impl Sampler {
    /// Reads one namespace's tables. What cannot be read is never taken as empty: its rows stay as they were for
    /// [`GRACE`](crate::sources::GRACE), then come from the next source, and are unknown where that fails too.
    pub(super) fn look_at(&mut self, netns: u64, now: Instant, counts: &Counts) -> Result<(), Fatal> {
        // First, so that no listener of the table is older than the counters that the next one is held against.
        self.count_namespace(netns, now)?;
        if self.retry.get(&netns).is_none_or(|again| now >= *again) {
            let begun = Instant::now();
            let looked = match self.tier {
                Tier::Procfs => self.look_by_procfs(netns),
                Tier::Netlink | Tier::Tracepoint | Tier::Trampoline => self.look_by_diag(netns, now, counts),
            };
            match looked {
                Ok(()) => {
                    self.retry.remove(&netns);
                    self.unread.remove(&netns);
                    self.reached.insert(netns);
                    self.sources.works(Source::Tables, netns);
                    return Ok(());
                }
                Err(Trouble::Enter(EnterError::Stranded(error))) => return Err(Fatal::Stranded(error)),
                Err(Trouble::Enter(EnterError::Gone)) => {
                    self.give_up(netns);
                    self.reached.remove(&netns);
                    self.unread.remove(&netns);
                    self.sources.works(Source::Tables, netns);
                    return Ok(());
                }
                // Never permitted: counted and reported as one line for all of them.
                Err(Trouble::Enter(EnterError::Denied)) if !self.reached.contains(&netns) => return Ok(()),
                Err(trouble) => {
                    self.retry.insert(netns, now + begun.elapsed() * REST_AFTER_FAILURE);
                    let lasts = self.sources.failed(Source::Tables, netns, &chain(&trouble), now);
                    if !lasts && self.reached.contains(&netns) {
                        return Ok(());
                    }
                }
            }
        }
        match self.next_source(netns) {
            Ok(()) => drop(self.unread.remove(&netns)),
            Err(Trouble::Enter(EnterError::Stranded(error))) => return Err(Fatal::Stranded(error)),
            Err(_) => {
                self.give_up(netns);
                self.unread.insert(netns);
            }
        }
        Ok(())
    }

    /// Reads a namespace's listeners where socket diagnostics fail.
    fn next_source(&mut self, netns: u64) -> Result<(), Trouble> {
        // Connections are listed by nothing else.
        self.connections.remove(&netns);
        self.abandoned.remove(&netns);
        match self.tier {
            Tier::Procfs => Err(Trouble::Enter(EnterError::Gone)),
            Tier::Netlink | Tier::Tracepoint | Tier::Trampoline => self.look_by_procfs(netns),
        }
    }

    /// Shows nothing of a namespace, and keeps its totals.
    fn give_up(&mut self, netns: u64) {
        self.ledger.hide(netns);
        self.connections.remove(&netns);
        self.abandoned.remove(&netns);
    }

    /// Reads a namespace's own counters: inside it, else by a task of it, which shows less.
    fn count_namespace(&mut self, netns: u64, now: Instant) -> Result<(), Fatal> {
        if !self.counters.due(netns, now) {
            return Ok(());
        }
        self.counters.tried(netns, now);
        let read_ns = kernel_monotonic_ns();
        let sample = match self.namespaces.visit(netns, netstat::read_here) {
            Ok(sample) => Some(sample),
            Err(EnterError::Stranded(error)) => return Err(Fatal::Stranded(error)),
            Err(EnterError::Gone) => None,
            Err(error @ (EnterError::Denied | EnterError::Other(_))) => match self.namespaces.task_in(netns) {
                Some(task) => Some(netstat::read_of(&task)),
                None => Some(Err(io::Error::other(error))),
            },
        };
        match sample {
            Some(Ok(sample)) => {
                self.sources.works(Source::Counters, netns);
                self.counters.absorb(netns, sample, now);
                if let Some(overflows) = self.counters.overflows(netns) {
                    self.ledger.note_overflows(netns, overflows, read_ns);
                }
            }
            // A namespace never read has no totals, which is not 0.
            Some(Err(error)) if self.counters.overflows(netns).is_none() => {
                tracing::debug!(netns, %error, "counters of a namespace not read");
            }
            Some(Err(error)) if self.sources.failed(Source::Counters, netns, &chain(&error), now) => {
                self.counters.lose(netns);
            }
            Some(Err(_)) | None => {}
        }
        Ok(())
    }

    fn look_by_procfs(&mut self, netns: u64) -> Result<(), Trouble> {
        let task = self.namespaces.task_in(netns);
        let rows = match task {
            Some(task) => procfs::listeners(&task)?,
            None => self.namespaces.visit(netns, || procfs::listeners("/proc/thread-self".as_ref()))??,
        };
        drop(self.ledger.absorb(netns, rows, kernel_monotonic_ns(), |_| None));
        Ok(())
    }

    fn look_by_diag(&mut self, netns: u64, now: Instant, counts: &Counts) -> Result<(), Trouble> {
        // The socket belongs to the namespace it is opened in, so the thread need not stay there while it reads.
        let mut diag = self.namespaces.visit(netns, Diag::open)??;
        diag.dump(Select::Listeners, &mut self.scratch)?;
        let ports: Vec<u16> = self.scratch.iter().map(|row| row.port).collect();
        let mut rows: Vec<Row> = self.scratch.drain(..).map(listener_row).collect();
        let taken_ns = kernel_monotonic_ns();
        let again = self.read_again(netns, &rows, counts);
        let counted = |cookie| again.get(&cookie).copied().or_else(|| counts.of(cookie));
        if !self.look_into_queues(netns, &mut rows, now)?
            && let Err(error) = self.count_abandoned(netns, &mut diag, &mut rows, now)
        {
            // Unknown beats a number of an earlier tick; the rows themselves are fresh.
            rows.iter_mut().for_each(|row| row.abandoned = None);
            self.sources.failed(Source::Queues, netns, &chain(&error), now);
        }
        for (cookie, note) in self.ledger.absorb(netns, rows, taken_ns, counted) {
            if let Some(tracepoint) = &mut self.tracepoint {
                tracepoint.note(cookie, note);
            }
        }
        if self.tier == Tier::Netlink || self.sees_accepts {
            match self.count_connections(netns, &mut diag, ports, now) {
                Ok(()) => self.sources.works(Source::Connections, netns),
                Err(error) => {
                    if self.sources.failed(Source::Connections, netns, &chain(&error), now) {
                        self.connections.remove(&netns);
                    }
                }
            }
        }
        Ok(())
    }

    /// Has the programs look into the queues that are not empty: who waits longest, and whose client is gone. `false`
    /// where they cannot.
    fn look_into_queues(&mut self, netns: u64, rows: &mut [Row], now: Instant) -> Result<bool, EnterError> {
        let Some(tracepoint) = &mut self.tracepoint else { return Ok(false) };
        if rows.iter().all(|row| row.depth == 0) {
            abandoned::attribute(rows, &[]);
            self.sources.works(Source::Queues, netns);
            return Ok(true);
        }
        let scanned = match self.namespaces.visit(netns, || tracepoint.scan_queues()) {
            Ok(scanned) => scanned.map_err(|error| (!matches!(error, ScanError::Unavailable)).then(|| chain(&error))),
            Err(stranded @ EnterError::Stranded(_)) => return Err(stranded),
            Err(error) => Err(Some(chain(&error))),
        };
        let queues = match scanned {
            Ok(queues) => queues,
            Err(reason) => {
                if let Some(reason) = reason {
                    self.sources.failed(Source::Queues, netns, &reason, now);
                }
                return Ok(false);
            }
        };
        self.sources.works(Source::Queues, netns);
        let mut whole = true;
        for row in rows.iter_mut() {
            let queue = match row.id {
                Id::Cookie(cookie) => queues.get(&cookie),
                Id::Inode(_) => None,
            };
            // Emptied since the table was read: nothing waits, and no client is gone.
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
            self.sources.works(Source::Queues, netns);
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
        protocol: if row.mptcp { Protocol::Mptcp } else { Protocol::Tcp },
        abandoned: None,
        oldest_ns: None,
    }
}
