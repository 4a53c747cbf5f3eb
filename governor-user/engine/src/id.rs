//! Identities. All are plain numbers: names live in the policy, bytes at the wire.

/// A proxy's connection to the daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// An `Acquire` within a session, unique among the session's unanswered requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u32);

/// A lease. The upper 16 bits carry the daemon's epoch, so that an id from an earlier run never names another lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// A decision that refused or delayed, for `explain`. Same epoch rule as [`LeaseId`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecisionId(pub u64);

/// Fairness identity: a keyed hash made by the proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub u128);

/// The parent level of keys: a keyed hash made by the proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrgId(pub u128);

/// Index of a class (plan). Stable for the engine's lifetime: a class keeps its index by name across policy changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u32);

/// Where in a proxy a slot is asked for: a number of the caller's, 0 for none. It decides nothing; leases that are lost
/// are counted by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteId(pub u16);

/// Index of a kind of traffic within its pool, stable like [`PoolId`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrafficId(pub u32);

/// Index of a pool. Stable for the engine's lifetime: a pool keeps its index by name across policy changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u32);

/// Index of a member within its pool, stable like [`PoolId`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub u32);

/// A candidate set of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SetId(pub(crate) u32);

impl SetId {
    /// Every member of the pool.
    pub(crate) const EVERYBODY: Self = Self(0);
}

impl PoolId {
    /// The id as an index.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl ClassId {
    /// The id as an index.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl TrafficId {
    /// The id as an index.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl MemberId {
    /// The id as an index.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Bits of a lease or decision id below the epoch.
const SEQUENCE_BITS: u32 = 48;

/// Set in the ids of decisions that were recorded and not carried out. They count in a range of their own, so that
/// observing a rule changes nothing else, not even the jitter drawn from the next refusal's id.
const RECORDED: u64 = 1 << (SEQUENCE_BITS - 1);

/// Hands out ids of one epoch, each once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequence {
    next: u64,
}

impl Sequence {
    pub(crate) fn carried_out(epoch: u16) -> Self {
        Self { next: (u64::from(epoch) << SEQUENCE_BITS) + 1 }
    }

    pub(crate) fn recorded(epoch: u16) -> Self {
        Self { next: ((u64::from(epoch) << SEQUENCE_BITS) | RECORDED) + 1 }
    }

    /// Whether an id of this sequence's epoch has not been handed out yet.
    pub(crate) fn is_ahead(self, id: u64) -> bool {
        id >> SEQUENCE_BITS == self.next >> SEQUENCE_BITS && id >= self.next
    }

    pub(crate) fn next(&mut self) -> u64 {
        let id = self.next;
        self.next += 1;
        id
    }
}
