//! Leases of the previous run: counted as their sessions' were, until their holders register them, ask for something
//! new without having done so, or the grace is over. Then their slots go to parked requests.

use crate::driver::Driver;
use crate::driver::recording::LEASES_PER_ITERATION;
use crate::driver::restart::checkpoint::{Former, FormerLease};
use crate::driver::sessions::translate;
use crate::naming;
use crate::process::clock;
use crate::transport::peer::Peer;
use governor_engine::id::{LeaseId, SessionId};
use governor_engine::io::{Input, Kind, Output, Priority};
use governor_engine::snapshot::LeaseView;
use governor_engine::time::Instant;
use std::collections::BTreeMap;

/// Older ids that a lease is known by, at most: one for each restart in a row whose answer its holder never read.
const MOST_ALIASES: usize = 4;

/// What is left of the previous run.
#[derive(Debug, Default)]
pub(crate) struct Formers {
    /// Live leases by older ids; those that ended stay until the next checkpoint.
    leases: BTreeMap<u64, LeaseId>,
    /// Sessions that stand for those of the previous run: whose, and its number then.
    sessions: BTreeMap<SessionId, (Peer, u64)>,
    /// Older ids of leases that live, newest first.
    aliases: BTreeMap<LeaseId, Vec<u64>>,
}

impl Formers {
    /// The lease of this run that stands for one of the previous.
    pub(crate) fn lease(&self, old: u64) -> Option<LeaseId> {
        self.leases.get(&old).copied()
    }

    /// A holder knows this lease by an older id until it has read the answer with the new one. A daemon that is killed
    /// before that must recognise the old id, or the lease would count twice.
    pub(crate) fn alias(&mut self, lease: LeaseId, older: u64) {
        // An id that stands for another lease stays with it: the claim of a stranger must not take it away.
        if older == lease.0 || *self.leases.entry(older).or_insert(lease) != lease {
            return;
        }
        let of = self.aliases.entry(lease).or_default();
        if !of.contains(&older) {
            of.insert(0, older);
            of.truncate(MOST_ALIASES);
        }
    }

    /// Forgets the ids of leases that have ended.
    fn forget(&mut self, lives: impl Fn(LeaseId) -> bool) {
        self.leases.retain(|_, lease| lives(*lease));
        self.aliases.retain(|lease, _| lives(*lease));
    }

    /// The peer of a session of the previous run.
    pub(crate) fn peer(&self, session: SessionId) -> Option<Peer> {
        self.sessions.get(&session).map(|(peer, _)| *peer)
    }

    /// The session that stands for the one a proxy had in the previous run.
    pub(crate) fn of(&self, peer: Peer, number: u64) -> Option<SessionId> {
        let mine = |(_, (of, was)): &(&SessionId, &(Peer, u64))| peer.is_same_process(of) && *was == number;
        self.sessions.iter().find(mine).map(|(session, _)| *session)
    }
}

/// A walk over all leases for a checkpoint. Leases that change meanwhile make the next checkpoint due.
#[derive(Debug, Default)]
pub(crate) struct HeldWalk {
    /// Slot of the lease table to go on with; `None` at the start and at the end.
    cursor: Option<u32>,
    sessions: BTreeMap<SessionId, Former>,
    /// Time spent so far.
    cost: std::time::Duration,
}

impl Driver {
    /// Counts what the previous run left.
    pub(crate) fn restore_leases(&mut self, formers: Vec<Former>, now: Instant) {
        for (former, session) in formers.into_iter().zip((1..).map(SessionId)) {
            for lease in &former.leases {
                let Some(mut input) = translate::held(&self.parts.engine, session, &lease.held()) else { continue };
                input.site = self.sites.id(lease.site.as_deref());
                input.restored = true;
                self.parts.engine.handle_input(Input::Register(input), now);
                while let Some(output) = self.parts.engine.poll_output() {
                    if let Output::Registered { new: Some(new), .. } = output {
                        for older in lease.also.iter().rev().chain([&lease.id]) {
                            self.formers.alias(new.lease, *older);
                        }
                    }
                }
            }
            self.formers.sessions.insert(session, (former.peer, former.session));
            self.parts.engine.handle_input(Input::SessionLost { session }, now);
        }
        let leases = self.awaited();
        if leases > 0 {
            // By their ids of this run, in which they are registered: it may be as short.
            let held = self.held_now();
            self.parts.checkpoint.put(held, std::time::Duration::ZERO, now);
            tracing::info!(leases, "leases of the life before count until their holders are back");
        }
    }

    /// Leases of the previous run whose holders have not come back yet.
    pub(crate) fn awaited(&self) -> u32 {
        self.formers.sessions.keys().map(|session| self.parts.engine.leases_of(*session)).sum()
    }

    /// A proxy goes on with new work: what it had in the previous run and has not registered has ended.
    pub(crate) fn end_former(&mut self, session: SessionId, now: Instant) {
        let former = self.sessions.get_mut(&session).and_then(|state| state.former.take());
        if let Some(session) = former {
            self.parts.engine.handle_input(Input::SessionGone { session }, now);
        }
    }

    /// Keeps what is held for the next run, if it is time: in steps over as many iterations as the leases need.
    pub(crate) fn checkpoint(&mut self, now: Instant) {
        let Some(mut walk) = self.walk.take() else {
            if self.parts.checkpoint.due().is_some_and(|due| now >= due) {
                self.parts.checkpoint.begin();
                self.walk = Some(HeldWalk::default());
                self.checkpoint(now);
            }
            return;
        };
        self.walk_on(&mut walk, LEASES_PER_ITERATION);
        let end = clock::now();
        walk.cost = walk.cost.saturating_add(end.since(now));
        if walk.cursor.is_some() {
            self.walk = Some(walk);
        } else {
            let engine = &self.parts.engine;
            self.formers.forget(|lease| engine.holder(lease).is_some());
            self.parts.checkpoint.put(walk.sessions.into_values().collect(), walk.cost, end);
        }
    }

    /// What every session holds.
    pub(crate) fn held_now(&self) -> Vec<Former> {
        let mut walk = HeldWalk::default();
        self.walk_on(&mut walk, u32::MAX);
        walk.sessions.into_values().collect()
    }

    fn walk_on(&self, walk: &mut HeldWalk, slots: u32) {
        let (leases, next) = self.parts.engine.leases_from(walk.cursor.unwrap_or(0), slots);
        // What is suspended holds no slot.
        for lease in leases.filter(|lease| !lease.suspended) {
            let live = self.sessions.get(&lease.session).map(|state| (state.peer, lease.session.0));
            let Some((peer, session)) = live.or_else(|| self.formers.sessions.get(&lease.session).copied()) else {
                continue;
            };
            let new = || Former { session, peer, leases: Vec::new() };
            let of = walk.sessions.entry(lease.session).or_insert_with(new);
            of.leases.push(FormerLease { site: self.sites.name(lease.site), ..self.former_lease(&lease) });
        }
        walk.cursor = next;
    }

    fn former_lease(&self, lease: &LeaseView) -> FormerLease {
        let engine = &self.parts.engine;
        FormerLease {
            id: lease.lease.0,
            also: self.formers.aliases.get(&lease.lease).cloned().unwrap_or_default(),
            pool: engine.pool_name(lease.pool).unwrap_or_default().to_owned(),
            member: lease.member.and_then(|member| engine.member_name(lease.pool, member)).map(str::to_owned),
            key: lease.key.map(|key| naming::hash(key).to_string()),
            org: lease.org.map(|org| naming::org_hash(org).to_string()),
            class: lease.class.and_then(|class| engine.class_name(class)).map(str::to_owned),
            traffic: lease.traffic.and_then(|traffic| engine.traffic_name(lease.pool, traffic)).map(str::to_owned),
            site: None,
            priority: match lease.priority {
                Priority::Critical => 1,
                Priority::Normal => 0,
                Priority::Sheddable => -1,
            },
            reattach: lease.kind == Kind::Reattach,
            ends_with_client: lease.ends_with_client,
            age_ms: naming::millis(clock::now().since(lease.granted)),
        }
    }
}
