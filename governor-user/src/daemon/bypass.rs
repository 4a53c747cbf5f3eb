//! The bypass switch (C7): on, off, or on for a while; kept in the state folder so that a restart does not end it.
//! Its end is kept as wall-clock time, because it outlives the process and the boot.

use crate::config::overrides::replace;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The switch and where it is kept.
#[derive(Debug)]
pub struct Bypass {
    path: PathBuf,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    on: bool,
    /// Seconds since 1970; absent: until switched off.
    until: Option<u64>,
}

impl Bypass {
    /// As it was left in this state folder.
    ///
    /// # Errors
    /// The file is there and not ours; the message names it.
    pub fn load(state_dir: &Path) -> Result<Self> {
        let path = state_dir.join("bypass.json");
        let state = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .with_context(|| format!("{} is not a bypass switch: remove it", path.display()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => State::default(),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        Ok(Self { path, state })
    }

    /// Switches; `for_seconds` from `wall` (seconds since 1970).
    ///
    /// # Errors
    /// The state folder cannot be written; the switch is as it was.
    pub fn set(&mut self, on: bool, for_seconds: Option<u64>, wall: u64) -> Result<()> {
        let until = for_seconds.filter(|_| on).map(|seconds| wall.saturating_add(seconds));
        let state = State { on, until };
        replace(&self.path, &serde_json::to_vec(&state)?)?;
        self.state = state;
        Ok(())
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
        let mut bypass = Bypass::load(folder.path()).unwrap();
        assert!(!bypass.is_on(1000));
        bypass.set(true, Some(60), 1000).unwrap();
        let again = Bypass::load(folder.path()).unwrap();
        assert!(again.is_on(1059) && !again.is_on(1060));
        assert_eq!((again.remaining(1010), again.remaining(1060)), (Some(50), None));
        bypass.set(true, None, 1000).unwrap();
        assert!(bypass.is_on(u64::MAX));
        bypass.set(false, None, 1000).unwrap();
        assert!(!Bypass::load(folder.path()).unwrap().is_on(1000));
    }
}
