//! The gateway's end: told to stop, it first fails its readiness check, so that nobody sends it more, then accepts no
//! more, waits for what runs, WebSockets included, and ends. Told twice, or when the grace is over, it ends at once.

use axum::Router;
use governor_client::tower::Connection;
use governor_client::tower::axum::Listener;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::sleep;

/// Where the gateway is on its way out. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Drain {
    leave: Duration,
    grace: Duration,
    leaving: Arc<watch::Sender<bool>>,
    /// Joined connections that the server does not know of any more.
    staying: Arc<watch::Sender<usize>>,
}

/// Keeps the gateway from ending, within the grace.
#[derive(Debug)]
pub(crate) struct Stay(Arc<watch::Sender<usize>>);

impl Drain {
    /// `leave`: from the failing readiness check to the last accept. `grace`: from there to the end, at most.
    pub(crate) fn new(leave: Duration, grace: Duration) -> Self {
        Self { leave, grace, leaving: Arc::default(), staying: Arc::default() }
    }

    /// The gateway was told to stop.
    pub(crate) fn is_leaving(&self) -> bool {
        *self.leaving.borrow()
    }

    /// How many [`Stay`]s there are.
    pub(crate) fn staying(&self) -> usize {
        *self.staying.borrow()
    }

    /// Waits for what this is given to, in the end.
    pub(crate) fn stay(&self) -> Stay {
        self.staying.send_modify(|staying| *staying += 1);
        Stay(Arc::clone(&self.staying))
    }

    /// Serves until told to stop, and then until everything has ended or may not go on.
    pub(crate) async fn serve(&self, listener: TcpListener, app: Router) -> anyhow::Result<()> {
        let mut signals = Signals::new()?;
        let (stop, mut stopping) = watch::channel(false);
        let stopped = async move {
            stopping.wait_for(|stop| *stop).await.ok();
        };
        // The layer learns each request's connection from here.
        let app = app.into_make_service_with_connect_info::<Connection>();
        let server = axum::serve(Listener::new(listener), app).with_graceful_shutdown(stopped);
        let mut staying = self.staying.subscribe();
        let all = async {
            server.await?;
            staying.wait_for(|staying| *staying == 0).await?;
            anyhow::Ok(())
        };
        let told = async {
            signals.next().await;
            tracing::info!("leaving");
            self.leaving.send_replace(true);
            let hurry = tokio::select! { () = sleep(self.leave) => false, () = signals.next() => true };
            stop.send_replace(true);
            if !hurry {
                tokio::select! { () = sleep(self.grace) => {}, () = signals.next() => {} }
            }
            tracing::warn!("what still runs is cut");
        };
        tokio::select! { ended = all => ended, () = told => Ok(()) }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.0.send_modify(|staying| *staying -= 1);
    }
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! { _ = self.terminate.recv() => {}, _ = self.interrupt.recv() => {} }
    }
}
