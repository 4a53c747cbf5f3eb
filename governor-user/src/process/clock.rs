//! The daemon's one clock: CLOCK_MONOTONIC as the engine's time, as the kernel counts it, so that it compares with what
//! BPF programs stamp. Steps of the wall clock change nothing.

use governor_engine::time::Instant;
use governor_kernel::proc::own_namespaces::kernel_monotonic_ns;
use rustix::time::{ClockId, clock_gettime};

/// Now, in nanoseconds since boot.
#[must_use]
pub fn now() -> Instant {
    Instant(kernel_monotonic_ns())
}

/// The engine's instant as tokio's, for timers.
#[must_use]
pub fn to_tokio(at: Instant) -> tokio::time::Instant {
    tokio::time::Instant::now() + at.since(now())
}

/// Wall-clock seconds since 1970, for records people read and for deadlines that outlive a restart.
#[must_use]
pub fn wall_seconds() -> u64 {
    u64::try_from(clock_gettime(ClockId::Realtime).tv_sec).unwrap_or(0)
}

/// The wall clock as RFC 3339 in UTC, whole seconds.
#[must_use]
pub fn wall_time() -> String {
    jiff::Timestamp::from_second(i64::try_from(wall_seconds()).unwrap_or(0)).unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_does_not_go_back() {
        let first = now();
        assert!(now() >= first);
    }
}
