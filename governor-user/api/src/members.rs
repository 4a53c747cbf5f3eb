//! Members, orders for them, and the drain of the node.

use super::{Lease, MemberState};
use serde::{Deserialize, Serialize};

/// Which members `GET /v1/members` answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MembersQuery {
    /// Only this pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// One member, with what keeps it from taking requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemberRow {
    /// The pool.
    pub pool: String,
    /// Name, unique within its pool.
    pub name: String,
    /// Slots.
    pub slots: u32,
    /// Slots of those that are kept for re-attach.
    pub reserve: u32,
    /// Leases in flight.
    pub in_flight: u32,
    /// Whether it takes new requests.
    pub state: MemberState,
    /// Seconds until a cool-down ends; `null` unless cooling.
    pub cooling_seconds: Option<f64>,
    /// `rate_limited`, `overloaded`, `operator` or `configuration`; `null` for a member that is well. A member that is up
    /// and overloaded is kept in use because every member fails.
    pub cause: Option<String>,
    /// The session or operator that took it out; `null` where the configuration did.
    pub by: Option<String>,
    /// Why, in the operator's words.
    pub reason: Option<String>,
}

impl MemberRow {
    /// Its state with the cause, as events have it.
    #[must_use]
    pub fn state_in_words(&self) -> String {
        let cause = self.cause.as_deref().map(|cause| format!(", {cause}")).unwrap_or_default();
        match (self.state, self.cooling_seconds) {
            (MemberState::Up, _) => "up".to_owned(),
            (MemberState::Off, _) => "off".to_owned(),
            (MemberState::Draining, _) => format!("draining{cause}"),
            (MemberState::Cooling, None) => format!("cooling{cause}"),
            (MemberState::Cooling, Some(seconds)) => format!("cooling for {:.0} s{cause}", seconds.ceil()),
        }
    }
}

/// What can be ordered for a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberOrder {
    /// End every cool-down now.
    Up,
    /// Take no new request for a while.
    Cool,
    /// Take no new request until undrained.
    Drain,
    /// End what `drain` ordered.
    Undrain,
}

impl MemberOrder {
    /// Its name in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Cool => "cool",
            Self::Drain => "drain",
            Self::Undrain => "undrain",
        }
    }
}

/// Asks for an order. It holds over restarts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberRequest {
    /// The order.
    pub order: MemberOrder,
    /// How long `cool` lasts, in seconds; no other order takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_seconds: Option<u64>,
    /// Why, for the next operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// An order was carried out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberChange {
    /// The member before.
    pub before: MemberRow,
    /// The member now.
    pub after: MemberRow,
    /// Why it may do less than it seems to; `null` when it does all.
    #[serde(default)]
    pub note: Option<String>,
}

/// Asks to begin or to end the drain of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrainRequest {
    /// Begin or end.
    pub on: bool,
    /// Why, for the next operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The drain of the node: while on, new requests are refused with 529 and `draining`, and what runs goes on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Drain {
    /// On or off.
    pub on: bool,
    /// Seconds since it began; `null` when off.
    pub since_seconds: Option<f64>,
    /// The operator who began it; `null` when off.
    pub by: Option<String>,
    /// Why, in the operator's words.
    pub reason: Option<String>,
    /// Leases that are left, suspended ones included.
    pub leases: u32,
    /// Leases of those that are suspended: they hold no slot, and end when their proxy releases them.
    pub suspended: u32,
    /// The oldest leases that are left, the oldest first; at most 5.
    pub longest: Vec<Lease>,
}
