//! The daemon: start, run, stop. Puts the parts together in an order in which whatever can fail fails before anything
//! changed, and takes them apart again.
//!
//! ```text
//!   proxy sessions ─┐                    ┌─▶ replies to proxies
//!   control API ────┼─▶ driver (engine) ─┤
//!   kernel plane ───┘                    └─▶ views for control API and metrics
//! ```

mod answers;
pub mod archive;
pub mod audit;
pub mod bypass;
mod candidates;
pub mod checkpoint;
pub mod clients;
pub mod clock;
pub mod demand;
pub mod driver;
mod epoch;
mod event_log;
mod former;
pub mod handle;
pub mod journal;
mod key_merge;
pub mod key_orders;
pub mod key_overrides;
pub mod labels;
mod levels;
mod light;
pub mod messages;
mod notify;
mod orders;
pub mod page;
pub mod rates;
mod recording;
pub mod reload;
mod requests;
pub mod ring;
pub mod settings;
pub mod signals;
pub mod sites;
pub mod translate;
mod unprivileged;
mod upkeep;
pub mod view;

use crate::config::KernelConfig;
use crate::control;
use crate::kernel::{self, Plane};
use crate::metrics::{self, Recorder};
use crate::overload;
use crate::proxy::listener::{self, BACKLOG, BoundSocket};
use crate::proxy::peer::{Allowed, Peer};
use crate::proxy::session;
use crate::tuner::Tuner;
use anyhow::{Context, Result};
use archive::Archive;
use audit::Audit;
use bypass::Bypass;
use checkpoint::Checkpoint;
use demand::Demand;
use driver::{Driver, Parts};
use governor_common::wire::codec;
use governor_common::wire::reply::{ErrorCode, Reply};
use governor_engine::Engine;
use governor_engine::id::SessionId;
use handle::Handle;
use key_overrides::KeyOverrides;
use messages::Message;
use page::SignalPage;
use settings::Settings;
use signals::Signals;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::File;
use std::future::IntoFuture;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::{mpsc, watch};

/// Messages that wait for the driver; a full inbox slows its senders down.
const INBOX: usize = 1024;

/// Pause after the system had no descriptor or no memory for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Runs the daemon until it is told to stop. Signals that came before it is ready are applied then.
///
/// # Errors
/// It cannot start: the message names the part, what is wrong and what to do.
pub async fn run(settings: Settings, signals: Signals) -> Result<()> {
    let started = clock::now();
    let loaded = settings.loaded();
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    if let Some(note) = settings.note() {
        tracing::info!("{note}");
    }
    let config = loaded.config.clone();
    let daemon = &config.daemon;
    let allowed = Allowed::from_names(&daemon.allow_users)?;
    let state = settings.state().clone();

    let proxies = listener::bind(&daemon.socket, daemon.socket_mode, daemon.socket_group.as_deref())
        .context("the proxy socket cannot be opened")
        .map_err(|error| unprivileged::advise(error, daemon))?;
    let control = listener::bind(&daemon.control_socket, daemon.control_mode, daemon.control_group.as_deref())
        .context("the control socket cannot be opened")
        .map_err(|error| unprivileged::advise(error, daemon))?;
    let scrapes = match daemon.metrics_listen {
        Some(address) => {
            let cannot = || {
                format!(
                    "metrics cannot listen on {address}: set daemon.metrics_listen to a free address, or to \"off\""
                )
            };
            let listener = TcpListener::bind(address).await.with_context(cannot)?;
            rustix::net::listen(&listener, BACKLOG.into()).with_context(cannot)?;
            Some(listener)
        }
        None => None,
    };
    if let Some(cap) = somaxconn().filter(|cap| *cap < BACKLOG.into()) {
        tracing::warn!(
            "the daemon's own listeners are clamped to a backlog of {cap}, not {BACKLOG}: net.core.somaxconn"
        );
    }
    let former = checkpoint::load(&state);
    let epoch = epoch::next(&state, &epochs_of(&former));
    let mut plane = start_kernel_plane(&config.kernel).await?;
    let seen = plane.observations();

    let (loads, carried) = watch::channel(Arc::default());
    let reports = overload::watch::spawn(config.overload.clone(), config.cgroups.clone(), seen.clone(), carried)
        .context("the system refuses a thread")?;
    let recorder = Recorder::default();
    // The first numbers stand for the sessions of the life before.
    let first_session = former.len().try_into().unwrap_or(u64::MAX).saturating_add(1);
    let parts = Parts {
        engine: Engine::new(config.policy.clone(), epoch)?,
        epoch,
        bypass: Bypass::load(&state),
        key_overrides: KeyOverrides::load(&state),
        archive: Archive::open(state.path()),
        audit: Audit::open(state.path()),
        demand: Demand::open(state.path(), daemon.record_bytes),
        overload: config.overload.clone(),
        loads,
        policy: config.policy.clone(),
        recorder: recorder.clone(),
        page: signal_page(epoch),
        closings: plane.take_closings(),
        former,
        checkpoint: Checkpoint::open(&state),
    };
    let (inbox, messages) = mpsc::channel(INBOX);
    let driver = Driver::new(parts, inbox.downgrade(), started);
    let driver = tokio::spawn(driver.run(messages));
    tokio::spawn(levels::forward(reports.clone(), inbox.downgrade()));
    let tuner =
        Tuner::spawn(config.tuner.clone(), &state, seen.clone(), reports.clone(), recorder.clone(), inbox.downgrade());
    let handle = Handle::new(inbox.clone(), seen, reports, settings, recorder, tuner.clone(), started);

    tokio::spawn(accept_proxies(proxies, allowed, inbox.clone(), first_session));
    let routes = control::server::routes(handle.clone());
    let control_service = routes.into_make_service_with_connect_info::<control::server::Caller>();
    let BoundSocket { listener, file } = control;
    tokio::spawn(async move {
        let _file = file;
        axum::serve(listener, control_service).into_future().await
    });
    if let Some(listener) = scrapes {
        tokio::spawn(axum::serve(listener, metrics::serve::routes(handle.clone())).into_future());
    }
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        tier = handle.observation().tier.as_str(),
        pools = config.policy.pools.len(),
        epoch,
        "governord is ready"
    );
    notify::ready("serving");

    let hand_over = Cell::new(false);
    let ended = tokio::select! {
        ended = driver => ended,
        never = signals.serve(&handle, &inbox, &hand_over) => match never {},
    };
    tuner.stop(!hand_over.get() && ended.is_ok()).await;
    // Blocks for the tick in progress: nothing else runs any more.
    if hand_over.get() || ended.is_err() {
        plane.hand_over();
    } else {
        plane.stop();
    }
    state.finish();
    ended.context("the driver panicked")?;
    tracing::info!("governord has stopped");
    Ok(())
}

/// `net.core.somaxconn` of the daemon's namespace, if it can be read.
fn somaxconn() -> Option<u32> {
    std::fs::read_to_string("/proc/sys/net/core/somaxconn").ok()?.trim().parse().ok()
}

/// The runs that restored leases are from, by the upper bits of their ids.
fn epochs_of(former: &[checkpoint::Former]) -> BTreeSet<u16> {
    let ids = former.iter().flat_map(|session| session.leases.iter().map(|lease| lease.id >> 48));
    ids.filter_map(|epoch| u16::try_from(epoch).ok()).collect()
}

fn signal_page(epoch: u16) -> Option<SignalPage> {
    SignalPage::create(epoch)
        .inspect_err(|error| tracing::warn!("degraded: no signal page, proxies are told the level by frames: {error}"))
        .ok()
}

async fn start_kernel_plane(config: &KernelConfig) -> Result<Plane> {
    let options = kernel::Options {
        require: config.require,
        forced_tier: config.tier,
        tick: config.tick,
        audit_every: config.audit,
        cgroup_root: None,
        max_listeners: Some(config.max_listeners),
        pins: config.pins.clone(),
    };
    // Loading programs takes up to a second: not on the loop.
    let plane =
        tokio::task::spawn_blocking(move || kernel::spawn(options)).await.context("the kernel plane panicked")??;
    for reason in &plane.observations().borrow().degraded {
        tracing::warn!("degraded: {reason}");
    }
    Ok(plane)
}

/// Accepts proxies for as long as the daemon runs.
async fn accept_proxies(socket: BoundSocket, allowed: Allowed, driver: mpsc::Sender<Message>, mut next_session: u64) {
    let mut spare = File::open("/dev/null").ok();
    loop {
        match socket.listener.accept().await {
            Ok((stream, _)) => match Peer::of(&stream) {
                Ok(peer) if allowed.permits(&peer) => {
                    let session = SessionId(next_session);
                    next_session += 1;
                    tokio::spawn(session::serve(stream, session, peer, driver.clone()));
                }
                Ok(peer) => {
                    tracing::warn!(
                        pid = peer.pid,
                        uid = peer.uid,
                        "a proxy of a user that is not allowed was turned away"
                    );
                    deny(&stream, &format!("uid {} is not in daemon.allow_users", peer.uid));
                }
                Err(error) => tracing::warn!("a connection was closed: {error:#}"),
            },
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::error!(%error, "proxies cannot be accepted now");
                // The spare descriptor lets one waiting proxy in, to be closed: it learns at once and falls back.
                drop(spare.take());
                if let Ok(turned_away) = tokio::time::timeout(ACCEPT_PAUSE, socket.listener.accept()).await {
                    drop(turned_away);
                }
                spare = File::open("/dev/null").ok();
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Says why before the connection closes. A fresh socket takes one small frame without waiting.
fn deny(stream: &UnixStream, why: &str) {
    let mut bytes = bytes::BytesMut::new();
    let reply = Reply::Error { code: ErrorCode::Denied, message: why.to_owned() };
    if codec::encode_reply(&reply, 0, &mut bytes).is_ok()
        && let Err(error) = stream.try_write(&bytes)
    {
        tracing::debug!(%error, "the reason could not be sent");
    }
}

/// Routes panics of contained tasks to the log; the default hook would write to a stream nobody may read.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        let message = panic.payload_as_str().unwrap_or("no message");
        tracing::error!(place, message, "a task panicked; this is a bug in governord");
    }));
}
