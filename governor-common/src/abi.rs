//! Bytes between the BPF programs and the daemon: map keys and values, ring-buffer events, iterator records.
//!
//! Every struct is `repr(C)`, has no padding (the `Pod` derive refuses any) and a size that is asserted. Enums cross as
//! integers and are parsed by the reader. Knows no map, no hook and no meaning beyond the fields' units.

mod cgroup;
mod control;
mod event;
mod listener;
mod offsets;
mod scan;
mod sojourn;
mod stats;

pub use cgroup::{CgroupKey, CgroupState, Direction, MAX_CGROUPS, Marker, QUICK_MARKS, QuickMark, Stage};
pub use control::Control;
pub use event::{Event, EventKind, MAX_LEASED, leased_places};
pub use listener::{AF_INET, AF_INET6, ListenerState, MAX_LISTENERS};
pub use offsets::Offsets;
pub use scan::{ListenPort, MAX_LISTEN_PORTS, QUEUE_WALK, QueueRecord, ScanRecord, TCP_LISTEN};
pub use sojourn::{BUCKETS, Longest, Sojourn, bucket_of, upper_bound_ns, upper_bound_seconds};
pub use stats::GlobalStats;

/// Lets aya read a struct out of a map. The orphan rule keeps this impl out of governor-user.
macro_rules! plain {
    ($type:ty, $size:literal) => {
        const _: () = assert!(size_of::<$type>() == $size, "the size of an ABI struct changed");

        #[cfg(feature = "aya")]
        #[expect(unsafe_code, reason = "aya::Pod is an unsafe trait; bytemuck::Pod proves what it asks for")]
        // SAFETY: the type derives `bytemuck::Pod`, which is stricter than what aya asks: plain data without padding.
        unsafe impl aya::Pod for $type {}
    };
}
use plain;
