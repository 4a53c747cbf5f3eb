//! Requests on their way to an answer, and those that wait for one. Knows who asks for what; who is next is the lanes'
//! business, and whether the next one may go is judged elsewhere, again on every wake.

use crate::collections::heap::Place;
use crate::id::SetId;
use crate::id::{LeaseId, MemberId, PoolId, RequestId, SessionId, SiteId, TrafficId};
use crate::identity::party::Holder;
use crate::io::{Kind, Priority};
use crate::time::Instant;

/// Position in arrival order, never reused: also the last tie-break.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ParkId(pub(crate) u64);

/// What decides which rules a request meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Door {
    /// Holds a lease already and looks for another member: goes first.
    Move,
    /// No share test, may use the reserve.
    Reattach,
    /// Ordinary without a key, in a pool where such requests bypass the share test.
    Keyless,
    /// Ordinary, with a key or the identity of those without: share test, then member slots.
    Keyed,
    /// New work of another lease's holder: no share test, may use the reserve, never waits.
    Child,
}

impl Door {
    /// The door of a request that asks for a slot.
    pub(crate) fn of(kind: Kind, is_judged: bool, child: bool) -> Self {
        match kind {
            Kind::Reattach => Self::Reattach,
            Kind::Ordinary | Kind::Exempt if child => Self::Child,
            Kind::Ordinary | Kind::Exempt if is_judged => Self::Keyed,
            Kind::Ordinary | Kind::Exempt => Self::Keyless,
        }
    }
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    /// A lease.
    New {
        /// It may be reclaimed when its client is gone.
        ends_with_client: bool,
        /// Where it is asked for.
        site: SiteId,
    },
    /// Another member for this lease.
    Move(LeaseId),
    /// A slot for this suspended lease.
    Resume(LeaseId),
}

/// A request the engine has understood, on its way to an answer.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) session: SessionId,
    pub(crate) request: RequestId,
    pub(crate) pool: PoolId,
    pub(crate) holder: Holder,
    pub(crate) kind: Kind,
    pub(crate) door: Door,
    pub(crate) priority: Priority,
    pub(crate) traffic: Option<TrafficId>,
    pub(crate) set: SetId,
    pub(crate) sticky: Option<MemberId>,
    pub(crate) arrived: Instant,
    /// The end of its wait: arrival plus the longest park, or the client's deadline.
    pub(crate) until: Instant,
    pub(crate) deadline: Option<Instant>,
    pub(crate) errand: Errand,
}

impl Ask {
    /// It holds a lease that counts already.
    pub(crate) fn moves(&self) -> bool {
        matches!(self.errand, Errand::Move(_))
    }
}

/// An [`Ask`] that waits.
#[derive(Clone, Debug)]
pub(crate) struct Parked {
    pub(crate) id: ParkId,
    pub(crate) ask: Ask,
    /// Observe mode has its record of this request.
    pub(crate) recorded: bool,
    /// Where its deadline stands.
    pub(crate) timer: Place,
}
