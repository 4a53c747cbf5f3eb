//! The provider behind all endpoints: its accounts, and how long each answer takes. A slot is held by a value.

use crate::accounts::{Accounts, Refusal};
use crate::duration::HeavyTail;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What all requests share.
#[derive(Debug)]
pub(crate) struct Provider {
    /// Slots of each account.
    pub(crate) slots: u32,
    accounts: Mutex<Accounts>,
    durations: HeavyTail,
    rng: Mutex<StdRng>,
}

/// What chance decides about one answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw {
    /// How long it takes from the first thought to the last word.
    pub(crate) duration: Duration,
    /// How much of it passes before the first byte.
    pub(crate) thought: Duration,
    /// Makes its id.
    pub(crate) number: u64,
}

impl Provider {
    /// `count` accounts with `slots` slots each. The same seed gives the same durations.
    pub(crate) fn new(count: u32, slots: u32, durations: HeavyTail, seed: u64) -> Self {
        Self {
            slots,
            accounts: Mutex::new(Accounts::new(count, slots, Instant::now())),
            durations,
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
        }
    }

    /// The accounts, for as long as the guard lives.
    pub(crate) fn accounts(&self) -> MutexGuard<'_, Accounts> {
        // A panic elsewhere cannot leave the counts half changed: every change is one assignment.
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws for one answer.
    pub(crate) fn draw(&self) -> Draw {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        let duration = self.durations.sample(&mut *rng);
        let thought = Duration::from_millis(rng.random_range(20..80)).min(duration / 2);
        Draw { duration, thought, number: rng.random() }
    }
}

/// A slot of an account, given back when the answer ends or its reader goes away.
#[derive(Debug)]
pub(crate) struct Slot {
    provider: Arc<Provider>,
    account: usize,
}

impl Slot {
    /// Takes a slot of the named account.
    pub(crate) fn take(provider: &Arc<Provider>, account: &str) -> Result<Self, Refusal> {
        let account = provider.accounts().open(account, Instant::now())?;
        Ok(Self { provider: Arc::clone(provider), account })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.provider.accounts().close(self.account, Instant::now());
    }
}
