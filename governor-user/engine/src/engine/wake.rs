//! Who waits, and who of them goes when something changed.

use crate::collections::slots::Slot;
use crate::engine::Engine;
use crate::engine::admission::Refusal;
use crate::id::PoolId;
use crate::identity::party::Holder;
use crate::io::{Output, RejectReason, WaitEnd};
use crate::pools::judge::Obstacle;
use crate::waiting::park::{Ask, Door, Errand, ParkId, Parked};
use crate::waiting::stand::Rank;

impl Engine {
    /// Lets a request wait.
    pub(in crate::engine) fn park(&mut self, ask: Ask, recorded: bool) {
        let id = ParkId(self.next_park);
        self.next_park += 1;
        if ask.moves() {
            self.parked_moves += 1;
        } else {
            self.parties.count(ask.holder);
        }
        let context = self.context_while_asking(&ask);
        self.announce(Output::Parked { context, request: ask.request });
        let (session, request, until, pool, errand) = (ask.session, ask.request, ask.until, ask.pool, ask.errand);
        let slot = self.parked.insert(Parked { id, ask, recorded, timer: 0 });
        self.requests.insert((session, request), slot);
        let parked = &mut self.parked;
        self.park_ends.insert((until, id), slot, |slot, place| parked[slot].timer = place);
        let of_session = self.sessions.entry(session);
        self.park_links.append(&mut of_session.parked, slot);
        of_session.waiting += 1;
        if let Errand::Move(lease) | Errand::Resume(lease) = errand
            && let Some(lease) = self.lease_mut(lease)
        {
            lease.waits = Some(slot);
        }
        let ask = &self.parked[slot].ask;
        let holder = ask.holder;
        self.pools[pool.index()].park(slot, id, ask, &self.parties);
        self.guarantee(pool, holder);
    }

    /// A principal with a floor holds or awaits something more. If the floors now exceed what there is to share they
    /// are scaled down, and what others are no longer sure of may be enough for one who waits.
    pub(in crate::engine) fn guarantee(&mut self, pool: PoolId, holder: Holder) {
        let by_org = self.pools[pool.index()].sets.by_org;
        if by_org && self.parties.terms(holder, holder.unit(by_org)).floor > 0 {
            self.wake(pool);
        }
    }

    /// Takes a request out of the queues, for whatever comes next. The caller answers it and owns its set and holder.
    pub(in crate::engine) fn unpark(&mut self, slot: Slot) -> Option<Parked> {
        let waits = self.parked.get(slot)?;
        let ask = &waits.ask;
        self.pools[ask.pool.index()].unpark(slot, ask, &self.parties);
        let gone = self.parked.remove(slot)?;
        let (ask, parked) = (&gone.ask, &mut self.parked);
        self.park_ends.remove(slot, gone.timer, |slot, place| parked[slot].timer = place);
        self.requests.remove(&(ask.session, ask.request));
        if let Some(session) = self.sessions.get_mut(&ask.session) {
            self.park_links.remove(&mut session.parked, slot);
            session.waiting -= 1;
        }
        if ask.moves() {
            self.parked_moves -= 1;
        } else {
            self.parties.discount(ask.holder);
        }
        if let Errand::Move(lease) | Errand::Resume(lease) = ask.errand
            && let Some(lease) = self.lease_mut(lease)
        {
            lease.waits = None;
        }
        Some(gone)
    }

    /// A parked request is no more; nothing is answered.
    pub(in crate::engine) fn vanish(&mut self, slot: Slot, end: WaitEnd) -> Option<Ask> {
        let Parked { ask, .. } = self.unpark(slot)?;
        self.announce_unparked(&ask, end);
        self.forget(&ask);
        // What it wanted is there to be shared by those who still wait.
        self.wake(ask.pool);
        Some(ask)
    }

    /// A parked request is over; its session receives the reason.
    pub(in crate::engine) fn reject_parked(&mut self, slot: Slot, why: RejectReason) {
        if let Some(ask) = self.vanish(slot, WaitEnd::Gone) {
            self.reject(ask.session, ask.request, why);
        }
    }

    /// A parked request's wait is spent: refused on the numbers of now.
    pub(in crate::engine) fn give_up(&mut self, slot: Slot) {
        let Some(Parked { ask, .. }) = self.unpark(slot) else { return };
        let judged = self.pools[ask.pool.index()].judge(&ask, &self.parties);
        let refusal = self.refusal(&ask, judged.err().unwrap_or(Obstacle::Exhausted));
        self.wake(ask.pool);
        self.refuse_parked(ask, refusal);
    }

    /// Refuses a request that was taken out of the queues.
    pub(in crate::engine) fn refuse_parked(&mut self, ask: Ask, refusal: Refusal) {
        self.announce_unparked(&ask, WaitEnd::Refused);
        self.shed(ask, refusal);
    }

    /// Grants to parked requests of a pool until none can go: most deserving first.
    pub(in crate::engine) fn grant_parked(&mut self, pool: PoolId) {
        while let Some(slot) = self.most_deserving(pool) {
            let Some(Parked { ask, recorded, .. }) = self.unpark(slot) else { return };
            if self.bypass {
                self.announce_unparked(&ask, WaitEnd::Granted);
                self.let_pass(ask);
                continue;
            }
            let pool = &self.pools[ask.pool.index()];
            if ask.deadline.is_some_and(|deadline| !pool.service.fits(self.now, deadline)) {
                // Its client would be gone before the work is done: the slot is better used by another.
                let refusal = self.refusal(&ask, Obstacle::Exhausted);
                self.refuse_parked(ask, refusal);
                continue;
            }
            match pool.judge(&ask, &self.parties) {
                Ok(member) => {
                    if !recorded {
                        self.observe_share(&ask);
                    }
                    self.announce_unparked(&ask, WaitEnd::Granted);
                    self.grant(ask, member);
                }
                Err(obstacle) => {
                    debug_assert!(false, "the most deserving can go: {obstacle:?}");
                    let refusal = self.refusal(&ask, obstacle);
                    self.refuse_parked(ask, refusal);
                }
            }
        }
    }

    /// The request that goes next in a pool, if any can: those that move, then those below their floor, then the least
    /// for its weight, then who waits longest.
    pub(in crate::engine) fn most_deserving(&self, pool: PoolId) -> Option<Slot> {
        let pool = &self.pools[pool.index()];
        let mut best: Option<((bool, Rank, ParkId), Slot)> = None;
        for set in pool.sets.waiting() {
            for lane in set.lanes() {
                let Some(head) = lane.head(&pool.sets.standings) else { continue };
                let rank = (lane.key.door != Door::Move, head.rank, head.park);
                if best.is_some_and(|(best, _)| best <= rank) {
                    continue;
                }
                if self.bypass || pool.lane_can_go(set, lane.key, &head, &self.parties) {
                    best = Some((rank, head.slot));
                }
            }
        }
        best.map(|(_, slot)| slot)
    }
}
