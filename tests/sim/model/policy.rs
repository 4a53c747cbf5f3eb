//! A new policy, as a whole, and operators' settings for single keys.

use super::Id;
use super::Member;
use super::Model;
use super::Parked;
use super::Pool;
use super::Task;
use super::Unit;
use super::Who;
use governor_engine::id::{KeyId, LeaseId, PoolId};
use governor_engine::io::{EndCause, Reason, RejectReason, WaitEnd};
use governor_engine::policy::{Override, Policy};
use governor_engine::time::Instant;

impl Model {
    pub(super) fn obey(&mut self, policy: Policy) {
        self.node = policy.node;
        self.classes.iter_mut().for_each(|(_, present)| *present = false);
        for wanted in policy.classes {
            match self.classes.iter_mut().find(|(class, _)| class.name == wanted.name) {
                Some(known) => *known = (wanted, true),
                None => self.classes.push((wanted, true)),
            }
        }
        (self.org_policies, self.key_policies) = (policy.orgs, policy.keys);
        for pool in &mut self.pools {
            pool.present = false;
        }
        let now = self.now;
        for wanted in policy.pools {
            let at = self.pools.iter().position(|p| p.policy.name == wanted.name).unwrap_or_else(|| {
                self.pools.push(Pool {
                    policy: wanted.clone(),
                    present: true,
                    members: vec![],
                    traffic: vec![],
                    ends: vec![],
                    tail: Instant::ZERO,
                    typical: None,
                });
                self.pools.len() - 1
            });
            if self.pools[at].policy.anonymous != wanted.anonymous {
                self.pools[at].policy.anonymous = wanted.anonymous;
                self.identify_again(PoolId(u32::try_from(at).unwrap()));
            }
            let pool = &mut self.pools[at];
            pool.members.iter_mut().for_each(|m| m.present = false);
            for member in &wanted.members {
                match pool.members.iter_mut().find(|m| m.policy.name == member.name) {
                    Some(known) => (known.policy, known.present) = (member.clone(), true),
                    None => pool.members.push(Member {
                        policy: member.clone(),
                        present: true,
                        rate_limited: None,
                        overloaded: None,
                        ordered: None,
                        drained: false,
                    }),
                }
            }
            for kind in &wanted.traffic {
                if !pool.traffic.contains(&kind.name) {
                    pool.traffic.push(kind.name.clone());
                }
            }
            (pool.policy, pool.present) = (wanted, true);
            for member in &mut pool.members {
                let last = now.after(pool.policy.max_cooldown);
                member.rate_limited = member.rate_limited.map(|at| at.min(last)).filter(|at| *at > now);
                member.overloaded = member.overloaded.map(|at| at.min(last)).filter(|at| *at > now);
                member.ordered = member.ordered.filter(|at| *at > now);
            }
            // By a policy everything may change that sessions have as limits.
            let id = PoolId(u32::try_from(at).unwrap());
            self.announced_capacities.remove(&id);
            self.say_members(id, None);
        }
        for p in (0..self.pools.len()).filter(|p| !self.pools[*p].present).collect::<Vec<_>>() {
            let id = PoolId(u32::try_from(p).unwrap());
            let mut held: Vec<LeaseId> = self.leases.iter().filter(|l| l.pool == id).map(|l| l.id).collect();
            held.sort();
            for lease in held {
                self.end_lease(lease, EndCause::PoolGone);
            }
            for w in self.take_parked(|w| w.pool == id) {
                self.say_unparked(&w, WaitEnd::Gone);
                self.reject(w.session, w.request, RejectReason::UnknownPool);
            }
            self.say_members(id, None);
        }
    }

    /// What names no key gets the identity they share, or loses it. Nothing was named for that.
    fn identify_again(&mut self, pool: PoolId) {
        self.named.remove(&Unit::Key(Id::Anonymous(pool)));
        let again = |who: Who| if who.named().is_none() { self.identify(pool, None, who.org) } else { who };
        let leases: Vec<Who> = self.leases.iter().map(|l| if l.pool == pool { again(l.who) } else { l.who }).collect();
        let parked: Vec<Who> = self.parked.iter().map(|w| if w.pool == pool { again(w.who) } else { w.who }).collect();
        self.leases.iter_mut().zip(leases).for_each(|(lease, who)| lease.who = who);
        self.parked.iter_mut().zip(parked).for_each(|(parked, who)| parked.who = who);
    }

    /// An operator's setting for one key. One that is over already is none.
    pub(super) fn set_override(&mut self, key: KeyId, with: Option<Override>) {
        if with.is_some_and(|over| over.check().is_err()) {
            return;
        }
        match with.filter(|over| over.until.is_none_or(|until| until > self.now)) {
            None => drop(self.overrides.remove(&key)),
            Some(over) => {
                self.overrides.insert(key, over);
                if over.suspend {
                    let of_key = |w: &Parked| w.who.named() == Some(key) && !matches!(w.task, Task::Move(_));
                    for w in self.take_parked(of_key) {
                        self.say_unparked(&w, WaitEnd::Refused);
                        self.shed(&w, Reason::Suspended, None, None);
                    }
                }
            }
        }
    }
}
