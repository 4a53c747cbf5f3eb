//! What the provider knows about its accounts: who has how many streams open, who is cooling, and the exact
//! time-integral of use, so that utilisation is computed instead of sampled. Knows nothing of HTTP and reads no clock.

use serde::Serialize;
use std::time::{Duration, Instant};

/// All accounts, each with the same number of slots.
#[derive(Debug)]
pub(crate) struct Accounts {
    slots: u32,
    since: Instant,
    accounts: Vec<Account>,
}

#[derive(Debug)]
struct Account {
    name: String,
    in_flight: u32,
    peak: u32,
    streams_total: u64,
    refused_full_total: u64,
    refused_cooling_total: u64,
    cooling: Option<(Cause, Instant)>,
    /// Up to when the integrals below are complete.
    settled: Instant,
    used: Duration,
    used_serving: Duration,
    serving: Duration,
}

/// Why an account does not take a new stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No account has that name.
    Unknown,
    /// All slots are in use.
    Full,
    /// The account is cooling for this much longer.
    Cooling(Cause, Duration),
}

/// What a cooling account says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Its own limit is reached: 429, and it names its reset.
    Limited,
    /// The provider is overloaded: 529, and nobody knows until when.
    Overloaded,
}

/// What the stats endpoint tells. Durations are in seconds since the last reset.
#[derive(Debug, Serialize)]
pub(crate) struct Stats {
    /// Time since the last reset.
    pub(crate) seconds: f64,
    /// Slots of each account.
    pub(crate) slots: u32,
    /// Streams open now, on all accounts.
    pub(crate) in_flight: u32,
    /// Streams begun.
    pub(crate) streams_total: u64,
    /// New requests refused because all slots of the account were in use: more than it was said to bear.
    pub(crate) refused_full_total: u64,
    /// New requests refused because the account was cooling.
    pub(crate) refused_cooling_total: u64,
    /// Integral of open streams over time.
    pub(crate) used_slot_seconds: f64,
    /// The part of it on accounts while they were not cooling.
    pub(crate) serving_used_slot_seconds: f64,
    /// How long accounts were not cooling, summed: times the slots of one, this is what could have been used.
    pub(crate) serving_account_seconds: f64,
    /// Each account.
    pub(crate) accounts: Vec<AccountStats>,
}

/// One account in [`Stats`].
#[derive(Debug, Serialize)]
pub(crate) struct AccountStats {
    pub(crate) name: String,
    pub(crate) in_flight: u32,
    pub(crate) peak: u32,
    pub(crate) streams_total: u64,
    pub(crate) refused_full_total: u64,
    pub(crate) refused_cooling_total: u64,
    pub(crate) used_slot_seconds: f64,
    /// Absent while the account serves.
    pub(crate) cooling_seconds_left: Option<f64>,
}

impl Accounts {
    /// `count` accounts named `acct-01` and so on, with `slots` slots each.
    pub(crate) fn new(count: u32, slots: u32, now: Instant) -> Self {
        let accounts = (1..=count).map(|number| Account::new(format!("acct-{number:02}"), now)).collect();
        Self { slots, since: now, accounts }
    }

    /// Takes a slot of the named account and returns the account's index for [`Accounts::close`].
    pub(crate) fn open(&mut self, name: &str, now: Instant) -> Result<usize, Refusal> {
        let slots = self.slots;
        let index = self.index(name).ok_or(Refusal::Unknown)?;
        let account = self.accounts.get_mut(index).ok_or(Refusal::Unknown)?;
        account.settle(now);
        if let Some((cause, until)) = account.cooling {
            account.refused_cooling_total += 1;
            return Err(Refusal::Cooling(cause, until.saturating_duration_since(now)));
        }
        if account.in_flight >= slots {
            account.refused_full_total += 1;
            return Err(Refusal::Full);
        }
        account.in_flight += 1;
        account.streams_total += 1;
        account.peak = account.peak.max(account.in_flight);
        Ok(index)
    }

    /// Gives a slot back.
    pub(crate) fn close(&mut self, index: usize, now: Instant) {
        if let Some(account) = self.accounts.get_mut(index) {
            account.settle(now);
            account.in_flight -= 1;
        }
    }

    /// From now on and for `duration` the account refuses new streams; what runs goes on. False: no such account.
    pub(crate) fn cool(&mut self, name: &str, cause: Cause, duration: Duration, now: Instant) -> bool {
        let Some(account) = self.index(name).and_then(|index| self.accounts.get_mut(index)) else { return false };
        account.settle(now);
        account.cooling = (!duration.is_zero()).then(|| (cause, now + duration));
        true
    }

    /// Starts all counts and integrals anew. Open streams and cool-downs stay.
    pub(crate) fn reset(&mut self, now: Instant) {
        self.since = now;
        for account in &mut self.accounts {
            account.settle(now);
            let kept = Account::new(std::mem::take(&mut account.name), now);
            let (in_flight, cooling) = (account.in_flight, account.cooling);
            *account = Account { in_flight, peak: in_flight, cooling, ..kept };
        }
    }

    /// Counts and integrals up to now.
    pub(crate) fn stats(&mut self, now: Instant) -> Stats {
        for account in &mut self.accounts {
            account.settle(now);
        }
        let seconds = |part: fn(&Account) -> Duration| self.accounts.iter().map(part).sum::<Duration>().as_secs_f64();
        Stats {
            seconds: now.saturating_duration_since(self.since).as_secs_f64(),
            slots: self.slots,
            in_flight: self.accounts.iter().map(|account| account.in_flight).sum(),
            streams_total: self.accounts.iter().map(|account| account.streams_total).sum(),
            refused_full_total: self.accounts.iter().map(|account| account.refused_full_total).sum(),
            refused_cooling_total: self.accounts.iter().map(|account| account.refused_cooling_total).sum(),
            used_slot_seconds: seconds(|account| account.used),
            serving_used_slot_seconds: seconds(|account| account.used_serving),
            serving_account_seconds: seconds(|account| account.serving),
            accounts: self.accounts.iter().map(|account| account.stats(now)).collect(),
        }
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.accounts.iter().position(|account| account.name == name)
    }
}

impl Account {
    fn new(name: String, now: Instant) -> Self {
        Self {
            name,
            in_flight: 0,
            peak: 0,
            streams_total: 0,
            refused_full_total: 0,
            refused_cooling_total: 0,
            cooling: None,
            settled: now,
            used: Duration::ZERO,
            used_serving: Duration::ZERO,
            serving: Duration::ZERO,
        }
    }

    /// Extends the integrals up to `now` and ends a cool-down that is over. Called before every change.
    fn settle(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.settled);
        let cooling = match self.cooling {
            Some((_, until)) => until.saturating_duration_since(self.settled).min(elapsed),
            None => Duration::ZERO,
        };
        self.used += elapsed * self.in_flight;
        self.used_serving += (elapsed - cooling) * self.in_flight;
        self.serving += elapsed - cooling;
        self.settled = self.settled.max(now);
        self.cooling = self.cooling.filter(|(_, until)| *until > now);
    }

    fn stats(&self, now: Instant) -> AccountStats {
        AccountStats {
            name: self.name.clone(),
            in_flight: self.in_flight,
            peak: self.peak,
            streams_total: self.streams_total,
            refused_full_total: self.refused_full_total,
            refused_cooling_total: self.refused_cooling_total,
            used_slot_seconds: self.used.as_secs_f64(),
            cooling_seconds_left: self.cooling.map(|(_, until)| until.saturating_duration_since(now).as_secs_f64()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(value: u64) -> Duration {
        Duration::from_secs(value)
    }

    #[test]
    fn an_account_refuses_the_stream_after_its_last_slot() {
        let now = Instant::now();
        let mut accounts = Accounts::new(2, 1, now);
        assert_eq!(accounts.open("acct-01", now), Ok(0));
        assert_eq!(accounts.open("acct-01", now), Err(Refusal::Full));
        assert_eq!(accounts.open("acct-02", now), Ok(1));
        accounts.close(0, now);
        assert_eq!(accounts.open("acct-01", now), Ok(0));
        assert_eq!(accounts.open("acct-03", now), Err(Refusal::Unknown));
    }

    #[test]
    fn a_cooling_account_refuses_new_streams_while_its_running_ones_go_on() {
        let now = Instant::now();
        let mut accounts = Accounts::new(1, 8, now);
        assert_eq!(accounts.open("acct-01", now), Ok(0));
        assert!(accounts.cool("acct-01", Cause::Limited, seconds(10), now));
        assert_eq!(accounts.open("acct-01", now + seconds(4)), Err(Refusal::Cooling(Cause::Limited, seconds(6))));
        assert_eq!(accounts.stats(now + seconds(4)).in_flight, 1);
        assert_eq!(accounts.open("acct-01", now + seconds(10)), Ok(0));
    }

    #[test]
    fn use_is_integrated_exactly_and_cooling_time_is_kept_apart() {
        let start = Instant::now();
        let mut accounts = Accounts::new(2, 8, start);
        accounts.open("acct-01", start).unwrap();
        accounts.open("acct-01", start + seconds(2)).unwrap();
        accounts.cool("acct-01", Cause::Overloaded, seconds(3), start + seconds(4));
        accounts.close(0, start + seconds(5));
        let stats = accounts.stats(start + seconds(10));
        // One stream for 2 s, two for 3 s, one for 5 s; from 4 s to 7 s the account was cooling.
        assert!((stats.used_slot_seconds - 13.0).abs() < 1e-9);
        assert!((stats.serving_used_slot_seconds - 9.0).abs() < 1e-9);
        assert!((stats.serving_account_seconds - 17.0).abs() < 1e-9);
    }

    #[test]
    fn a_reset_keeps_open_streams_and_cool_downs() {
        let start = Instant::now();
        let mut accounts = Accounts::new(1, 8, start);
        accounts.open("acct-01", start).unwrap();
        accounts.cool("acct-01", Cause::Limited, seconds(60), start + seconds(1));
        accounts.reset(start + seconds(2));
        let stats = accounts.stats(start + seconds(3));
        assert_eq!((stats.in_flight, stats.streams_total), (1, 0));
        assert!((stats.used_slot_seconds - 1.0).abs() < 1e-9);
        assert_eq!(stats.accounts[0].peak, 1);
        assert_eq!(stats.accounts[0].cooling_seconds_left, Some(58.0));
    }
}
