//! The bypass switch (C7): on, off, or on for a while; kept in the state folder so that a restart does not end it.
//! Its end is kept as wall-clock time, because it outlives the process and the boot.

use crate::state::{BYPASS, StateDir, Stored};
use serde::{Deserialize, Serialize};

/// The switch and where it is kept.
#[derive(Debug)]
pub struct Bypass {
    folder: StateDir,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    on: bool,
    /// Seconds since 1970; absent: until switched off.
    until: Option<u64>,
}

impl Bypass {
    /// As it was left in this state folder; off where nothing usable was left.
    #[must_use]
    pub fn load(folder: &StateDir) -> Self {
        Self { folder: folder.clone(), state: folder.load(BYPASS).unwrap_or_default() }
    }

    /// Switches; `for_seconds` from `wall` (seconds since 1970). In force at once; the answer says whether it is stored.
    pub fn set(&mut self, on: bool, for_seconds: Option<u64>, wall: u64) -> Stored {
        let until = for_seconds.filter(|_| on).map(|seconds| wall.saturating_add(seconds));
        self.state = State { on, until };
        self.folder.store(BYPASS, serde_json::to_vec(&self.state).expect("plain data serializes"))
    }

    /// Whether it is on, or was left on, for a time.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        self.state.on && self.state.until.is_some()
    }

    /// Whether its time is over at `wall`, once: it is off from now on. Also for a time that ended while no daemon ran.
    pub fn take_expired(&mut self, wall: u64) -> bool {
        let is_over = self.state.on && !self.is_on(wall);
        if is_over {
            // What cannot be stored is over as well, and is found over again at the next start.
            drop(self.set(false, None, wall));
        }
        is_over
    }

    /// Its state at `wall` as events show it: `off`, `on`, or `on for 1800 s`.
    #[must_use]
    pub fn described(&self, wall: u64) -> String {
        match (self.is_on(wall), self.remaining(wall)) {
            (false, _) => "off".to_owned(),
            (true, None) => "on".to_owned(),
            (true, Some(seconds)) => format!("on for {seconds} s"),
        }
    }

    /// Whether it is on at `wall`.
    #[must_use]
    pub fn is_on(&self, wall: u64) -> bool {
        self.state.on && self.state.until.is_none_or(|until| wall < until)
    }

    /// Seconds left at `wall`, if it ends by itself.
    #[must_use]
    pub fn remaining(&self, wall: u64) -> Option<u64> {
        self.state.until.filter(|_| self.is_on(wall)).map(|until| until.saturating_sub(wall))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_survives_a_restart_and_ends_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::open(folder.path()).unwrap();
        let mut bypass = Bypass::load(&state);
        assert!(!bypass.is_on(1000));
        bypass.set(true, Some(60), 1000);
        state.finish();
        let again = Bypass::load(&state);
        assert!(again.is_on(1059) && !again.is_on(1060));
        assert_eq!((again.remaining(1010), again.remaining(1060)), (Some(50), None));
        assert_eq!((again.described(1010).as_str(), again.described(1060).as_str()), ("on for 50 s", "off"));
        let mut late = Bypass::load(&state);
        assert!(!late.take_expired(1059) && late.take_expired(1060) && !late.take_expired(1061));
        bypass.set(true, None, 1000);
        assert!(bypass.is_on(u64::MAX), "in force, although it cannot be stored any more");
        bypass.set(false, None, 1000);
        assert!(!bypass.is_on(1000));
    }
}
