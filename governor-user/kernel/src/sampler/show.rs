//! What a tick says: the state of the plane as an [`Observation`]. Reads no source.

use super::Sampler;
use crate::accounting::connections::Open;
use crate::accounting::findings::{self, Queues};
use crate::proc::cgroup::Group;
use crate::proc::own_namespaces::kernel_monotonic_ns;
use crate::proc::preflight;
use crate::proc::walk::LIMITS;
use crate::sources::Source;
use crate::tables::netstat;
use governor_observation::wording::counted;
use governor_observation::{Basis, CgroupView, ListenerView, NamespaceView, Observation, PinState, SourceView, Tier};
use std::{collections::BTreeMap, time::Instant};

impl Sampler {
    /// `owned` is what connections count under where they do not count under the owner.
    pub(super) fn observation(
        &self,
        open: Option<BTreeMap<u64, Open>>,
        owned: Option<&BTreeMap<u64, u64>>,
        now: Instant,
    ) -> Observation {
        let owner = |id| match self.cgroups.group(id) {
            Group::At(path) => Some(path),
            Group::Gone | Group::Unattributed => None,
        };
        let taken_ns = kernel_monotonic_ns();
        let failing = self.sources.views(now);
        let mut listeners = self.ledger.views(self.tier, taken_ns, owner, |of| self.holders.of(of.inode, of.cookie));
        let has_programs = !self.sources.fails(Source::Programs);
        for listener in listeners.iter_mut().filter(|_| has_programs) {
            listener.sojourn =
                listener.cookie.and_then(|cookie| self.waits.get(&cookie)).map(|(_, waits)| waits.view());
        }
        let inbound_basis = if self.sees_accepts { Basis::Acceptor } else { Basis::Owner };
        let mut unattributed = 0;
        let known = open.is_some();
        let cgroups = open.map(|mut open| {
            for id in owned.iter().flat_map(|owned| owned.keys()) {
                open.entry(*id).or_default();
            }
            let mut views = Vec::with_capacity(open.len());
            for (id, open) in open {
                let path = match self.cgroups.group(id) {
                    Group::At(path) => Some(path),
                    Group::Gone => None,
                    // The kernel shows no cgroup, as of some sockets of Multipath TCP: they have no folder either.
                    Group::Unattributed if id == 0 => None,
                    Group::Unattributed => {
                        unattributed += open.inbound + open.outbound;
                        continue;
                    }
                };
                let Open { inbound, outbound } = open;
                let inbound_owned = owned.map(|owned| owned.get(&id).copied().unwrap_or(0));
                views.push(CgroupView { id, path, inbound, outbound, inbound_basis, inbound_owned });
            }
            views.sort_by(|a, b| (a.path.is_none(), &a.path, a.id).cmp(&(b.path.is_none(), &b.path, b.id)));
            views
        });
        Observation {
            taken_ns,
            tier: self.tier,
            degraded: self.degraded(known, unattributed, &failing),
            unread: self.unread.iter().copied().collect(),
            walk: self.last_walk.clone(),
            namespaces: self.namespace_views(&listeners),
            closed: self.closed.views(),
            cgroups,
            health: self.health,
            hooks: self.hooks.clone(),
            listeners,
            pins: self.pins.clone(),
            failing,
        }
    }

    fn namespace_views(&self, listeners: &[ListenerView]) -> Vec<NamespaceView> {
        let view = |(netns, totals): (u64, netstat::Totals)| {
            let queues = Queues::of(listeners.iter().filter(|listener| listener.netns == netns));
            NamespaceView {
                netns,
                home: netns == self.namespaces.home(),
                generation: totals.generation,
                somaxconn: totals.somaxconn,
                counters: netstat::named(totals.all),
                recent: netstat::named(totals.recent),
                conntrack: totals.conntrack,
                findings: findings::read(&totals, &queues),
            }
        };
        self.counters.totals().map(view).collect()
    }

    fn degraded(&self, has_cgroups: bool, unattributed: u64, failing: &[SourceView]) -> Vec<String> {
        let mut lines = self.reasons.clone();
        if self.tier == Tier::Procfs {
            lines.push("connections per cgroup are unavailable on the procfs tier".to_owned());
        } else if let Some(reason) = self.cgroups.unavailable() {
            lines.push(reason.to_owned());
        } else if !has_cgroups && failing.is_empty() && !self.sources.fails(Source::Programs) {
            lines.push("connections per cgroup are unavailable: the hooks say why".to_owned());
        } else if unattributed > 0 {
            lines.push(
                "connections of processes in the v2 root are in no group: this host is not pure cgroup v2".to_owned(),
            );
        }
        if self.pins.state == PinState::Unavailable {
            lines.push(format!("counts end with the daemon: {}", self.pins.note));
        }
        lines.extend(self.unwatched.clone());
        let denied = self.namespaces.denied();
        if denied > 0 {
            let why = preflight::namespaces_obstacle().unwrap_or_else(|| "not permitted".to_owned());
            lines.push(format!("{denied} other network namespaces are not observed: {why}"));
        }
        if let Some(reason) = &self.last_walk.unreadable_reason {
            let blind = counted(
                self.last_walk.unreadable,
                "process cannot be read: its listeners show no pids and are not tuned, and its namespace may be missing",
                "processes cannot be read: their listeners show no pids and are not tuned, and their namespaces may be missing",
            );
            lines.push(format!("{blind}: {reason}"));
        }
        for left_out in &self.last_walk.left_out {
            let many = counted(left_out.processes, "process", "processes");
            let (user, budget) = (left_out.uid, LIMITS.per_user);
            lines.push(format!(
                "the walk over /proc left out {many} of user {user}, beyond {budget} descriptors: listeners of this user may show no pids"
            ));
        }
        lines.extend(failing.iter().map(|source| {
            let SourceView { problem, reason, effect, .. } = source;
            format!("{problem} ({reason}): {effect}")
        }));
        lines
    }
}
