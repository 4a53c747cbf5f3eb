//! News of members and operators' orders for them.

use crate::engine::Engine;
use crate::engine::announce::Report;
use crate::fairness::sets::Ledger;
use crate::id::{MemberId, PoolId, SessionId};
use crate::io::{MemberNews, MemberOrder};

impl Engine {
    pub(in crate::engine) fn hear(&mut self, session: SessionId, pool: PoolId, member: MemberId, news: MemberNews) {
        let ledger = Ledger { leases: &self.leases, parked: &self.parked, parties: &self.parties };
        let Some(known) = self.pools.get_mut(pool.index()) else { return };
        let cut = known.hear(member, news, self.now, ledger);
        self.announce_members(pool, Some(Report { session, member, cut }));
        self.wake(pool);
    }

    pub(in crate::engine) fn order_member(&mut self, pool: PoolId, member: MemberId, order: MemberOrder) {
        let ledger = Ledger { leases: &self.leases, parked: &self.parked, parties: &self.parties };
        let Some(known) = self.pools.get_mut(pool.index()) else { return };
        known.order_member(member, order, self.now, ledger);
        self.announce_members(pool, None);
        self.wake(pool);
    }
}
