//! What can go wrong in a program, and the one place where it becomes visible: a counter.

use crate::state::maps;

/// Nothing here may disturb the kernel's work; it is only counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// No map entry could be made for a listener.
    ListenerUntracked,
    /// No mark or no cgroup entry could be made for a connection.
    ConnectionUntracked,
    /// The ring buffer is full.
    EventLost,
    /// Other CPUs kept raising the peak.
    Contended,
}

/// Counts an error.
#[inline(always)]
pub(crate) fn count(result: Result<(), Error>) {
    match result {
        Ok(()) => {}
        Err(Error::ListenerUntracked) => maps::count(|stats| &stats.untracked_listeners),
        Err(Error::ConnectionUntracked) => maps::count(|stats| &stats.untracked_connections),
        Err(Error::EventLost) => maps::count(|stats| &stats.lost_events),
        Err(Error::Contended) => maps::count(|stats| &stats.contended),
    }
}
