//! Sources that fail after the start: system calls of the thread that ticks are refused by a filter of its own, which ends
//! with the thread. Time is an argument.

use super::*;
use crate::sources::GRACE;
use governor_observation::ListenerView;
use std::net::{SocketAddr, TcpListener, TcpStream};

/// A system call that is refused from now on: its number, and the value of one argument by its index.
struct Refused {
    number: libc::c_long,
    argument: u8,
    value: u32,
}

/// `bpf()` commands.
const MAP_LOOKUP: u32 = 1;
const MAP_NEXT_KEY: u32 = 4;
const ITER_CREATE: u32 = 33;

/// Has the kernel answer `EPERM` to these system calls of the calling thread. `false` where no filter is allowed.
fn refuse(calls: &[Refused]) -> bool {
    const LOAD: u16 = 0x20;
    const EQUALS: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = Vec::new();
    for Refused { number, argument, value } in calls {
        filter.extend([
            step(LOAD, 0, 0, 0),
            step(EQUALS, 0, 3, u32::try_from(*number).unwrap()),
            step(LOAD, 0, 0, 16 + 8 * u32::from(*argument)),
            step(EQUALS, 0, 1, *value),
            step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap()),
        ]);
    }
    filter.push(step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: u16::try_from(filter.len()).unwrap(), filter: filter.as_mut_ptr() };
    // SAFETY: the first call takes numbers only; the program and what it points to outlive the second.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    }
}

/// A sampler on exactly this tier; `None`, and a line that says why, where it cannot be had.
fn sampler(tier: Tier) -> Option<Sampler> {
    let options = Options { forced_tier: Some(tier), ..Options::default() };
    let sampler = Sampler::start(&options).unwrap();
    if sampler.tier == tier {
        return Some(sampler);
    }
    let required = std::env::var_os("GOVERNOR_REQUIRE_KERNEL").is_some_and(|value| value == "1");
    assert!(!required, "required: {:?}", sampler.reasons);
    println!("SKIP: {}", sampler.reasons.join("; "));
    None
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn row(seen: &Observation, address: SocketAddr) -> Option<ListenerView> {
    let home = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata("/proc/thread-self/ns/net").unwrap());
    let mut rows = seen.listeners.iter().filter(|row| row.netns == home);
    rows.find(|row| SocketAddr::new(row.address, row.port) == address).cloned()
}

fn failing(seen: &Observation) -> Vec<&str> {
    seen.failing.iter().map(|source| source.source.as_str()).collect()
}

#[test]
fn refused_diagnostics_are_replaced_by_proc_after_a_grace() {
    let Some(mut sampler) = sampler(Tier::Netlink) else { return };
    let (_listener, address) = listen();
    let _client = TcpStream::connect(address).unwrap();
    let begun = Instant::now();
    let first = row(&sampler.tick(begun).unwrap(), address).unwrap();
    assert!(first.depth == 1 && first.cookie.is_some() && first.tier == Tier::Netlink, "{first:?}");
    if !refuse(&[Refused { number: libc::SYS_socket, argument: 0, value: libc::AF_NETLINK.unsigned_abs() }]) {
        return println!("SKIP: no filter is allowed here");
    }
    let _another = TcpStream::connect(address).unwrap();
    let seen = sampler.tick(begun + GRACE / 2).unwrap();
    let kept = row(&seen, address).unwrap();
    assert!(kept.depth == 1 && kept.age_seconds > first.age_seconds && failing(&seen).is_empty(), "{kept:?}");
    let seen = sampler.tick(begun + GRACE * 2).unwrap();
    let next = row(&seen, address).unwrap();
    assert_eq!((next.depth, next.cookie, next.backlog, next.tier), (2, None, None, Tier::Procfs));
    assert_eq!((failing(&seen), seen.unread.len(), seen.cgroups.is_none()), (vec!["socket_tables"], 0, true));
    let degraded = seen.degraded.join("; ");
    assert!(degraded.contains("(") && degraded.contains("depths come from /proc"), "{degraded}");
}

#[test]
fn maps_that_cannot_be_read_leave_totals_unknown() {
    let Some(mut sampler) = sampler(Tier::Tracepoint) else { return };
    let (_listener, address) = listen();
    let _client = TcpStream::connect(address).unwrap();
    let begun = Instant::now();
    let first = row(&sampler.tick(begun).unwrap(), address).unwrap();
    assert_eq!((first.depth, first.enqueued_total), (1, Some(1)));
    let refused = |value| Refused { number: libc::SYS_bpf, argument: 0, value };
    if !refuse(&[refused(MAP_LOOKUP), refused(MAP_NEXT_KEY)]) {
        return println!("SKIP: no filter is allowed here");
    }
    let seen = sampler.tick(begun + GRACE).unwrap();
    assert_eq!(row(&seen, address).unwrap().enqueued_total, None, "at once: a total is exact or unknown");
    let seen = sampler.tick(begun + GRACE * 3).unwrap();
    let later = row(&seen, address).unwrap();
    assert_eq!((later.depth, later.enqueued_total, later.sojourn, seen.cgroups.is_none()), (1, None, None, true));
    assert_eq!(seen.failing.iter().filter(|source| source.source == "programs").count(), 1);
}

#[test]
fn queues_that_cannot_be_looked_into_have_no_age() {
    let Some(mut sampler) = sampler(Tier::Tracepoint) else { return };
    let (_listener, address) = listen();
    let _client = TcpStream::connect(address).unwrap();
    let begun = Instant::now();
    let first = row(&sampler.tick(begun).unwrap(), address).unwrap();
    assert!(first.oldest_queued_seconds.is_some());
    if !refuse(&[Refused { number: libc::SYS_bpf, argument: 0, value: ITER_CREATE }]) {
        return println!("SKIP: no filter is allowed here");
    }
    sampler.tick(begun + GRACE).unwrap();
    let seen = sampler.tick(begun + GRACE * 3).unwrap();
    let later = row(&seen, address).unwrap();
    assert_eq!((later.depth, later.oldest_queued_seconds, later.abandoned), (1, None, Some(0)), "by the next source");
    assert!(failing(&seen).contains(&"queue_scans"), "{:?}", failing(&seen));
}
