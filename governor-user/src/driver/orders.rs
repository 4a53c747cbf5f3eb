//! The stream of orders: what the engine announces goes to every subscriber here, each order once and in order. A subscriber
//! in this loop takes an order by value of what it says and looks nothing up in the engine's state; one that writes to the
//! disk or to a peer takes it into a bounded buffer and never waits:
//!
//! | subscriber | takes | when it cannot keep up |
//! |---|---|---|
//! | recorded demand | grants, ends | loses records, counted; then a new segment lists what runs |
//! | checkpoint | that leases changed | the next one is made of all leases |
//! | clients of requests and leases | answers, ends | in memory |
//! | rates, metrics | grants, refusals | in memory |
//! | decisions, audit, log | refusals, members | loses records, counted |
//! | limits, signal page | that they changed | the next one has all |
//! | sessions | answers | is disconnected, and registers what it holds |

mod records;
mod replies;

use crate::driver::Driver;
use governor_engine::io::{Decision, Output};

impl Driver {
    /// Carries out what the engine has ordered since the last time.
    pub(super) fn deliver(&mut self) {
        while let Some(order) = self.parts.engine.poll_output() {
            self.announce(&order);
        }
    }

    /// Takes one order to all subscribers.
    pub(super) fn announce(&mut self, order: &Output) {
        self.record_demand(order);
        self.parts.checkpoint.take(order);
        self.clients.take(order);
        self.rates.take(order);
        self.parts.recorder.take(order);
        match order {
            Output::LimitsChanged { .. } => self.limits_stale = true,
            Output::ModeChanged { .. } => self.parts.page.iter_mut().for_each(|page| page.hurry()),
            Output::MemberChanged { at, session, pool, member, cooling, cut, .. } => {
                self.note_cooling((*pool, *member), *cooling, *session, *cut, *at);
            }
            Output::Refused { request, decision } => self.refused(*request, decision),
            Output::WouldHave { decision } => {
                let entry = self.entry(Decision::clone(decision));
                self.keep(entry);
            }
            Output::Began(_)
            | Output::Passed { .. }
            | Output::Moved { .. }
            | Output::Resumed(_)
            | Output::Suspended { .. }
            | Output::Ended { .. }
            | Output::Registered { .. }
            | Output::UnknownLease { .. }
            | Output::ClientGone { .. }
            | Output::Parked { .. }
            | Output::Unparked { .. }
            | Output::Rejected { .. }
            | Output::TierAsk { .. }
            | Output::SessionEnded { .. } => self.reply(order),
        }
    }
}
