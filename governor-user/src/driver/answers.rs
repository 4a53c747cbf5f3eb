//! Answers to the control API: questions about the state, and the two orders it may give.

use super::messages::Ask;
use super::view::{SessionView, View};
use crate::driver::Driver;
use crate::driver::operator::members;
use crate::process::clock;
use crate::records::audit::event;
use governor_engine::io::Input;
use governor_engine::snapshot::LeaseView;
use governor_engine::time::{Duration, Instant};
use std::collections::BTreeSet;

/// A decision is on disk after this at the latest, unless the disk refuses or is slow.
const ON_THE_WAY: Duration = Duration::from_secs(2);

/// Decisions copied for one answer at most.
const MOST_RECENT: usize = 10_000;

impl Driver {
    pub(super) fn answer(&mut self, ask: Ask, now: Instant) {
        // The caller may have gone: an answer without a receiver is dropped.
        match ask {
            Ask::View(answer) => drop(answer.send(self.view(&[], now))),
            Ask::Leases(answer) => {
                let leases = self.parts.engine.leases();
                drop(answer.send((self.view(&leases, now), leases)));
            }
            Ask::Explain(id, answer) => drop(answer.send(self.journal.find(id).cloned().map(|entry| (entry, now)))),
            Ask::Recent(answer) => {
                let recent = self.journal.recent(now, ON_THE_WAY, MOST_RECENT).cloned().collect();
                drop(answer.send((recent, now)));
            }
            Ask::Policy(policy, answer) => {
                self.parts.policy = (*policy).clone();
                self.limits_stale = true;
                self.parts.engine.handle_input(Input::PolicyChanged(policy), now);
                self.restore_members(now);
                answer.send(()).ok();
            }
            Ask::Bypass { on, for_seconds, by, answer } => {
                let wall = clock::wall_seconds();
                let before = self.parts.bypass.described(wall);
                let stored = self.parts.bypass.set(on, for_seconds, wall);
                self.parts.engine.handle_input(Input::Bypass { on }, now);
                let after = self.parts.bypass.described(wall);
                if before != after {
                    self.parts.audit.record(&event(&by, "bypass", "", &before, &after, None));
                }
                drop(answer.send(stored));
            }
            Ask::KeyOverrides(answer) => drop(answer.send(self.list_key_overrides())),
            Ask::Key { name, order, by, answer } => {
                drop(answer.send(self.order_key(&name, order.as_ref(), &by, now)));
            }
            Ask::Member { place, request, by, answer } => {
                drop(answer.send(self.order_member(place, &request, &by, now)));
            }
            Ask::Drain { on, reason, by, answer } => drop(answer.send(self.order_drain(on, reason, &by, now))),
            Ask::Record(event) => self.parts.audit.record(&event),
        }
    }

    fn view(&self, leases: &[LeaseView], now: Instant) -> View {
        let snapshot = self.parts.engine.snapshot();
        // A key that only has suspended leases counts in no pool.
        let active = snapshot.pools.iter().flat_map(|pool| pool.keys.iter().filter_map(|key| key.key));
        let keys: BTreeSet<_> = active.chain(leases.iter().filter_map(|lease| lease.key)).collect();
        let labels =
            keys.into_iter().filter_map(|key| self.labels.of(key).map(|label| (key, label.to_owned()))).collect();
        let engine = &self.parts.engine;
        let shown =
            snapshot.orgs.iter().flat_map(|org| org.class.into_iter().chain(org.tier.and_then(|(class, _)| class)));
        let classes = shown.filter_map(|class| Some((class, engine.class_name(class)?.to_owned()))).collect();
        let sessions = self
            .sessions
            .iter()
            .map(|(id, session)| {
                let leases = self.parts.engine.leases_of(*id);
                SessionView { id: *id, name: session.name.clone(), peer: session.peer, leases }
            })
            .collect();
        let wall = clock::wall_seconds();
        View {
            now,
            epoch: self.parts.epoch,
            snapshot,
            labels,
            classes,
            sessions,
            overload: self.overload(),
            bypass_remaining: self.parts.bypass.remaining(wall),
            draining: self.stop_by.is_some(),
            drain: self.parts.drain.order().map(|order| (order.clone(), wall.saturating_sub(order.since))),
            held: engine.lease_counts(),
            members: members::ids(engine).into_iter().map(|id| (id, self.member_note(id, wall))).collect(),
            node: self.parts.policy.node.clone(),
            awaited: self.awaited(),
            clients: self.clients.counts(),
            sites: self.sites.names(),
            records: [
                ("decisions", Some(self.parts.archive.health())),
                ("demand", self.parts.demand.health()),
                ("events", Some(self.parts.audit.health())),
            ]
            .into_iter()
            .filter_map(|(kind, health)| Some((kind, health?)))
            .collect(),
        }
    }
}
