//! What a member is doing: its state, and why it cools.

use crate::time::Instant;

/// What a member cools for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CoolingCause {
    /// A report that it answered 429.
    RateLimited,
    /// A report that it answered 529 or failed in transport.
    Overloaded,
    /// An operator's order.
    Operator,
}

/// State of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// Takes requests.
    Up,
    /// Takes none until then.
    Cooling {
        /// End of the cool-down.
        until: Instant,
    },
    /// Takes none: it has no slots.
    Off,
    /// Takes none.
    Draining,
}
