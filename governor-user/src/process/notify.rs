//! Notifications to the service manager (sd_notify): ready, reloading, stopping, and the keep-alive of its watchdog.
//! Without `NOTIFY_SOCKET` in the environment all of it does nothing.
//!
//! A thread of its own sends them, because a service manager that hangs fills its socket and would block the sender. The
//! loop only queues; what does not fit into the queue is dropped.

use crate::process::clock;
use governor_engine::time::{Duration, Instant};
use sd_notify::NotifyState;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Notifications that wait for the service manager. Within its patience a daemon sends a handful.
const QUEUE: usize = 16;

/// Keep-alives per watchdog timeout: two may be late or lost.
const PER_TIMEOUT: u32 = 3;

/// The queue of the sending thread; `None` without a service manager. Of the process, as the environment is.
static OUTBOX: OnceLock<Option<SyncSender<Notice>>> = OnceLock::new();

#[derive(Debug)]
enum Notice {
    /// Serving, or serving again after a reload; with a line for `systemctl status`.
    Ready(String),
    Reloading,
    Stopping,
    Alive,
}

/// The sockets listen and the daemon decides. Also ends what [`reloading`] began; `status` is for people.
pub(crate) fn ready(status: &str) {
    // A line feed would begin another notification.
    send(Notice::Ready(status.replace('\n', "; ")));
}

/// A reload begins; [`ready`] ends it, whether it succeeded or not.
pub(crate) fn reloading() {
    send(Notice::Reloading);
}

/// A stop begins: the watchdog is not fed any more.
pub(crate) fn stopping() {
    send(Notice::Stopping);
}

/// When the driver's loop has to show the service manager's watchdog that it runs. Only an iteration of the loop sends the
/// keep-alive, so a loop that is stalled ends the process.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// Interval of the keep-alives; `None`: there is no watchdog.
    every: Option<Duration>,
    due: Instant,
}

impl Watchdog {
    /// As `WATCHDOG_USEC` of this process says.
    pub(crate) fn from_environment() -> Self {
        Self::with_timeout(sd_notify::watchdog_enabled(), clock::now())
    }

    fn with_timeout(timeout: Option<Duration>, now: Instant) -> Self {
        Self { every: timeout.map(|timeout| timeout / PER_TIMEOUT), due: now }
    }

    /// When the next keep-alive is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.every.map(|_| self.due)
    }

    /// Sends the keep-alive if it is due.
    pub(crate) fn feed(&mut self, now: Instant) {
        if self.is_due(now) {
            send(Notice::Alive);
        }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let Some(every) = self.every.filter(|_| now >= self.due) else { return false };
        self.due = now.after(every);
        true
    }
}

fn send(notice: Notice) {
    if let Some(outbox) = OUTBOX.get_or_init(start)
        && let Err(error) = outbox.try_send(notice)
    {
        tracing::debug!(%error, "the service manager does not take notifications");
    }
}

fn start() -> Option<SyncSender<Notice>> {
    std::env::var_os("NOTIFY_SOCKET")?;
    let (outbox, notices) = sync_channel(QUEUE);
    let thread = std::thread::Builder::new().name("notify".to_owned()).spawn(move || forward(&notices));
    thread.inspect_err(|error| tracing::warn!(%error, "the service manager is not notified: no thread for it")).ok()?;
    Some(outbox)
}

fn forward(notices: &Receiver<Notice>) {
    let mut failed = false;
    for notice in notices {
        let sent = match &notice {
            Notice::Ready(status) => sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(status)]),
            Notice::Reloading => {
                NotifyState::monotonic_usec_now().and_then(|now| sd_notify::notify(&[NotifyState::Reloading, now]))
            }
            Notice::Stopping => sd_notify::notify(&[NotifyState::Stopping]),
            Notice::Alive => sd_notify::notify(&[NotifyState::Watchdog]),
        };
        match sent {
            Ok(()) => failed = false,
            // Once per outage: the keep-alives would repeat it every few seconds.
            Err(error) if !failed => {
                failed = true;
                tracing::warn!(%error, ?notice, "the service manager could not be notified: NOTIFY_SOCKET");
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep_alives_come_three_times_per_timeout() {
        let start = Instant(0);
        let mut watchdog = Watchdog::with_timeout(Some(Duration::from_secs(30)), start);
        assert!(watchdog.is_due(start));
        assert_eq!(watchdog.due(), Some(start.after(Duration::from_secs(10))));
        assert!(!watchdog.is_due(start.after(Duration::from_secs(9))));
        assert!(watchdog.is_due(start.after(Duration::from_secs(12))));
        assert_eq!(watchdog.due(), Some(start.after(Duration::from_secs(22))));
    }

    #[test]
    fn without_a_watchdog_nothing_is_due() {
        let mut watchdog = Watchdog::with_timeout(None, Instant(0));
        assert!(!watchdog.is_due(Instant(u64::MAX)));
        assert_eq!(watchdog.due(), None);
    }
}
