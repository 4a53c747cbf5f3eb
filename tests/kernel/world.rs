//! What every kernel test needs: a namespace, a plane that watches it, and bounded waiting.

use governor_kernel as kernel;
use governor_kernel::Options;
use governor_kernel::Plane;
use governor_observation::{HookEvent, ListenerView, Observation, Tier};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::{
    fs::File,
    os::fd::AsFd,
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};
use support::machine::cgroup;
use support::machine::netns::Netns;
use support::machine::ss;
use support::skip;

/// Long enough for the slowest machine; nothing waits this long when it works.
const PATIENCE: Duration = Duration::from_secs(30);

/// A private namespace; `None`, and a line that says why, where it cannot be had.
pub(crate) fn namespace() -> Option<Netns> {
    if !rustix::process::geteuid().is_root() {
        skip("private network namespaces and cgroups need root");
        return None;
    }
    match Netns::create().and_then(|namespace| cgroup::root().map(|_| namespace)) {
        Ok(namespace) => Some(namespace),
        Err(error) => {
            skip(&format!("no private network namespace or cgroup: {error}"));
            None
        }
    }
}

/// Runs `work` on a thread inside the namespace.
pub(crate) fn inside<T: Send>(namespace: &Netns, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let door = File::open(namespace.path()).expect("the namespace is there");
            move_into_link_name_space(door.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may enter it");
            work()
        });
        worker.join().expect("the work did not panic")
    })
}

/// Options under which tests need not wait for audits.
pub(crate) fn options(tier: Tier) -> Options {
    Options {
        forced_tier: Some(tier),
        tick: Duration::from_millis(20),
        audit_every: Duration::from_millis(500),
        ..Options::default()
    }
}

/// A plane on exactly this tier; `None`, and a line that says why, where it cannot be had.
pub(crate) fn plane(tier: Tier) -> Option<Plane> {
    plane_with(options(tier))
}

/// As [`plane`], with options whose `forced_tier` is the tier.
pub(crate) fn plane_with(options: Options) -> Option<Plane> {
    let tier = options.forced_tier.expect("a kernel test names its tier");
    let plane = kernel::spawn(options).expect("the plane starts on some tier");
    let first = plane.observations().borrow().clone();
    if first.tier == tier {
        return Some(plane);
    }
    skip(&format!("the {tier} tier does not work here: {}", first.degraded.join("; ")));
    None
}

/// A plane on the best tier that works here, for tests that hold each tier to what it promises; `None`, and a line that
/// says why, where there are no programs.
pub(crate) fn best_plane() -> Option<Plane> {
    let plane = kernel::spawn(Options { forced_tier: None, ..options(Tier::Procfs) }).expect("it starts on some tier");
    let first = plane.observations().borrow().clone();
    if first.tier >= Tier::Tracepoint {
        return Some(plane);
    }
    skip(&format!("no programs work here: {}", first.degraded.join("; ")));
    None
}

/// The tiers that tests hold to the same promises here: those with sock_diag that work.
pub(crate) fn tiers() -> impl Iterator<Item = Tier> {
    static BEST: OnceLock<Tier> = OnceLock::new();
    let best = *BEST.get_or_init(|| {
        let plane = kernel::spawn(Options::default()).expect("the plane starts on some tier");
        plane.observations().borrow().tier
    });
    [Tier::Trampoline, Tier::Tracepoint, Tier::Netlink].into_iter().filter(move |tier| *tier <= best)
}

/// The tier for tests of what enqueues tell: the tracepoint tier where it sees them, and else the trampoline tier, which is
/// the only one that does before Linux 6.3.
pub(crate) fn exact() -> Tier {
    static EXACT: OnceLock<Tier> = OnceLock::new();
    *EXACT.get_or_init(|| {
        let plane = kernel::spawn(options(Tier::Tracepoint)).expect("the plane starts on some tier");
        let seen = plane.observations().borrow().clone();
        if sees(&seen, HookEvent::Enqueue) || seen.tier < Tier::Tracepoint {
            Tier::Tracepoint
        } else {
            Tier::Trampoline
        }
    })
}

/// Inbound connections that count for their cgroup on a tier, of those established and those accepted of them: where accepts
/// are seen, those in a queue are nobody's yet.
pub(crate) fn inbound_on(tier: Tier, established: u64, accepted: u64) -> u64 {
    if tier == Tier::Trampoline { accepted } else { established }
}

/// As [`tiers`], without the one that has no programs; none, and a line that says so, where no programs work.
pub(crate) fn tiers_of_programs() -> Vec<Tier> {
    let tiers: Vec<_> = tiers().filter(|tier| *tier >= Tier::Tracepoint).collect();
    if tiers.is_empty() {
        skip("no programs work here");
    }
    tiers
}

/// Whether this event is seen as it happens.
pub(crate) fn sees(seen: &Observation, event: HookEvent) -> bool {
    seen.hooks.iter().any(|hook| hook.event == Some(event) && hook.active)
}

/// Waits until an observation says what is expected, and returns it.
pub(crate) fn eventually(plane: &Plane, what: &str, expected: impl Fn(&Observation) -> bool) -> Arc<Observation> {
    let observations = plane.observations();
    let begun = Instant::now();
    loop {
        let seen = observations.borrow().clone();
        if expected(&seen) {
            return seen;
        }
        assert!(begun.elapsed() < PATIENCE, "never seen: {what}; last seen: {seen:#?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The listeners of one namespace.
pub(crate) fn listeners_in(seen: &Observation, namespace: &Netns) -> Vec<ListenerView> {
    seen.listeners.iter().filter(|listener| listener.netns == namespace.inode()).cloned().collect()
}

/// The listener on this port of the namespace, if it is seen.
pub(crate) fn listener(seen: &Observation, namespace: &Netns, port: u16) -> Option<ListenerView> {
    listeners_in(seen, namespace).into_iter().find(|listener| listener.port == port)
}

/// The listeners of a namespace in `ss`'s words.
pub(crate) fn as_ss(seen: &Observation, namespace: &Netns) -> Vec<ss::Listener> {
    let mut rows: Vec<_> = listeners_in(seen, namespace)
        .into_iter()
        .map(|view| ss::Listener { port: view.port, depth: view.depth, backlog: view.backlog.unwrap_or(u32::MAX) })
        .collect();
    rows.sort_unstable();
    rows
}

/// Open connections of a cgroup, inbound and outbound; zeros when it has none.
pub(crate) fn open_in(seen: &Observation, path: &str) -> (u64, u64) {
    let cgroups = seen.cgroups.as_deref().unwrap_or_default();
    let group = cgroups.iter().find(|group| group.path.as_deref() == Some(path));
    group.map_or((0, 0), |group| (group.inbound, group.outbound))
}
