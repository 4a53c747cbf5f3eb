//! How long counts are unknown after a crash: a real daemon is killed, connections open and close while none runs, and
//! the time from the next start to an exact answer is taken: open connections of both cgroups, and every connection that
//! ever entered the queue. The programs are pinned, so they count meanwhile.

use crate::Scale;
use crate::pairs::median;
use crate::progress;
use crate::report::{Bound, Row, Subject, Target};
use anyhow::{Context, Result, anyhow};
use serde_json::Value;
use std::time::Instant;
use support::machine::bpffs::Bpffs;
use support::machine::cgroup::Cgroup;
use support::machine::netns::Netns;
use support::programs::daemon::{Daemon, Setup};
use support::programs::peer::Peer;

/// Connections open before the crash, and those that open and close while no daemon runs.
const BEFORE: u32 = 300;
const MEANWHILE: u32 = 40;
const POOL: &str = "[pools.chat.members.a]\nslots = 8\n";

/// Measures.
pub(crate) fn measure(scale: &Scale, namespace: &Netns) -> Result<Vec<Row>> {
    let of_server = Cgroup::create("bench-server").context("no cgroup")?;
    let of_client = Cgroup::create("bench-client").context("no cgroup")?;
    let mut server = Peer::start_in(namespace, &of_server);
    let mut client = Peer::start_in(namespace, &of_client);
    let port = server.listen("127.0.0.1", 1024);
    client.connect("127.0.0.1", port, BEFORE);
    server.accept(port, BEFORE);
    let bpffs = Bpffs::mount().context("no bpffs can be mounted")?;
    let mut daemon = Setup::new(POOL).tier("auto").pins(&bpffs.pins()).start();
    let (mut open, mut came) = (BEFORE, 0);
    let exact = |daemon: &Daemon, open: u32, came: u32| {
        daemon.wait_for("/v1/cgroups", |groups| {
            has(groups, of_server.path(), (open, 0)) && has(groups, of_client.path(), (0, open))
        });
        daemon.wait_for("/v1/listeners", |rows| {
            let mut rows = rows.as_array().into_iter().flatten();
            rows.any(|row| row["netns"] == namespace.inode() && row["port"] == port && row["enqueued_total"] == came)
        });
    };
    exact(&daemon, open, came);
    let mut took = Vec::new();
    for round in 0..scale.rounds {
        progress(format_args!("kill -9 and restart, round {} of {}", round + 1, scale.rounds));
        daemon.kill();
        client.connect("127.0.0.1", port, MEANWHILE);
        server.accept(port, MEANWHILE);
        open += MEANWHILE;
        came += 2 * MEANWHILE;
        let mut passing = Peer::start_in(namespace, &of_client);
        passing.connect("127.0.0.1", port, MEANWHILE);
        server.accept(port, MEANWHILE);
        passing.reset_connections();
        drop(passing);
        let begun = Instant::now();
        daemon.restart().map_err(|refusal| anyhow!("governord did not start again: {}", refusal.log))?;
        exact(&daemon, open, came);
        took.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(vec![Row {
        what: "exact counts after kill -9 and restart".to_owned(),
        unit: "ms".to_owned(),
        baseline: None,
        value: median(took),
        ratio: None,
        target: Some(Target { of: Subject::Value, bound: Bound::AtMost, limit: 500.0, aim: Some(50.0) }),
    }])
}

fn has(groups: &Value, path: &str, (inbound, outbound): (u32, u32)) -> bool {
    let groups = groups.as_array().map(Vec::as_slice).unwrap_or_default();
    groups.iter().any(|group| group["path"] == path && group["inbound"] == inbound && group["outbound"] == outbound)
}
