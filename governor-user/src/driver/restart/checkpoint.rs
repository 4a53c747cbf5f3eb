//! The leases as they were last, in the state folder. After a crash the next run of the daemon counts them until their
//! holders say which of them still run, so that it does not hand out slots that are in use. A thread of its own writes,
//! and the newest is what counts: one that it has no time for is left out. Knows orders, and no engine.

use crate::state::{LEASES, StateDir};
use crate::transport::peer::Peer;
use governor_common::wire::KeyHash;
use governor_common::wire::request::{HeldLease, Kind, Priority};
use governor_engine::io::Output;
use governor_engine::time::{Duration, Instant};
use governor_kernel::proc::own_namespaces::{boot_id, process_scope};
use serde::{Deserialize, Serialize};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Changes are batched for this long.
const EVERY: Duration = Duration::from_millis(250);

/// At most one part in so many of the time goes into checkpoints, however many leases there are.
const SHARE: u64 = 50;

/// What one session held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Former {
    /// Its number, by which its proxy names it when it is back.
    pub session: u64,
    /// Who it was.
    pub peer: Peer,
    /// Its leases.
    pub leases: Vec<FormerLease>,
}

/// One lease. Written often, so what is usual is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerLease {
    /// Its id in that run.
    pub id: u64,
    /// Older ids by which its holder may still know it, newest first: the answer that names the new one may be lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<u64>,
    /// Pool name.
    pub pool: String,
    /// Member name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Keyed hash, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Org, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub org: Option<String>,
    /// Class name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Kind of traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<String>,
    /// Where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// −1 sheddable, 0 normal, 1 critical.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i8,
    /// A re-attach.
    #[serde(default, skip_serializing_if = "is_false")]
    pub reattach: bool,
    /// It ends with its client.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ends_with_client: bool,
    /// Milliseconds since it was granted.
    pub age_ms: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields so")]
fn is_zero(number: &i8) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields so")]
fn is_false(flag: &bool) -> bool {
    !flag
}

impl FormerLease {
    /// As its holder would register it.
    #[must_use]
    pub fn held(&self) -> HeldLease {
        HeldLease {
            lease: self.id,
            pool: self.pool.clone(),
            key: self.key.as_deref().and_then(hash),
            org: self.org.as_deref().and_then(hash),
            class: self.class.clone(),
            traffic: self.traffic.clone(),
            member: self.member.clone(),
            site: self.site.clone(),
            priority: match self.priority {
                ..0 => Priority::Sheddable,
                0 => Priority::Normal,
                1.. => Priority::Critical,
            },
            kind: if self.reattach { Kind::Reattach } else { Kind::Ordinary },
            ends_with_client: self.ends_with_client,
            age_ms: self.age_ms,
            ..HeldLease::default()
        }
    }
}

fn hash(digits: &str) -> Option<KeyHash> {
    u128::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 32).map(|hash| KeyHash(hash.to_be_bytes()))
}

#[derive(Serialize, Deserialize)]
struct Content {
    boot: String,
    /// What the peers' pids are relative to; absent in files of earlier versions.
    #[serde(default)]
    scope: Option<String>,
    sessions: Vec<Former>,
}

/// What the previous run left, of processes that still live. Never fails: without it, the first moments of this run may
/// grant what is in use, which registration shows at once.
#[must_use]
pub fn load(state: &StateDir) -> Vec<Former> {
    let Some(content) = state.load::<Content>(LEASES) else { return Vec::new() };
    if content.boot != boot_id() {
        return Vec::new();
    }
    let is_ours = content.scope.is_none_or(|scope| scope == process_scope());
    let readable = |former: Former| Former { peer: former.peer.as_read(is_ours), ..former };
    content.sessions.into_iter().map(readable).filter(|former| former.peer.may_live()).collect()
}

/// Where checkpoints go.
#[derive(Debug)]
pub struct Checkpoint {
    /// `None` once dropped.
    contents: Option<SyncSender<Vec<Former>>>,
    writer: Option<JoinHandle<()>>,
    due: Option<Instant>,
    next: Instant,
}

impl Checkpoint {
    /// Into this state folder.
    #[must_use]
    pub fn open(state: &StateDir) -> Self {
        let (contents, taken) = sync_channel::<Vec<Former>>(1);
        let state = state.clone();
        let write = move || {
            let mut failing = false;
            let (boot, scope) = (boot_id(), Some(process_scope()));
            for sessions in taken {
                let content = Content { boot: boot.clone(), scope: scope.clone(), sessions };
                let written =
                    serde_json::to_vec(&content).map_err(Into::into).and_then(|bytes| state.store_now(LEASES, &bytes));
                // Once an outage: what cannot be kept is kept the next time.
                if let (Err(error), false) = (&written, failing) {
                    tracing::warn!("leases cannot be stored for the next run: {error}");
                }
                failing = written.is_err();
            }
        };
        let writer = std::thread::Builder::new().name("checkpoint".to_owned()).spawn(write).ok();
        Self { contents: Some(contents), writer, due: None, next: Instant::ZERO }
    }

    /// Takes an order: leases that changed make the next checkpoint due.
    pub fn take(&mut self, order: &Output) {
        match order {
            Output::Began(grant) | Output::Resumed(grant) | Output::Moved { grant, .. } => self.touch(grant.context.at),
            Output::Suspended { context, .. } | Output::Ended { context, .. } => self.touch(context.at),
            Output::SessionEnded { at, .. } => self.touch(*at),
            Output::Registered { new: Some(new), .. } => self.hurry(new.context.at),
            Output::Passed { .. }
            | Output::Registered { new: None, .. }
            | Output::UnknownLease { .. }
            | Output::ClientGone { .. }
            | Output::Parked { .. }
            | Output::Unparked { .. }
            | Output::Refused { .. }
            | Output::Rejected { .. }
            | Output::WouldHave { .. }
            | Output::TierAsk { .. }
            | Output::MemberChanged { .. }
            | Output::LimitsChanged { .. }
            | Output::ModeChanged { .. } => {}
        }
    }

    /// Something changed.
    pub fn touch(&mut self, now: Instant) {
        self.due.get_or_insert_with(|| now.after(EVERY).max(self.next));
    }

    /// Something changed that the file is wrong about: ids and sessions.
    pub fn hurry(&mut self, now: Instant) {
        self.due = Some(now.max(self.next));
    }

    /// When the next one is to be made.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// A checkpoint is being put together: what changes from now on is for the next one.
    pub fn begin(&mut self) {
        self.due = None;
    }

    /// Keeps this, which took `cost` to put together.
    pub fn put(&mut self, sessions: Vec<Former>, cost: Duration, now: Instant) {
        let pause = u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX).saturating_mul(SHARE);
        self.next = now.after(Duration::from_nanos(pause));
        let kept = self.contents.as_ref().is_some_and(|contents| contents.try_send(sessions).is_ok());
        if !kept {
            self.touch(now);
        }
        // What changed meanwhile is kept after the pause.
        self.due = self.due.map(|due| due.max(self.next));
    }

    /// Keeps this before it returns, as the last.
    pub fn finish(mut self, sessions: Vec<Former>) {
        // A writer that is gone has said so.
        drop(self.contents.as_ref().map(|contents| contents.send(sessions)));
        self.contents = None;
        drop(self.writer.take().map(JoinHandle::join));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn former(pid: Option<u32>) -> Former {
        let lease = FormerLease {
            id: 7,
            pool: "chat".into(),
            key: Some("ab".repeat(16)),
            priority: -1,
            ends_with_client: true,
            age_ms: 9,
            ..FormerLease::default()
        };
        Former { session: 3, peer: Peer { pid, uid: 0, gid: 0, started: None }, leases: vec![lease] }
    }

    #[test]
    fn what_was_kept_last_comes_back_for_processes_that_live() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open(folder.path()).unwrap();
        assert_eq!(load(&state), []);
        let mut checkpoint = Checkpoint::open(&state);
        let (mine, foreign, dead) = (former(Some(std::process::id())), former(None), former(Some(u32::MAX)));
        checkpoint.put(vec![dead.clone()], Duration::ZERO, Instant::ZERO);
        checkpoint.finish(vec![mine.clone(), foreign.clone(), dead]);
        assert_eq!(load(&state), [mine.clone(), foreign]);
        let held = mine.leases[0].held();
        assert_eq!((held.lease, held.key, held.priority), (7, Some(KeyHash([0xab; 16])), Priority::Sheddable));
        assert!(held.ends_with_client && held.kind == Kind::Ordinary);
    }

    #[test]
    fn pids_of_another_namespace_are_forgotten_and_their_leases_kept() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open(folder.path()).unwrap();
        let content = Content { boot: boot_id(), scope: Some("pid:1 time:1".into()), sessions: vec![former(Some(1))] };
        std::fs::write(folder.path().join("leases.json"), serde_json::to_vec(&content).unwrap()).unwrap();
        assert_eq!(load(&state), [former(None)]);
    }

    #[test]
    fn a_damaged_file_and_one_of_an_earlier_boot_say_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open(folder.path()).unwrap();
        for text in ["{", "{\"boot\":\"another\",\"sessions\":[]}", "\u{1}"] {
            std::fs::write(folder.path().join("leases.json"), text).unwrap();
            assert_eq!(load(&state), []);
        }
    }

    #[test]
    fn many_leases_are_kept_less_often() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open(folder.path()).unwrap();
        let mut checkpoint = Checkpoint::open(&state);
        let at = |ms| Instant::ZERO.after(Duration::from_millis(ms));
        checkpoint.touch(at(0));
        checkpoint.touch(at(200));
        assert_eq!(checkpoint.due(), Some(at(250)), "the first change counts");
        checkpoint.begin();
        checkpoint.put(Vec::new(), Duration::from_millis(10), at(260));
        checkpoint.touch(at(260));
        assert_eq!(checkpoint.due(), Some(at(260 + 500)));
    }
}
