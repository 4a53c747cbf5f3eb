//! Orders beside the answers: whom each concerns, and what changed since it was announced last.

use super::super::{Lease, Model, Parked, Task, Who, index};
use governor_engine::id::{MemberId, PoolId, SessionId};
use governor_engine::io::{Context, CoolingCause, EndCause, MemberState, Output, WaitEnd};
use governor_engine::time::{Duration, Instant};

/// A member as it was announced last.
pub(in crate::model) type ShownMember = (MemberState, Option<(CoolingCause, Instant)>);

impl Model {
    pub(in crate::model) fn context(
        &self,
        session: SessionId,
        pool: PoolId,
        who: Who,
        member: Option<MemberId>,
    ) -> Context {
        Context { at: self.now, session, pool, key: who.named(), org: who.org, class: self.class(who), member }
    }

    pub(in crate::model) fn context_of(&self, lease: &Lease) -> Context {
        self.context(lease.session, lease.pool, lease.who, lease.member)
    }

    /// What moves is still on its old member.
    pub(in crate::model) fn context_asking(&self, w: &Parked) -> Context {
        let old = match w.task {
            Task::Move(id) => self.leases.iter().find(|l| l.id == id).and_then(|l| l.member),
            Task::New | Task::Resume(_) => None,
        };
        self.context(w.session, w.pool, w.who, old)
    }

    pub(in crate::model) fn say_unparked(&mut self, w: &Parked, end: WaitEnd) {
        let (context, request, waited) = (self.context_asking(w), w.request, self.now.since(w.arrived));
        self.out.push(Output::Unparked { context, request, end, waited });
    }

    pub(in crate::model) fn say_ended(&mut self, lease: &Lease, cause: EndCause) {
        let held = if lease.suspended { Duration::ZERO } else { self.now.since(lease.granted) };
        self.out.push(Output::Ended { context: self.context_of(lease), lease: lease.id, cause, held });
    }

    /// The requests that these are, in order of arrival, wait no longer and get no answer.
    pub(in crate::model) fn take_parked(&mut self, whose: impl Fn(&Parked) -> bool) -> Vec<Parked> {
        let (taken, rest) = std::mem::take(&mut self.parked).into_iter().partition(whose);
        self.parked = rest;
        taken
    }

    /// Every member of a pool whose state, or the cause or end of its cool-down, is another than announced; then the capacity.
    pub(in crate::model) fn say_members(&mut self, pool: PoolId, by: Option<(SessionId, MemberId, Option<Duration>)>) {
        for m in 0..self.pools[index(pool.0)].members.len() {
            let id = MemberId(u32::try_from(m).unwrap());
            let shown = self.shown_member(pool, id);
            if self.announced_members.insert((pool, id), shown) == Some(shown) {
                continue;
            }
            let of_report = by.filter(|(_, member, _)| *member == id);
            self.out.push(Output::MemberChanged {
                at: self.now,
                session: of_report.map(|(session, _, _)| session),
                pool,
                member: id,
                state: shown.0,
                cooling: shown.1,
                cut: of_report.and_then(|(_, _, cut)| cut),
            });
        }
        let capacity = if self.pools[index(pool.0)].present { self.capacity(pool, &None) } else { 0 };
        if self.announced_capacities.insert(pool, capacity) != Some(capacity) {
            self.out.push(Output::LimitsChanged { at: self.now, pool, capacity });
        }
    }

    fn shown_member(&self, pool: PoolId, id: MemberId) -> ShownMember {
        let member = &self.pools[index(pool.0)].members[index(id.0)];
        let ends = [
            (member.rate_limited, CoolingCause::RateLimited),
            (member.overloaded, CoolingCause::Overloaded),
            (member.ordered, CoolingCause::Operator),
        ];
        // Of two that end together the later in this list is shown.
        let last = ends.into_iter().filter_map(|(at, cause)| Some((at?, cause))).max_by_key(|(at, _)| *at);
        let state = if member.drained || member.policy.draining || !member.present {
            MemberState::Draining
        } else if member.policy.slots == 0 {
            MemberState::Off
        } else if let Some((until, _)) = last.filter(|_| !self.open(pool, id)) {
            MemberState::Cooling { until }
        } else {
            MemberState::Up
        };
        (state, last.map(|(at, cause)| (cause, at)))
    }

    pub(in crate::model) fn say_mode(&mut self) {
        let mode = (self.bypass, self.draining, self.level);
        if self.announced_mode != mode {
            self.announced_mode = mode;
            let (bypass, draining, level) = mode;
            self.out.push(Output::ModeChanged { at: self.now, bypass, draining, level });
        }
    }
}
