//! The level with its hysteresis: a level is entered when its pressure has lasted for the hold time, or at once on
//! evidence of overflow, and left some way below where it was entered.

use governor_common::wire::reply::Level;
use governor_engine::time::{Duration, Instant};

/// Levels above normal with the pressure in ‰ that enters them.
const ENTER: [(Level, u16); 3] = [(Level::Elevated, 500), (Level::High, 750), (Level::Overloaded, 950)];

/// Follows the pressure.
#[derive(Clone, Debug)]
pub struct LevelMachine {
    hold: Duration,
    /// How far below its entry a level is left, in ‰.
    hysteresis: u16,
    level: Level,
    /// Since when the pressure has been at or above each entry of [`ENTER`].
    above_since: [Option<Instant>; 3],
}

impl LevelMachine {
    /// At `normal`. `hold` is how long pressure must last before a level is entered, `hysteresis` how far below its entry it
    /// is left, in ‰.
    #[must_use]
    pub fn new(hold: Duration, hysteresis: u16) -> Self {
        Self { hold, hysteresis, level: Level::Normal, above_since: [None; 3] }
    }

    /// The level now.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Takes the pressure (0–1000 ‰) at `now`; `urgent` enters levels without waiting. True if the level changed.
    pub fn update(&mut self, pressure: u16, urgent: bool, now: Instant) -> bool {
        let before = self.level;
        for (since, (level, enter)) in self.above_since.iter_mut().zip(ENTER) {
            if pressure < enter {
                *since = None;
            } else {
                let start = *since.get_or_insert(now);
                if urgent || now.since(start) >= self.hold {
                    self.level = self.level.max(level);
                }
            }
        }
        let tenable = ENTER
            .iter()
            .rfind(|(_, enter)| pressure >= enter.saturating_sub(self.hysteresis))
            .map_or(Level::Normal, |(level, _)| *level);
        self.level = self.level.min(tenable);
        self.level != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(ms))
    }

    #[test]
    fn a_level_is_entered_only_after_the_hold_time() {
        let mut machine = LevelMachine::new(Duration::from_secs(2), 100);
        assert!(!machine.update(800, false, at(0)));
        assert!(!machine.update(800, false, at(1999)));
        assert!(machine.update(800, false, at(2000)));
        assert_eq!(machine.level(), Level::High);
    }

    #[test]
    fn a_dip_starts_the_hold_time_again() {
        let mut machine = LevelMachine::new(Duration::from_secs(2), 100);
        machine.update(600, false, at(0));
        machine.update(499, false, at(1000));
        machine.update(600, false, at(1500));
        machine.update(600, false, at(3000));
        assert_eq!(machine.level(), Level::Normal);
        machine.update(600, false, at(3500));
        assert_eq!(machine.level(), Level::Elevated);
    }

    #[test]
    fn overflow_enters_at_once() {
        let mut machine = LevelMachine::new(Duration::from_secs(2), 100);
        assert!(machine.update(1000, true, at(0)));
        assert_eq!(machine.level(), Level::Overloaded);
    }

    #[test]
    fn a_level_is_left_a_hundred_permille_lower() {
        let mut machine = LevelMachine::new(Duration::ZERO, 100);
        machine.update(950, false, at(0));
        for (pressure, level) in [
            (850, Level::Overloaded),
            (849, Level::High),
            (650, Level::High),
            (649, Level::Elevated),
            (400, Level::Elevated),
            (399, Level::Normal),
        ] {
            machine.update(pressure, false, at(1));
            assert_eq!(machine.level(), level, "at {pressure}");
        }
    }
}
