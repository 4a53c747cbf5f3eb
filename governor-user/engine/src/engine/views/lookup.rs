//! Small questions a caller's loop asks all the time: counts and names behind an id. None changes anything; each costs
//! a look-up, not a view.

use crate::engine::Engine;
use crate::id::SetId;
use crate::id::{ClassId, KeyId, LeaseId, MemberId, OrgId, PoolId, SessionId, TrafficId};
use crate::policy::NodePolicy;
use crate::snapshot::CoolingCause;
use crate::time::Instant;

impl Engine {
    /// The limits of the node.
    #[must_use]
    pub fn node_policy(&self) -> &NodePolicy {
        &self.node
    }

    /// The pools in policy order.
    pub fn pools(&self) -> impl Iterator<Item = PoolId> + '_ {
        self.order.iter().copied()
    }

    /// The pool of this name.
    #[must_use]
    pub fn pool_id(&self, name: &str) -> Option<PoolId> {
        self.pools.iter().find(|pool| pool.present && pool.policy.name == name).map(|pool| pool.id)
    }

    /// The name of a pool, also of one that left the policy.
    #[must_use]
    pub fn pool_name(&self, pool: PoolId) -> Option<&str> {
        self.pools.get(pool.index()).map(|pool| pool.policy.name.as_str())
    }

    /// The members of a pool in policy order; none if there is no such pool.
    pub fn members(&self, pool: PoolId) -> impl Iterator<Item = MemberId> + '_ {
        self.pools.get(pool.index()).into_iter().flat_map(|pool| pool.order.iter().copied())
    }

    /// The member of this name.
    #[must_use]
    pub fn member_id(&self, pool: PoolId, name: &str) -> Option<MemberId> {
        let pool = self.pools.get(pool.index())?;
        pool.order.iter().copied().find(|id| pool.member(*id).is_some_and(|member| member.policy.name == name))
    }

    /// The name of a member, also of one that left the policy.
    #[must_use]
    pub fn member_name(&self, pool: PoolId, member: MemberId) -> Option<&str> {
        Some(self.pools.get(pool.index())?.member(member)?.policy.name.as_str())
    }

    /// The kind of traffic of this name.
    #[must_use]
    pub fn traffic_id(&self, pool: PoolId, name: &str) -> Option<TrafficId> {
        self.pools.get(pool.index())?.traffic.find(name)
    }

    /// The name of a kind of traffic.
    #[must_use]
    pub fn traffic_name(&self, pool: PoolId, traffic: TrafficId) -> Option<&str> {
        Some(self.pools.get(pool.index())?.traffic.get(traffic)?.policy.name.as_str())
    }

    /// C of a pool over all members that count now.
    #[must_use]
    pub fn capacity(&self, pool: PoolId) -> Option<u32> {
        let pool = self.pools.get(pool.index()).filter(|pool| pool.present)?;
        Some(pool.sets.get(SetId::EVERYBODY).capacity)
    }

    /// What a member cools for and until when, whether it stays selectable or not; `None` if it does not cool.
    #[must_use]
    pub fn cooling(&self, pool: PoolId, member: MemberId) -> Option<(CoolingCause, Instant)> {
        let member = self.pools.get(pool.index())?.present_member(member)?;
        Some((member.cooling_cause()?, member.cooling_until()?))
    }

    /// Slots of a member for ordinary requests, whatever its state.
    #[must_use]
    pub fn ordinary_slots(&self, pool: PoolId, member: MemberId) -> Option<u32> {
        Some(self.pools.get(pool.index())?.present_member(member)?.ordinary_slots())
    }

    /// Slots of a member, reserve included, whatever its state.
    #[must_use]
    pub fn slots(&self, pool: PoolId, member: MemberId) -> Option<u32> {
        Some(self.pools.get(pool.index())?.present_member(member)?.policy.slots)
    }

    /// Counted requests on the node, granted or parked (B1).
    #[must_use]
    pub fn counted(&self) -> u32 {
        self.node_counted()
    }

    /// Whether every `Acquire` passes at once.
    #[must_use]
    pub fn is_bypassed(&self) -> bool {
        self.bypass
    }

    /// Nothing is held and nothing waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.leases.is_empty() && self.parked.is_empty()
    }

    /// Whether a key holds or awaits anything in any pool.
    #[must_use]
    pub fn is_active(&self, key: KeyId) -> bool {
        self.parties.find_key(key).is_some()
    }

    /// Who holds a lease.
    #[must_use]
    pub fn holder(&self, lease: LeaseId) -> Option<SessionId> {
        self.lease(lease).map(|lease| lease.session)
    }

    /// The key of a live lease, suspended or not.
    #[must_use]
    pub fn key_of(&self, lease: LeaseId) -> Option<KeyId> {
        self.parties.key_of(self.lease(lease)?.holder)
    }

    /// The org of a live lease, suspended or not.
    #[must_use]
    pub fn org_of(&self, lease: LeaseId) -> Option<OrgId> {
        self.parties.org_of(self.lease(lease)?.holder)
    }

    /// The pool of a live lease.
    #[must_use]
    pub fn pool_of(&self, lease: LeaseId) -> Option<PoolId> {
        self.lease(lease).map(|lease| lease.pool)
    }

    /// Live leases, and how many of them are suspended.
    #[must_use]
    pub fn lease_counts(&self) -> (u32, u32) {
        (u32::try_from(self.leases.len()).unwrap_or(u32::MAX), self.suspended)
    }

    /// Leases a session holds, suspended ones too.
    #[must_use]
    pub fn leases_of(&self, session: SessionId) -> u32 {
        self.sessions.get(&session).map_or(0, |session| session.held)
    }

    /// The class of this name.
    #[must_use]
    pub fn class_id(&self, name: &str) -> Option<ClassId> {
        self.parties.classes.find(name)
    }

    /// The name of a class, also of one that left the policy.
    #[must_use]
    pub fn class_name(&self, class: ClassId) -> Option<&str> {
        self.parties.classes.name(class)
    }
}
