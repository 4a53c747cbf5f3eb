//! Which core a benchmark's parts run on: servers on the first that this process may use, whoever asks or connects on the last.

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::OnceLock;

/// The cores this process was started with.
fn allowed() -> Result<&'static CpuSet> {
    static ALLOWED: OnceLock<CpuSet> = OnceLock::new();
    let now = sched_getaffinity(None).context("the cores of this process are not known")?;
    Ok(ALLOWED.get_or_init(|| now))
}

/// Remembers the cores before anything is pinned.
///
/// # Errors
/// There is only one.
pub fn check() -> Result<()> {
    ensure!(allowed()?.count() >= 2, "servers and clients need a core each");
    Ok(())
}

/// Runs `start` on the servers' core: what it starts stays there. The calling thread comes back.
///
/// # Errors
/// The kernel refuses.
pub fn beside_servers<T>(start: impl FnOnce() -> T) -> Result<T> {
    let before = sched_getaffinity(None)?;
    only(core(false)?)?;
    let started = start();
    sched_setaffinity(None, &before).context("the cores cannot be given back")?;
    Ok(started)
}

/// Keeps the calling thread, and what it starts, on the clients' core.
///
/// # Errors
/// The kernel refuses.
pub fn beside_clients() -> Result<()> {
    only(core(true)?)
}

/// Keeps the calling thread on the servers' core.
///
/// # Errors
/// The kernel refuses.
pub fn on_the_servers_core() -> Result<()> {
    only(core(false)?)
}

fn core(last: bool) -> Result<usize> {
    let allowed = allowed()?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let core = if last { cores.next_back() } else { cores.next() };
    core.context("no core is allowed")
}

fn only(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).context("cannot stay on one core")
}
