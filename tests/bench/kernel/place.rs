//! Where the load runs: a thread in a network namespace of its own.

use anyhow::{Context, Result, anyhow};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::thread;
use support::machine::netns::Netns;

/// Closed connections that may linger in the namespace. More end at once, so that a long run does not fill the tables.
const LINGERING: &str = "4096";

/// Runs `work` in a thread inside `namespace`; what it starts is inside too.
pub(crate) fn inside<T: Send>(namespace: &Netns, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let file = File::open(namespace.path()).context("cannot open the namespace")?;
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .context("cannot enter the namespace")?;
            fs::write("/proc/sys/net/ipv4/tcp_max_tw_buckets", LINGERING).context("cannot set up the namespace")?;
            fs::write("/proc/sys/net/ipv4/ip_local_port_range", "1024 65000")?;
            work()
        });
        worker.join().unwrap_or_else(|_| Err(anyhow!("the thread in the namespace panicked")))
    })
}
