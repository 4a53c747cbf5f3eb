//! Replies to sessions for orders. Refusals are answered where they are recorded, with the same words.

use crate::driver::Driver;
use crate::driver::sessions::translate;
use crate::naming;
use governor_common::wire::reply::{Reply, RevokeReason};
use governor_engine::id::{LeaseId, SessionId};
use governor_engine::io::Output;

impl Driver {
    pub(super) fn reply(&mut self, order: &Output) {
        match order {
            Output::Began(grant) | Output::Resumed(grant) | Output::Moved { grant, .. } => {
                self.queue(grant.context.session, |outbox, engine| {
                    outbox.grant(translate::grant(engine, grant), grant.request.0)
                });
            }
            Output::Passed { context, request } => {
                self.queue(context.session, |outbox, _| outbox.grant((0, 0, None), request.0));
            }
            Output::Parked { context, request } => self.send(context.session, request.0, &Reply::Parked),
            Output::Rejected { session, request, why } => {
                self.send(*session, request.0, &Reply::Reject { reason: translate::reject(*why).to_owned() });
            }
            Output::Ended { context, lease, cause, .. } => {
                if let Some(reason) = translate::revoke(*cause) {
                    self.send_revoke(context.session, *lease, reason);
                }
            }
            Output::UnknownLease { session, lease } => self.send_revoke(*session, *lease, RevokeReason::Unknown),
            Output::ClientGone { context, lease } => {
                self.send_since_two(context.session, &Reply::ClientGone { lease: lease.0 });
            }
            Output::TierAsk { session, org } => {
                tracing::debug!(session = session.0, org = %naming::org_hash(*org), "tier asked for");
                // Any proxy that knows of tiers may answer for the org.
                let asked = Some(*session).filter(|session| self.speaks_two(*session));
                let asked = asked.or_else(|| self.connected().map(|(id, _)| *id).find(|id| self.speaks_two(*id)));
                if let Some(session) = asked {
                    self.send(session, 0, &Reply::TierAsk { org: naming::org_hash(*org) });
                }
            }
            // `register` answers for all leases of its frame together; the others have no answer.
            Output::Registered { .. }
            | Output::Suspended { .. }
            | Output::Unparked { .. }
            | Output::Refused { .. }
            | Output::WouldHave { .. }
            | Output::SessionEnded { .. }
            | Output::MemberChanged { .. }
            | Output::LimitsChanged { .. }
            | Output::ModeChanged { .. } => {}
        }
    }

    fn send_revoke(&mut self, session: SessionId, lease: LeaseId, reason: RevokeReason) {
        let id = format_args!("l-{:016x}", lease.0);
        tracing::info!(session = session.0, lease = %id, ?reason, "lease revoked");
        self.send(session, 0, &Reply::Revoke { lease: lease.0, reason });
    }

    /// Sends what sessions of protocol version 1 do not know.
    fn send_since_two(&mut self, session: SessionId, reply: &Reply) {
        if self.speaks_two(session) {
            self.send(session, 0, reply);
        }
    }

    fn speaks_two(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|state| state.version >= 2)
    }
}
