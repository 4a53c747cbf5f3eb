//! The settings of pools, their kinds of traffic and their members.

use super::declare::section;
use super::form::{Bool, Choice, FairShare, Headroom, Integer, Mode, Optional, Time, Words};
use super::{Count, HOUR};
use governor_engine::policy::Anonymous;

section! {
    /// A pool.
    Pool in "pools.*" {
        /// The pool has no gate: every request passes at once and is counted. Such a pool has no members.
        // Not at run time: only the file can add or remove the members that decide whether it is valid.
        unlimited: Bool = "false", Reload;
        /// Fair share: "off", "max-min", or an equal split from this many percent of capacity on (1–100).
        fair_share: FairShare = "off", RunTime;
        /// Slots that max-min keeps for newcomers: a number, or a percentage of capacity (then at least one unless 0).
        headroom: Headroom = "4%", RunTime;
        /// "observe" records what it would do, "enforce" does it.
        fair_share_mode: Mode = "observe", RunTime;
        /// Requests without a key: "judge" judges and bounds them all as one key, "bypass" lets them pass fair share.
        anonymous: Choice<Anonymous> = "judge", RunTime;
        /// A key holding fewer than this is never refused by fair share.
        min_guarantee: Count = "2", RunTime;
        /// HTTP status when every member slot is taken: 429 or 529.
        exhausted_status: Integer<429, 529> = "429", RunTime;
    }
}

section! {
    /// The parked requests of a pool.
    Park in "pools.*.park" {
        /// Longest time a request is parked.
        max_wait: Time<0, HOUR> = "30s", RunTime;
        /// Parked requests of one key at most.
        max_per_key: Count = "16", RunTime;
        /// Parked requests of the pool at most; unset: its ordinary slots, and at least park.max_per_key.
        max_waiting: Optional<Count> = "1000", RunTime;
    }
}

section! {
    /// The cool-downs of a pool's members.
    Cooldown in "pools.*.cooldown" {
        /// Cool-down of a member that answered 429 without naming its reset.
        rate_limited: Time<1, HOUR> = "60s", RunTime;
        /// Cool-down of a member that answered 529 or failed in transport.
        overloaded: Time<1, HOUR> = "10s", RunTime;
        /// Longest cool-down that one report of a proxy causes, whatever reset it names.
        max: Time<1, { 24 * HOUR }> = "10m", RunTime;
    }
}

section! {
    /// A kind of traffic of a pool.
    Traffic in "pools.*.traffic.*" {
        /// Slots of the pool that this kind of traffic may hold at most (media, say); 0 is no limit.
        slots: Count = "0", RunTime;
    }
}

section! {
    /// A member of a pool.
    Member in "pools.*.members.*" {
        /// Slots the member has; 0 switches the member off.
        slots: Count = "8", RunTime;
        /// Slots kept for re-attaching to running sessions.
        reserve: Count = "1", RunTime;
        /// Takes no new request; what runs goes on.
        draining: Bool = "false", RunTime;
    }
}

impl Words for Anonymous {
    const WORDS: &'static [&'static str] = &["judge", "bypass"];

    fn of(word: &str) -> Option<Self> {
        match word {
            "judge" => Some(Self::Judge),
            "bypass" => Some(Self::Bypass),
            _ => None,
        }
    }
}
