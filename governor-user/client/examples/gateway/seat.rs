//! The slot a request runs on, whoever gave it: the governor's lease or the first-come pool's slot. What the forwarding
//! code may do with it is the same in both modes.

use crate::first_come::{FirstCome, Slot};
use governor_client::tower::Custody;
use governor_client::{Governor, Lease, LeaseHandle, MemberNews};
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
    /// The governor's lease.
    Lease(Box<Leased>),
    /// Held by whoever holds this value.
    Slot(Slot),
    /// Work that takes no slot.
    Exempt,
}

/// A lease that the layer holds until the response body ends, unless it is taken over.
#[derive(Debug)]
pub(crate) struct Leased {
    lease: LeaseHandle,
    /// `None` for a hop: the request that it belongs to has it.
    custody: Option<Custody>,
    kept: Option<Lease>,
    governor: Governor,
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
    /// On a lease of the layer's.
    pub(crate) fn leased(lease: LeaseHandle, custody: Option<Custody>, governor: Governor) -> Self {
        Self::Lease(Box::new(Leased { lease, custody, kept: None, governor }))
    }

    /// The pool it is of; `None` where there is but one, or none.
    pub(crate) fn pool(&self) -> Option<&str> {
        match self {
            Self::Lease(leased) => Some(leased.lease.pool()),
            Self::Slot(_) | Self::Exempt => None,
        }
    }

    /// The account to use, if the work needs one.
    pub(crate) fn member(&self) -> Option<Arc<str>> {
        match self {
            Self::Lease(leased) => leased.lease.member(),
            Self::Slot(slot) => Some(slot.member()),
            Self::Exempt => None,
        }
    }

    /// Tells whoever admits requests what the account answered; false when there is no account.
    pub(crate) fn report(&self, setback: Setback) -> bool {
        match self {
            Self::Lease(leased) => {
                let Some(member) = leased.lease.member() else { return false };
                leased.governor.member_report(leased.lease.pool(), &member, news(setback));
            }
            Self::Slot(slot) => match setback {
                Setback::RateLimited(reset) => slot.cool(reset, Instant::now()),
                Setback::Overloaded => slot.cool(None, Instant::now()),
            },
            Self::Exempt => return false,
        }
        true
    }

    /// Moves to another account before the client has seen a byte; false when there is none.
    pub(crate) async fn move_away(&mut self) -> bool {
        match self {
            Self::Lease(leased) => leased.lease.move_away().await.is_ok(),
            Self::Slot(slot) => slot.move_away(Instant::now()),
            Self::Exempt => false,
        }
    }

    /// Holds the slot as long as this value, whatever becomes of the response.
    pub(crate) fn keep(&mut self) {
        if let Self::Lease(leased) = self {
            leased.kept = leased.custody.take().and_then(|custody| custody.take());
        }
    }

    /// Notes that bytes moved just now.
    pub(crate) fn touch(&self) {
        if let Self::Lease(leased) = self {
            leased.lease.touch();
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
