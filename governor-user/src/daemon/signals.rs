//! Signals of the process: registered before anything else of a start, applied once the daemon is ready. What a signal
//! does is decided here; how a reload works is in [`crate::node::reload`].

use crate::driver::messages::Message;
use crate::node::handle::Handle;
use crate::node::reload;
use crate::process::notify;
use anyhow::{Context, Result};
use std::cell::Cell;
use std::convert::Infallible;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// Every signal the daemon acts on. One that arrives while nothing waits for it is kept; several of a kind count once.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    reload: Signal,
    hand_over: Signal,
}

impl Signals {
    /// Registers the handlers. The default action of each of these signals ends a process, so this is the first step of a
    /// start: a reload or a restart that comes before the daemon is ready waits for it.
    ///
    /// # Errors
    /// The runtime has no descriptor left for its signal pipe.
    ///
    /// # Panics
    /// Outside a runtime with I/O.
    pub fn register() -> Result<Self> {
        let listen = |kind: SignalKind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            reload: listen(SignalKind::hangup())?,
            hand_over: listen(SignalKind::user_defined2())?,
        })
    }

    /// Acts on signals until the daemon has ended. SIGHUP reloads; SIGTERM and SIGINT stop, a second one without waiting
    /// for leases; SIGUSR2 stops for a successor, which takes over what is pinned in the kernel.
    pub(crate) async fn serve(
        mut self,
        handle: &Handle,
        inbox: &mpsc::Sender<Message>,
        hand_over: &Cell<bool>,
    ) -> Infallible {
        loop {
            tokio::select! {
                _ = self.reload.recv() => {
                    // It has reported what is wrong; a signal has no answer.
                    drop(reload::reload(handle, "SIGHUP").await);
                    continue;
                }
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
                _ = self.hand_over.recv() => hand_over.set(true),
            }
            let within = handle.settings().lock().await.loaded().config.daemon.drain_timeout;
            tracing::info!(within = ?within, "stopping: waiting for leases to end");
            notify::stopping();
            // A driver that is gone has ended the daemon already.
            drop(inbox.send(Message::Stop { within }).await);
        }
    }
}
