//! The slot a request runs on, whoever gave it: the governor's lease or the first-come pool's slot. What the forwarding
//! code may do with it is the same in both modes.

use crate::first_come::{FirstCome, Slot};
use governor_client::{Governor, LeaseHandle, MemberNews};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Who admits requests.
#[derive(Debug)]
pub(crate) enum Admission {
    /// The layer in front of the handler, by asking the daemon.
    Governor(Governor),
    /// This process alone.
    FirstCome(Arc<FirstCome>),
}

/// A slot in use.
#[derive(Debug)]
pub(crate) enum Seat {
    /// A view of the lease that the layer holds until the response body ends.
    Lease(LeaseHandle, Governor),
    /// Held by whoever holds this value.
    Slot(Slot),
    /// Work that takes no slot.
    Exempt,
}

/// Why an account did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setback {
    /// 429, with the time until its reset if it said so.
    RateLimited(Option<Duration>),
    /// 529, or no answer at all.
    Overloaded,
}

impl Seat {
    /// The account to use, if the work needs one.
    pub(crate) fn member(&self) -> Option<Arc<str>> {
        match self {
            Self::Lease(lease, _) => lease.member(),
            Self::Slot(slot) => Some(slot.member()),
            Self::Exempt => None,
        }
    }

    /// Tells whoever admits requests what the account answered.
    pub(crate) fn report(&self, setback: Setback) {
        match self {
            Self::Lease(lease, governor) => {
                if let Some(member) = lease.member() {
                    governor.member_report(lease.pool(), &member, news(setback));
                }
            }
            Self::Slot(slot) => match setback {
                Setback::RateLimited(reset) => slot.cool(reset, Instant::now()),
                Setback::Overloaded => slot.cool(None, Instant::now()),
            },
            Self::Exempt => {}
        }
    }

    /// Moves to another account before the client has seen a byte; false when there is none.
    pub(crate) async fn move_away(&mut self) -> bool {
        match self {
            Self::Lease(lease, _) => lease.move_away().await.is_ok(),
            Self::Slot(slot) => slot.move_away(Instant::now()),
            Self::Exempt => false,
        }
    }
}

fn news(setback: Setback) -> MemberNews {
    match setback {
        Setback::Overloaded => MemberNews::Overloaded,
        Setback::RateLimited(reset) => MemberNews::RateLimited {
            reset_ms: reset.map(|reset| u32::try_from(reset.as_millis()).unwrap_or(u32::MAX)),
        },
    }
}
