//! The daemon: start, run, stop. Puts the parts together in an order in which whatever can fail fails before anything
//! changed, and takes them apart again.
//!
//! ```text
//!   proxy sessions ─┐                    ┌─▶ replies to proxies
//!   control API ────┼─▶ driver (engine) ─┤
//!   kernel plane ───┘                    └─▶ views for control API and metrics
//! ```

pub mod assessment;
pub mod signals;

use crate::config::{DaemonConfig, KernelConfig};
use crate::control::{self, serving};
use crate::driver::restart::{checkpoint, epoch};
use crate::driver::sessions::page::SignalPage;
use crate::driver::{Driver, Parts, levels};
use crate::metrics;
use crate::node::handle::Handle;
use crate::node::settings::Settings;
use crate::node::sockets::SocketConfig;
use crate::process::{clock, notify, unprivileged};
use crate::proxy::accept::Accept;
use crate::proxy::census::{Bounds, Census};
use crate::recorder::Recorder;
use crate::transport::listener::BACKLOG;
use crate::transport::peer::Allowed;
use crate::tuner::Tuner;
use anyhow::{Context, Result};
use governor_kernel::Plane;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signals::Signals;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

/// Messages that wait for the driver; a full inbox slows its senders down.
const INBOX: usize = 1024;

/// Runs the daemon until it is asked to stop. Signals that came before it is ready are applied then.
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

    let (proxy_socket, control_socket) = (SocketConfig::of_proxies(daemon), SocketConfig::of_control(daemon));
    let proxies = proxy_socket
        .bind()
        .context("the proxy socket cannot be opened")
        .map_err(|error| unprivileged::advise(error, daemon))?;
    let control = control_socket
        .bind()
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
    let scrapes_by_file = match SocketConfig::of_metrics(daemon) {
        Some(socket) => Some((socket.bind().context("the metrics socket cannot be opened")?, socket)),
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
    let reports = assessment::spawn(config.overload.clone(), config.cgroups.clone(), seen.clone(), carried)
        .context("the system refuses a thread")?;
    let recorder = Recorder::default();
    // The first numbers stand for the sessions of the previous run.
    let first_session = former.len().try_into().unwrap_or(u64::MAX).saturating_add(1);
    let parts = Parts {
        loads,
        recorder: recorder.clone(),
        page: signal_page(epoch),
        closings: plane.take_closings(),
        former,
        ..Parts::open(&config, &state, epoch)?
    };
    let (inbox, messages) = mpsc::channel(INBOX);
    let driver = Driver::new(parts, inbox.downgrade(), started);
    let driver = tokio::spawn(driver.run(messages));
    tokio::spawn(levels::forward(reports.clone(), inbox.downgrade()));
    let tuner =
        Tuner::spawn(config.tuner.clone(), &state, seen.clone(), reports.clone(), recorder.clone(), inbox.downgrade());
    let handle = Handle::new(inbox.clone(), seen, reports, settings, recorder, tuner.clone(), started);

    let accept = Accept::new(allowed, Census::new(session_bounds(daemon)), inbox.clone(), first_session);
    handle.sockets().serve(proxy_socket, proxies, move |listener| tokio::spawn(accept.clone().proxies(listener)));
    let routes = control::server::routes(handle.clone());
    handle
        .sockets()
        .serve(control_socket, control, move |listener| tokio::spawn(serving::unix(listener, routes.clone())));
    if let Some(listener) = scrapes {
        tokio::spawn(serving::tcp(listener, metrics::serve::routes(handle.clone())));
    }
    if let Some((bound, socket)) = scrapes_by_file {
        let routes = metrics::serve::routes(handle.clone());
        handle.sockets().serve(socket, bound, move |listener| tokio::spawn(serving::unix(listener, routes.clone())));
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
    // They hold the handle, and the handle holds them.
    handle.sockets().close();
    state.finish();
    ended.context("the driver panicked")?;
    tracing::info!("governord has stopped");
    Ok(())
}

/// How many proxies may connect: as configured, and as the limit of descriptors leaves room for.
fn session_bounds(daemon: &DaemonConfig) -> Bounds {
    let asked = Bounds { total: daemon.max_sessions, per_uid: daemon.max_sessions_per_uid };
    let limit = raise_descriptor_limit();
    let bounds = asked.within(limit);
    if bounds != asked {
        tracing::warn!(
            limit,
            "degraded: the limit of descriptors leaves room for {} proxy sessions and {} of one user, not {} and {}: raise \
             LimitNOFILE= of the unit or lower daemon.max_sessions",
            bounds.total,
            bounds.per_uid,
            asked.total,
            asked.per_uid
        );
    }
    bounds
}

/// Raises the soft limit of descriptors to the hard one, as far as that is allowed; the limit then.
fn raise_descriptor_limit() -> u64 {
    let before = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before }) {
        tracing::debug!(%error, "the limit of descriptors stays as it is");
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
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
    let options = governor_kernel::Options {
        require: config.require,
        forced_tier: config.tier,
        tick: config.tick,
        audit_every: config.audit,
        cgroup_root: None,
        max_listeners: Some(config.max_listeners),
        pins: config.pins.clone(),
    };
    // Loading programs takes up to a second: not on the loop.
    let plane = tokio::task::spawn_blocking(move || governor_kernel::spawn(options))
        .await
        .context("the kernel plane panicked")??;
    for reason in &plane.observations().borrow().degraded {
        tracing::warn!("degraded: {reason}");
    }
    Ok(plane)
}

/// Routes panics of contained tasks to the log; the default hook would write to a stream that may have no reader.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        let message = panic.payload_as_str().unwrap_or("no message");
        tracing::error!(place, message, "a task panicked; this is a bug in governord");
    }));
}
