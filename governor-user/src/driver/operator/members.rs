//! Members: what proxies report and operators order, as facts for the engine, events for people and levers that outlive
//! the process.

pub mod levers;
pub(crate) mod log;

use self::levers::{Lever, Levers, Place, TooMany};
use self::log::{Change, Id};
use super::reason;
use crate::driver::Driver;
use crate::driver::sessions::translate;
use crate::process::clock;
use crate::records::audit::{ITSELF, event};
use crate::state::Stored;
use governor_api as api;
use governor_common::wire::request::MemberReport;
use governor_engine::id::{MemberId, PoolId, SessionId};
use governor_engine::io::{Input, MemberOrder};
use governor_engine::snapshot::{CoolingCause, MemberState, MemberView};
use governor_engine::time::{Duration, Instant};

/// Why an order for a member is not carried out.
#[derive(Debug, thiserror::Error)]
pub enum MemberRefused {
    /// No such pool or member.
    #[error("no member \"{member}\" in a pool \"{pool}\"")]
    Unknown {
        /// The pool that was named.
        pool: String,
        /// The member that was named.
        member: String,
        /// The members there are: of that pool, or of all.
        known: Vec<String>,
    },
    /// The order contradicts itself, or there is nothing to undo.
    #[error("{0}")]
    Invalid(String),
    /// Too many members have one.
    #[error(transparent)]
    TooMany(#[from] TooMany),
}

/// What the daemon knows of a member beside the engine.
#[derive(Clone, Debug, Default)]
pub struct MemberNote {
    /// Who caused the cool-down that runs.
    pub cooled_by: Option<String>,
    /// What operators ordered.
    pub levers: Levers,
}

impl Driver {
    /// A proxy's report. `None`: there is no such member.
    pub(crate) fn report_member(&mut self, session: SessionId, report: &MemberReport, now: Instant) -> Option<()> {
        let input = translate::member_report(&self.parts.engine, session, report, now)?;
        tracing::debug!(pool = report.pool, member = report.member, news = ?report.state, "member reported");
        self.parts.engine.handle_input(input, now);
        Some(())
    }

    /// A member's state changed, by a session's report or else by itself. `cut` is the time to a reset that is further away
    /// than the pool believes.
    pub(crate) fn note_cooling(
        &mut self,
        id: Id,
        cooling: Option<log::Cooling>,
        session: Option<SessionId>,
        cut: Option<Duration>,
        now: Instant,
    ) {
        let by = session.map_or_else(|| ITSELF.to_owned(), |session| self.session_name(session));
        let reason = cut.map(|asked| format!("reported a reset in {} s, cut to cooldown.max", asked.as_secs()));
        if let Some(change) = self.member_log.note(id, cooling, &by, reason, now) {
            self.record_member(&change, now);
        }
    }

    /// Puts the orders of operators in force again: at the start, and where a new policy brings members back.
    pub(crate) fn restore_members(&mut self, now: Instant) {
        let wall = clock::wall_seconds();
        let kept: Vec<_> = self.parts.member_levers.iter(wall).map(|(place, levers)| (place.clone(), levers)).collect();
        for ((pool, member), levers) in kept {
            let Some(id) = translate::find_member(&self.parts.engine, &pool, &member) else { continue };
            for order in orders_of(&levers, now, wall) {
                self.put_order(id, order, now);
            }
            let by = levers.cool.as_ref().map_or(ITSELF, |lever| lever.set_by.as_str()).to_owned();
            // Its start was recorded when it was ordered.
            drop(self.member_log.note(id, self.cooling(id), &by, None, now));
        }
    }

    /// An operator's order for a member, by name.
    pub(crate) fn order_member(
        &mut self,
        place: Place,
        request: &api::MemberRequest,
        by: &str,
        now: Instant,
    ) -> Result<(api::MemberChange, Stored), MemberRefused> {
        let (pool, member) = &place;
        let engine = &self.parts.engine;
        let id = translate::find_member(engine, pool, member).ok_or_else(|| self.unknown(pool, member))?;
        let wall = clock::wall_seconds();
        let before = self.member_row(id, now);
        let levers = self.changed_levers(&place, request, &before, by, wall)?;
        let shown = format!("{pool}/{member}");
        let order = match request.order {
            api::MemberOrder::Up => MemberOrder::Up,
            api::MemberOrder::Cool => {
                let seconds = request.for_seconds.unwrap_or_default();
                MemberOrder::Cool { until: now.after(Duration::from_secs(seconds)) }
            }
            api::MemberOrder::Drain => MemberOrder::Drain { on: true },
            api::MemberOrder::Undrain => MemberOrder::Drain { on: false },
        };
        let stored = self.parts.member_levers.set(place, levers, wall)?;
        self.put_order(id, order, now);
        // The order itself is the event.
        drop(self.member_log.note(id, self.cooling(id), by, None, now));
        let after = self.member_row(id, now);
        let action = format!("member-{}", request.order.as_str());
        let words = (before.state_in_words(), after.state_in_words());
        self.parts.audit.record(&event(by, &action, &shown, &words.0, &words.1, request.reason.clone()));
        let note = note(request.order, &after);
        Ok((api::MemberChange { before, after, note }, stored))
    }

    /// Records what was held back.
    pub(crate) fn tick_members(&mut self, now: Instant) {
        for change in self.member_log.due(now) {
            self.record_member(&change, now);
        }
    }

    /// What is known of a member beside the engine.
    pub(crate) fn member_note(&self, id: Id, wall: u64) -> MemberNote {
        let engine = &self.parts.engine;
        let name = |name: Option<&str>| name.unwrap_or_default().to_owned();
        let place = (name(engine.pool_name(id.0)), name(engine.member_name(id.0, id.1)));
        MemberNote {
            cooled_by: self.member_log.cause(id).map(str::to_owned),
            levers: self.parts.member_levers.of(&place, wall),
        }
    }

    fn record_member(&mut self, change: &Change, now: Instant) {
        let engine = &self.parts.engine;
        let (pool, member) = change.id;
        let names = (engine.pool_name(pool).unwrap_or_default(), engine.member_name(pool, member).unwrap_or_default());
        let subject = format!("{}/{}", names.0, names.1);
        let more = (change.held_back > 0).then(|| format!("{} starts and ends before it", change.held_back));
        let reason = [change.reason.clone(), more].into_iter().flatten().collect::<Vec<_>>().join("; ");
        let reason = (!reason.is_empty()).then_some(reason);
        let event = match change.cooling {
            Some((cause, until)) => {
                let after = format!("cooling for {} s, {}", seconds_left(until, now), cause_in_words(cause));
                event(&change.by, "member-cooling", &subject, &"up", &after.as_str(), reason)
            }
            None => event(&change.by, "member-up", &subject, &"cooling", &"up", reason),
        };
        self.parts.audit.record(&event);
    }

    fn put_order(&mut self, (pool, member): Id, order: MemberOrder, now: Instant) {
        self.parts.engine.handle_input(Input::MemberOrder { pool, member, order }, now);
    }

    fn cooling(&self, (pool, member): Id) -> Option<log::Cooling> {
        self.parts.engine.cooling(pool, member)
    }

    fn member_row(&self, id: Id, now: Instant) -> api::MemberRow {
        let pool = self.parts.engine.pool_name(id.0).unwrap_or_default();
        let view = self.parts.engine.member(id.0, id.1);
        view.map(|view| row(pool, &view, &self.member_note(id, clock::wall_seconds()), now)).unwrap_or_default()
    }

    /// The levers of a member after an order.
    fn changed_levers(
        &self,
        place: &Place,
        request: &api::MemberRequest,
        before: &api::MemberRow,
        by: &str,
        wall: u64,
    ) -> Result<Levers, MemberRefused> {
        let invalid = |why: String| Err(MemberRefused::Invalid(why));
        if (request.order == api::MemberOrder::Cool) != request.for_seconds.is_some() {
            return invalid("cool needs for_seconds, and no other order takes it".to_owned());
        }
        if let Some(why) = reason::fault(request.reason.as_deref()) {
            return invalid(why);
        }
        let mut levers = self.parts.member_levers.of(place, wall);
        let lever = |seconds: Option<u64>| Lever {
            until: seconds.map(|seconds| wall.saturating_add(seconds)),
            reason: request.reason.as_deref().map(reason::plain),
            set_by: by.to_owned(),
            set_at: clock::wall_time(),
        };
        match request.order {
            api::MemberOrder::Up => levers.cool = None,
            api::MemberOrder::Cool => levers.cool = Some(lever(request.for_seconds)),
            api::MemberOrder::Drain => levers.drain = Some(lever(None)),
            api::MemberOrder::Undrain if levers.drain.is_none() && before.state == api::MemberState::Draining => {
                let (pool, member) = place;
                return invalid(format!(
                    "the configuration drains {pool}/{member}: set pools.{pool}.members.{member}.draining to false"
                ));
            }
            api::MemberOrder::Undrain => levers.drain = None,
        }
        Ok(levers)
    }

    fn unknown(&self, pool: &str, member: &str) -> MemberRefused {
        let engine = &self.parts.engine;
        let names = |id: PoolId| {
            let pool = engine.pool_name(id).unwrap_or_default();
            engine.members(id).filter_map(move |member| Some(format!("{pool}/{}", engine.member_name(id, member)?)))
        };
        let known = match engine.pool_id(pool) {
            Some(id) => names(id).collect(),
            None => engine.pools().flat_map(names).collect(),
        };
        MemberRefused::Unknown { pool: pool.to_owned(), member: member.to_owned(), known }
    }

    /// A session as events name it: its id as `governorctl` shows it, its name and process.
    fn session_name(&self, session: SessionId) -> String {
        let Some(state) = self.sessions.get(&session) else { return format!("s-{}", session.0) };
        let name: String = state.name.chars().filter(|c| !c.is_control()).collect();
        let pid = state.peer.pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
        format!("s-{} ({name}{pid})", session.0)
    }
}

/// A member as the API shows it.
#[must_use]
pub fn row(pool: &str, view: &MemberView, note: &MemberNote, now: Instant) -> api::MemberRow {
    let lever = match view.state {
        MemberState::Draining => note.levers.drain.as_ref(),
        _ if view.cooling == Some(CoolingCause::Operator) => note.levers.cool.as_ref(),
        MemberState::Up | MemberState::Cooling { .. } | MemberState::Off => None,
    };
    let cause = match (view.state, view.cooling) {
        (MemberState::Draining, _) if view.drained => Some("operator"),
        (MemberState::Draining | MemberState::Off, _) => Some("configuration"),
        (_, Some(CoolingCause::RateLimited)) => Some("rate_limited"),
        (_, Some(CoolingCause::Overloaded)) => Some("overloaded"),
        (_, Some(CoolingCause::Operator)) => Some("operator"),
        (MemberState::Up | MemberState::Cooling { .. }, None) => None,
    };
    let cooled_by = note.cooled_by.clone().filter(|_| matches!(view.state, MemberState::Cooling { .. }));
    api::MemberRow {
        pool: pool.to_owned(),
        name: view.name.clone(),
        slots: view.slots,
        reserve: view.reserve,
        in_flight: view.in_flight,
        state: match view.state {
            MemberState::Up => api::MemberState::Up,
            MemberState::Cooling { .. } => api::MemberState::Cooling,
            MemberState::Off => api::MemberState::Off,
            MemberState::Draining => api::MemberState::Draining,
        },
        cooling_seconds: match view.state {
            MemberState::Cooling { until } => Some(until.since(now).as_secs_f64()),
            MemberState::Up | MemberState::Off | MemberState::Draining => None,
        },
        cause: cause.map(str::to_owned),
        by: lever.map(|lever| lever.set_by.clone()).or(cooled_by),
        reason: lever.and_then(|lever| lever.reason.clone()),
    }
}

/// The engine's orders for what operators left in force.
fn orders_of(levers: &Levers, now: Instant, wall: u64) -> Vec<MemberOrder> {
    let left = |until: u64| now.after(Duration::from_secs(until.saturating_sub(wall)));
    let cool = levers.cool.as_ref().and_then(|lever| Some(MemberOrder::Cool { until: left(lever.until?) }));
    let drain = levers.drain.as_ref().map(|_| MemberOrder::Drain { on: true });
    cool.into_iter().chain(drain).collect()
}

/// What the order does not do, where one could think it does.
fn note(order: api::MemberOrder, after: &api::MemberRow) -> Option<String> {
    let name = format!("{}/{}", after.pool, after.name);
    match (order, after.state) {
        (api::MemberOrder::Up, api::MemberState::Draining) => {
            Some(format!("it is drained and takes nothing: governorctl member {name} undrain"))
        }
        (api::MemberOrder::Up | api::MemberOrder::Undrain, api::MemberState::Off) => {
            Some("it has 0 slots and takes nothing".to_owned())
        }
        (api::MemberOrder::Undrain, api::MemberState::Draining) => {
            Some(format!("the configuration drains it: pools.{}.members.{}.draining", after.pool, after.name))
        }
        _ => None,
    }
}

fn seconds_left(until: Instant, now: Instant) -> u64 {
    until.since(now).as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX)
}

fn cause_in_words(cause: CoolingCause) -> &'static str {
    match cause {
        CoolingCause::RateLimited => "rate limited upstream",
        CoolingCause::Overloaded => "overloaded or unreachable",
        CoolingCause::Operator => "ordered by an operator",
    }
}

/// The ids of every member there is.
pub(crate) fn ids(engine: &governor_engine::Engine) -> Vec<(PoolId, MemberId)> {
    engine.pools().flat_map(|pool| engine.members(pool).map(move |member| (pool, member))).collect()
}
