//! The drain of the node (C7): on until an operator ends it, kept in the state folder so that a restart does not. The
//! engine refuses what is new; this file knows who ordered it, when and why.

use super::reason;
use crate::driver::Driver;
use crate::process::clock;
use crate::records::audit::event;
use crate::state::{DRAIN, StateDir, Stored};
use governor_engine::io::Input;
use governor_engine::time::Instant;
use serde::{Deserialize, Serialize};

/// An order to drain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainOrder {
    /// When, in seconds since 1970.
    pub since: u64,
    /// The operator.
    pub by: String,
    /// Why, in the operator's words.
    pub reason: Option<String>,
}

/// The order that holds and where it is kept.
#[derive(Debug)]
pub struct Drain {
    folder: StateDir,
    order: Option<DrainOrder>,
}

impl Drain {
    /// As it was left in this state folder; no drain where nothing usable was left.
    #[must_use]
    pub fn load(folder: &StateDir) -> Self {
        Self { folder: folder.clone(), order: folder.load::<Option<DrainOrder>>(DRAIN).flatten() }
    }

    /// The order that holds.
    #[must_use]
    pub fn order(&self) -> Option<&DrainOrder> {
        self.order.as_ref()
    }

    /// Begins or ends the drain. In force at once; the answer says whether it is stored.
    pub fn set(&mut self, order: Option<DrainOrder>) -> Stored {
        self.order = order;
        self.folder.store(DRAIN, serde_json::to_vec(&self.order).expect("plain data serializes"))
    }
}

impl Driver {
    /// Begins or ends the drain. A drain that is on already keeps its beginning.
    pub(crate) fn order_drain(&mut self, on: bool, reason: Option<String>, by: &str, now: Instant) -> Stored {
        let before = self.parts.drain.order().cloned();
        let reason = reason.as_deref().map(reason::cut);
        let fresh = || DrainOrder { since: clock::wall_seconds(), by: by.to_owned(), reason: reason.clone() };
        let order = on.then(|| before.clone().unwrap_or_else(fresh));
        self.parts.engine.handle_input(Input::Drain { on }, now);
        let (was, is) = if on { ("off", "on") } else { ("on", "off") };
        if before.is_some() != on {
            self.parts.audit.record(&event(by, "drain", "", &was, &is, reason));
        }
        self.parts.drain.set(order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_survives_a_restart_until_it_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open(folder.path()).unwrap();
        let mut drain = Drain::load(&state);
        assert_eq!(drain.order(), None);
        let order = DrainOrder { since: 7, by: "uid 0".into(), reason: Some("new kernel".into()) };
        drop(drain.set(Some(order.clone())));
        state.finish();
        let mut again = Drain::load(&state);
        assert_eq!(again.order(), Some(&order));
        drop(again.set(None));
        assert_eq!(again.order(), None, "in force, although it cannot be stored any more");
    }
}
