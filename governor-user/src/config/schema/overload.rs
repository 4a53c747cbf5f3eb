//! The settings of overload: whose figures feed the level, and the range of each monitor, where its pressure begins and
//! where it is fully.

use super::declare::section;
use super::form::{Integer, List, Mode, Optional, Time};
use super::{Count, MINUTE};

type Permille = Integer<0, 1000>;
type SomeTime = Time<0, { 10 * MINUTE }>;

section! {
    /// The overload level.
    Overload in "overload" {
        /// Whether the level refuses (529: sheddable requests from high on, normal ones when overloaded, critical ones
        /// never) or only records.
        mode: Mode = "observe", RunTime;
        /// Ports whose listeners feed the level; empty: the listeners held by connected proxies.
        ports: List = "", Restart;
        /// Monitors that raise no pressure, by the name of their cause, e.g. cpu_pressure.
        ignore: List = "", Restart;
        /// How long pressure must last before the level rises; a full queue does not wait.
        hold: SomeTime = "2s", Restart;
        /// How far the pressure must fall below what entered a level to leave it, in ‰.
        hysteresis: Permille = "100", Restart;
        /// Accept-queue fill in ‰ where pressure starts.
        accept_fill_lo: Permille = "500", Restart;
        /// Accept-queue fill in ‰ where pressure is 1000 ‰.
        accept_fill_hi: Permille = "1000", Restart;
        /// Least wait of any connection in a standing accept queue, where pressure starts.
        accept_sojourn_lo: SomeTime = "5ms", Restart;
        /// The same where pressure is 1000 ‰; a queue that takes longer to empty is no burst.
        accept_sojourn_hi: SomeTime = "500ms", Restart;
        /// Refused attempts per second at a full accept queue where pressure starts.
        accept_overflow_lo: Count = "0", Restart;
        /// The same where pressure is 1000 ‰.
        accept_overflow_hi: Count = "10", Restart;
        /// How long nothing is accepted while connections wait, where pressure starts.
        acceptor_stalled_lo: SomeTime = "1s", Restart;
        /// The same where pressure is 1000 ‰.
        acceptor_stalled_hi: SomeTime = "5s", Restart;
        /// Open connections of a cgroup in ‰ of its ceiling where pressure starts.
        connections_lo: Permille = "700", Restart;
        /// Open connections of a cgroup in ‰ of its ceiling where pressure is 1000 ‰.
        connections_hi: Permille = "1000", Restart;
        /// Counted requests in ‰ of node.cap where pressure starts.
        node_in_flight_lo: Permille = "800", Restart;
        /// Counted requests in ‰ of node.cap where pressure is 1000 ‰.
        node_in_flight_hi: Permille = "1000", Restart;
        /// Requests in flight and parked in ‰ of a pool's capacity where pressure starts.
        pool_use_lo: Count = "1000", Restart;
        /// The same where pressure is 1000 ‰.
        pool_use_hi: Count = "2000", Restart;
        /// Open descriptors of a proxy in ‰ of its limit where pressure starts.
        descriptors_lo: Permille = "850", Restart;
        /// Open descriptors of a proxy in ‰ of its limit where pressure is 1000 ‰.
        descriptors_hi: Permille = "980", Restart;
        /// Share of the last 10 s in ‰ in which some task of the proxies' cgroup, or of the machine, waited for a CPU,
        /// where pressure starts.
        cpu_pressure_lo: Permille = "700", Restart;
        /// The same where pressure is 1000 ‰.
        cpu_pressure_hi: Permille = "950", Restart;
        /// The same for memory, where pressure starts.
        memory_pressure_lo: Permille = "100", Restart;
        /// The same where pressure is 1000 ‰.
        memory_pressure_hi: Permille = "500", Restart;
        /// Memory of a proxy's cgroup, unused page cache left out, in ‰ of its limit or of one above it, where pressure
        /// starts.
        cgroup_memory_lo: Permille = "850", Restart;
        /// The same where pressure is 1000 ‰.
        cgroup_memory_hi: Permille = "980", Restart;
    }
}

section! {
    /// A cgroup, by its path.
    Cgroup in "cgroups.*" {
        /// Ceiling of open connections, inbound and outbound, of the cgroup with this path; advisory.
        max_connections: Optional<Integer<1, 10_000_000>> = "1000", Restart;
    }
}
