//! How long a condition has lasted that is looked at from time to time and may be interrupted for a moment. Pure; time is an
//! argument.

use governor_engine::time::{Duration, Instant};

/// An interruption up to this long is none: requests come and go.
const PAUSE: Duration = Duration::from_secs(1);
/// A condition that has lasted this long …
pub(crate) const SETTLED: Duration = Duration::from_secs(2);
/// … ends only with an interruption longer than this: a verdict that comes and goes under constant load helps no reader.
const LONG_PAUSE: Duration = Duration::from_secs(5);

/// When the condition began to hold and when it held last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spell(Option<(Instant, Instant)>);

impl Spell {
    /// Takes in whether the condition holds at `now`.
    pub(crate) fn absorb(&mut self, holds: bool, now: Instant) {
        match (holds, self.0) {
            (true, Some((since, _))) => self.0 = Some((since, now)),
            (true, None) => self.0 = Some((now, now)),
            (false, Some((since, last))) => {
                let pause = if last.since(since) >= SETTLED { LONG_PAUSE } else { PAUSE };
                if now.since(last) > pause {
                    self.0 = None;
                }
            }
            (false, None) => {}
        }
    }

    /// Seconds since it began to hold; 0 while it does not.
    pub(crate) fn seconds(&self, now: Instant) -> f64 {
        self.0.map_or(0.0, |(since, _)| now.since(since).as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO.after(Duration::from_millis(ms))
    }

    #[test]
    fn a_settled_condition_survives_longer_pauses() {
        let mut spell = Spell::default();
        spell.absorb(true, at(0));
        spell.absorb(false, at(1_000));
        assert_eq!(spell.seconds(at(1_000)), 1.0);
        spell.absorb(false, at(1_100));
        assert_eq!(spell.seconds(at(1_100)), 0.0, "a second was too long");
        for ms in [2_000, 3_000, 4_000] {
            spell.absorb(true, at(ms));
        }
        spell.absorb(false, at(9_000));
        assert_eq!(spell.seconds(at(9_000)), 7.0);
        spell.absorb(false, at(9_001));
        assert_eq!(spell.seconds(at(9_001)), 0.0);
    }
}
