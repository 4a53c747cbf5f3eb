//! Leases that were revoked: the last few thousand, so that their holders cannot bring them back by registering them.

use crate::id::LeaseId;
use crate::policy::REVOKED_REMEMBERED;
use std::collections::{BTreeSet, VecDeque};

/// The last [`REVOKED_REMEMBERED`] of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Revoked {
    order: VecDeque<LeaseId>,
    known: BTreeSet<LeaseId>,
}

impl Revoked {
    pub(crate) fn remember(&mut self, id: LeaseId) {
        if !self.known.insert(id) {
            return;
        }
        self.order.push_back(id);
        if self.order.len() > REVOKED_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    pub(crate) fn contains(&self, id: LeaseId) -> bool {
        self.known.contains(&id)
    }
}
