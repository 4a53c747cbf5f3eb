//! The settings of overload: whose figures feed the level, where each monitor begins to press and where it presses fully.

use super::COUNT;
use super::MINUTE;
use super::Setting;
use super::duration;
use super::fixed;
use super::live;
use super::optional;
use crate::config::value::Kind;

const PERMILLE: Kind = Kind::Integer { min: 0, max: 1000 };
const SOME_TIME: Kind = duration(0, 10 * MINUTE);

pub(super) const ROWS: &[Setting] = &[
    live(
        "overload.mode",
        Kind::Mode,
        "observe",
        "Whether the level refuses (529: sheddable requests from high on, normal ones when overloaded, critical ones never) or only records.",
    ),
    fixed(
        "overload.ports",
        Kind::List,
        "",
        "Ports whose listeners feed the level; empty: the listeners held by connected proxies.",
    ),
    fixed(
        "overload.ignore",
        Kind::List,
        "",
        "Monitors that are not to press, by the name of their cause, e.g. cpu_pressure.",
    ),
    fixed(
        "overload.hold",
        SOME_TIME,
        "2s",
        "How long pressure must last before the level rises; a full queue does not wait.",
    ),
    fixed(
        "overload.hysteresis",
        PERMILLE,
        "100",
        "How far the pressure must fall below what entered a level to leave it, in ‰.",
    ),
    fixed("overload.accept_fill_lo", PERMILLE, "500", "Accept-queue fill in ‰ where pressure starts."),
    fixed("overload.accept_fill_hi", PERMILLE, "1000", "Accept-queue fill in ‰ where pressure is 1000 ‰."),
    fixed(
        "overload.accept_sojourn_lo",
        SOME_TIME,
        "5ms",
        "What everybody waits in a standing accept queue at least, where pressure starts.",
    ),
    fixed(
        "overload.accept_sojourn_hi",
        SOME_TIME,
        "500ms",
        "The same where pressure is 1000 ‰; a queue that takes longer to empty is no burst.",
    ),
    fixed(
        "overload.accept_overflow_lo",
        COUNT,
        "0",
        "Refused attempts per second at a full accept queue where pressure starts.",
    ),
    fixed("overload.accept_overflow_hi", COUNT, "10", "The same where pressure is 1000 ‰."),
    fixed(
        "overload.acceptor_stalled_lo",
        SOME_TIME,
        "1s",
        "How long nothing is accepted while connections wait, where pressure starts.",
    ),
    fixed("overload.acceptor_stalled_hi", SOME_TIME, "5s", "The same where pressure is 1000 ‰."),
    fixed(
        "overload.connections_lo",
        PERMILLE,
        "700",
        "Open connections of a cgroup in ‰ of its ceiling where pressure starts.",
    ),
    fixed(
        "overload.connections_hi",
        PERMILLE,
        "1000",
        "Open connections of a cgroup in ‰ of its ceiling where pressure is 1000 ‰.",
    ),
    fixed("overload.node_in_flight_lo", PERMILLE, "800", "Counted requests in ‰ of node.cap where pressure starts."),
    fixed(
        "overload.node_in_flight_hi",
        PERMILLE,
        "1000",
        "Counted requests in ‰ of node.cap where pressure is 1000 ‰.",
    ),
    fixed(
        "overload.pool_use_lo",
        COUNT,
        "1000",
        "Requests in flight and parked in ‰ of a pool's capacity where pressure starts.",
    ),
    fixed("overload.pool_use_hi", COUNT, "2000", "The same where pressure is 1000 ‰."),
    fixed(
        "overload.descriptors_lo",
        PERMILLE,
        "850",
        "Open descriptors of a proxy in ‰ of its limit where pressure starts.",
    ),
    fixed(
        "overload.descriptors_hi",
        PERMILLE,
        "980",
        "Open descriptors of a proxy in ‰ of its limit where pressure is 1000 ‰.",
    ),
    fixed(
        "overload.cpu_pressure_lo",
        PERMILLE,
        "700",
        "Share of the last 10 s in ‰ in which some task of the proxies' cgroup, or of the machine, waited for a CPU, where pressure starts.",
    ),
    fixed("overload.cpu_pressure_hi", PERMILLE, "950", "The same where pressure is 1000 ‰."),
    fixed("overload.memory_pressure_lo", PERMILLE, "100", "The same for memory, where pressure starts."),
    fixed("overload.memory_pressure_hi", PERMILLE, "500", "The same where pressure is 1000 ‰."),
    fixed(
        "overload.cgroup_memory_lo",
        PERMILLE,
        "850",
        "Memory of a proxy's cgroup, unused page cache left out, in ‰ of its limit or of one above it, where pressure starts.",
    ),
    fixed("overload.cgroup_memory_hi", PERMILLE, "980", "The same where pressure is 1000 ‰."),
    optional(
        "cgroups.*.max_connections",
        Kind::Integer { min: 1, max: 10_000_000 },
        "Ceiling of open connections, inbound and outbound, of the cgroup with this path; advisory.",
    ),
];
