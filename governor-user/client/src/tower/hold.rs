//! What a request holds on its way: a lease, a place among the long-lived exempt streams, or nothing. Its drop gives it
//! back.

use super::custody::Keep;
use crate::lease::refused::Refused;
use governor_common::wire::reply::Origin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What a response holds until its body ends.
#[derive(Debug)]
pub(super) enum Hold {
    Lease(Keep),
    #[expect(dead_code, reason = "held for its drop")]
    ExemptStream(ExemptStream),
    Nothing,
}

impl Hold {
    /// Bytes moved.
    pub(super) fn touch(&self) {
        if let Self::Lease(lease) = self {
            lease.touch();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Lease(lease) => lease.is_empty(),
            Self::ExemptStream(_) => false,
            Self::Nothing => true,
        }
    }
}

/// One long-lived exempt stream, counted until it is dropped.
#[derive(Debug)]
pub(super) struct ExemptStream(Arc<AtomicU32>);

impl ExemptStream {
    pub(super) fn enter(streams: &Arc<AtomicU32>, cap: u32) -> Result<Self, Refused> {
        let grow = |now: u32| (now < cap).then(|| now + 1);
        match streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow) {
            Ok(_) => Ok(Self(streams.clone())),
            Err(_) => {
                let detail = format!("this node serves its limit of {cap} exempt streams");
                let refused = Refused::local(529, Origin::Node, "exempt_stream_cap", Duration::from_secs(1), detail);
                Err(refused.with_quota(cap))
            }
        }
    }
}

impl Drop for ExemptStream {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
