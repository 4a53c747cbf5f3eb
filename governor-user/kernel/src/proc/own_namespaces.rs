//! What this process's own namespaces make of the kernel's numbers. A pid, a uid and a clock value are relative to the
//! namespaces of their reader; this file knows where a number may be compared with another one and where it may not.
//! Cgroup paths are in `kernel/cgroup.rs`.

use rustix::time::{ClockId, clock_gettime};
use std::os::unix::fs::MetadataExt;
use std::sync::LazyLock;

/// How many ids a map that hides none has.
const ALL_IDS: u64 = u32::MAX as u64;

const NANOSECONDS: i64 = 1_000_000_000;

/// Whether `/proc` numbers processes as this process's own pid namespace does. If not, a pid from a system call
/// (`SO_PEERCRED`, `pidfd_open`) and a folder of `/proc` with that number are two different processes.
#[must_use]
pub fn proc_is_ours() -> bool {
    static OURS: LazyLock<bool> =
        LazyLock::new(|| std::fs::read_to_string("/proc/self/status").is_ok_and(|status| is_numbered_once(&status)));
    *OURS
}

/// The uid that stands for every user without a number in this process's user namespace; `None` where all have one.
/// Two users with this uid may be different ones.
#[must_use]
pub fn unmapped_uid() -> Option<u32> {
    static UNMAPPED: LazyLock<Option<u32>> = LazyLock::new(|| {
        let map = std::fs::read_to_string("/proc/self/uid_map").ok()?;
        let overflow = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
        (!is_whole(&map)).then(|| overflow.and_then(|text| text.trim().parse().ok()).unwrap_or(65534))
    });
    *UNMAPPED
}

/// Nanoseconds of `CLOCK_MONOTONIC` as the kernel and its BPF programs count them: without the offset of this process's
/// time namespace.
#[must_use]
pub fn kernel_monotonic_ns() -> u64 {
    static OFFSET: LazyLock<i64> = LazyLock::new(|| {
        std::fs::read_to_string("/proc/self/timens_offsets").ok().and_then(|text| monotonic_offset(&text)).unwrap_or(0)
    });
    let now = clock_gettime(ClockId::Monotonic);
    let own = now.tv_sec.saturating_mul(NANOSECONDS).saturating_add(now.tv_nsec);
    u64::try_from(own.saturating_sub(*OFFSET)).unwrap_or(0)
}

/// Identifies this boot of the kernel; empty where it cannot be read.
#[must_use]
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Identifies the pid and the time namespace of this process. Pids and start times on disk are valid only for a reader
/// with the same boot and the same scope.
#[must_use]
pub fn process_scope() -> String {
    let inode = |kind: &str| std::fs::metadata(format!("/proc/self/ns/{kind}")).map_or(0, |metadata| metadata.ino());
    format!("pid:{} time:{}", inode("pid"), inode("time"))
}

/// `NSpid` lists the process's number in the namespace of this `/proc`, then in each one below it down to its own.
fn is_numbered_once(status: &str) -> bool {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    // A kernel without pid namespaces has no such line.
    numbers.is_none_or(|numbers| numbers.split_whitespace().count() == 1)
}

/// Lines of first id inside, first id outside, number of ids.
fn is_whole(map: &str) -> bool {
    let counts = map.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    counts.sum::<u64>() >= ALL_IDS
}

/// The line `monotonic SECONDS NANOSECONDS`.
fn monotonic_offset(table: &str) -> Option<i64> {
    let mut fields = table.lines().find_map(|line| line.strip_prefix("monotonic"))?.split_whitespace();
    let (seconds, nanoseconds): (i64, i64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    seconds.checked_mul(NANOSECONDS)?.checked_add(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proc_of_another_pid_namespace_is_recognised() {
        assert!(is_numbered_once("Name:\tx\nNSpid:\t7\n"));
        assert!(!is_numbered_once("Name:\tx\nNSpid:\t29848\t3\n"));
        assert!(is_numbered_once("Name:\tx\n"));
    }

    #[test]
    fn a_map_that_leaves_users_out_is_recognised() {
        assert!(is_whole("         0          0 4294967295\n"));
        assert!(!is_whole("         0     100000      65536\n"));
        assert!(!is_whole(""), "nobody is mapped before the map is written");
    }

    #[test]
    fn the_offset_of_a_time_namespace_has_a_sign() {
        assert_eq!(monotonic_offset("monotonic      100000         5\nboottime 0 0\n"), Some(100_000_000_000_005));
        assert_eq!(monotonic_offset("monotonic  -3 500000000\n"), Some(-2_500_000_000));
        assert_eq!(monotonic_offset(""), None);
    }
}
