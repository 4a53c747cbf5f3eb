//! Announces what changed: each order once, with whom it concerns. Decides nothing.

use crate::engine::Engine;
use crate::id::{MemberId, PoolId, SessionId};
use crate::identity::party::Holder;
use crate::io::{Context, EndCause, Output, WaitEnd};
use crate::leases::lease::Lease;
use crate::time::Duration;
use crate::waiting::park::{Ask, Errand};

/// A session's report about a member, as far as an order says who changed it and how.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Report {
    pub(in crate::engine) session: SessionId,
    pub(in crate::engine) member: MemberId,
    /// The time to its reset that it named, where the pool's longest cool-down cut it.
    pub(in crate::engine) cut: Option<Duration>,
}

impl Engine {
    /// Puts an order at the end of the stream.
    pub(in crate::engine) fn announce(&mut self, order: Output) {
        self.outputs.push_back(order);
    }

    /// Whom a lease concerns.
    pub(in crate::engine) fn context_of(&self, lease: &Lease) -> Context {
        self.context(lease.session, lease.pool, lease.holder, lease.member)
    }

    /// Whom a request concerns that got a slot on this member.
    pub(in crate::engine) fn context_for(&self, ask: &Ask, member: Option<MemberId>) -> Context {
        self.context(ask.session, ask.pool, ask.holder, member)
    }

    /// Whom a request concerns that has no answer yet.
    pub(in crate::engine) fn context_while_asking(&self, ask: &Ask) -> Context {
        let moves_from = match ask.errand {
            Errand::Move(lease) => self.lease(lease).and_then(|lease| lease.member),
            Errand::New { .. } | Errand::Resume(_) => None,
        };
        self.context_for(ask, moves_from)
    }

    fn context(&self, session: SessionId, pool: PoolId, holder: Holder, member: Option<MemberId>) -> Context {
        let parties = &self.parties;
        let (key, org, class) = (parties.key_of(holder), parties.org_of(holder), parties.class_of(holder));
        Context { at: self.now, session, pool, key, org, class, member }
    }

    /// A request waits no longer.
    pub(in crate::engine) fn announce_unparked(&mut self, ask: &Ask, end: WaitEnd) {
        let (context, request, waited) = (self.context_while_asking(ask), ask.request, self.now.since(ask.arrived));
        self.announce(Output::Unparked { context, request, end, waited });
    }

    /// A lease is over. The caller has taken it off every count, and its holder is still known.
    pub(in crate::engine) fn announce_end(&mut self, lease: &Lease, cause: EndCause) {
        let held = self.held_for(lease);
        self.announce(Output::Ended { context: self.context_of(lease), lease: lease.id, cause, held });
    }

    /// How long a lease has held its slot.
    pub(in crate::engine) fn held_for(&self, lease: &Lease) -> Duration {
        if lease.suspended { Duration::ZERO } else { self.now.since(lease.granted) }
    }

    /// Announces the members of a pool whose state changed since the last time, and the pool's capacity if it did.
    pub(in crate::engine) fn announce_members(&mut self, pool: PoolId, by: Option<Report>) {
        let at = self.now;
        let Some(known) = self.pools.get_mut(pool.index()) else { return };
        for (member, change) in known.changed_members() {
            let of_report = by.filter(|report| report.member == member);
            self.outputs.push_back(Output::MemberChanged {
                at,
                session: of_report.map(|report| report.session),
                pool,
                member,
                state: change.state,
                cooling: change.cooling,
                cut: of_report.and_then(|report| report.cut),
            });
        }
        if let Some(capacity) = known.changed_capacity() {
            self.outputs.push_back(Output::LimitsChanged { at, pool, capacity });
        }
    }

    /// Announces the node's switches and level if one of them changed.
    pub(in crate::engine) fn announce_mode(&mut self) {
        let mode = (self.bypass, self.draining, self.level);
        if std::mem::replace(&mut self.announced_mode, mode) != mode {
            let (bypass, draining, level) = mode;
            self.announce(Output::ModeChanged { at: self.now, bypass, draining, level });
        }
    }
}
