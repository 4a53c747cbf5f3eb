//! An AI gateway in one process: a reverse proxy that streams, with the governor's layer in front. `--no-governor`
//! leaves the layer out and admits first come, first served, for comparison.
//!
//! What a gateway of your own needs from here is in [`app`]: start a [`Governor`], put a [`GovernorLayer`] before the
//! handler, and read the account to use from the request's [`LeaseHandle`](governor_client::LeaseHandle) (`forward`).

mod first_come;
mod forward;
mod seat;

use anyhow::Context;
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::routing::get;
use axum::serve::ListenerExt;
use clap::Parser;
use first_come::FirstCome;
use forward::{Proxy, forward};
use governor_client::tower::{GovernorLayer, bearer_or_api_key};
use governor_client::{AcquireRequest, Config, Governor};
use seat::Admission;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

/// An AI gateway that asks the governor.
#[derive(Debug, Parser)]
struct Cli {
    /// Address to listen on; the chosen port is printed
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Backlog of the listener
    #[arg(long, default_value_t = 1024)]
    backlog: u32,
    /// Host and port of the provider
    #[arg(long)]
    upstream: Authority,
    /// The governor's proxy socket
    #[arg(long, default_value = "/run/governor/proxy.sock")]
    socket: PathBuf,
    /// The governor's pool that stands for the provider
    #[arg(long, default_value = "chat")]
    pool: String,
    /// Admit first come, first served, refuse at once when no slot is free
    #[arg(long)]
    no_governor: bool,
    /// Accounts of the provider, named acct-01 and so on
    #[arg(long, default_value_t = 14, requires = "no_governor")]
    accounts: u32,
    /// Slots an account has for ordinary requests
    #[arg(long, default_value_t = 7, requires = "no_governor")]
    ordinary_slots: u32,
    /// After SIGTERM running streams may go on for this long, in seconds
    #[arg(long, default_value_t = 10)]
    grace_seconds: u64,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();

    let listener = listen(cli.listen, cli.backlog).with_context(|| format!("cannot listen on {}", cli.listen))?;
    announce(listener.local_addr()?);
    let listener = listener.tap_io(|stream| {
        // A stream's small pieces go out as they come. Failing means the client is gone, which shows at the next write.
        stream.set_nodelay(true).ok();
    });

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (stop, mut stopping) = watch::channel(false);
    let stopped = async move {
        stopping.wait_for(|stop| *stop).await.ok();
    };
    let serve = axum::serve(listener, app(&cli)).with_graceful_shutdown(stopped);
    let grace = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.send_replace(true);
        tokio::time::sleep(Duration::from_secs(cli.grace_seconds)).await;
    };
    tokio::select! {
        served = async { serve.await } => served.context("cannot serve"),
        () = grace => Ok(()),
    }
}

/// The routes, with admission in front of them.
fn app(cli: &Cli) -> axum::Router {
    let routes = axum::Router::new().route("/healthz", get(|| async { "ok\n" })).fallback(forward);
    let upstream = cli.upstream.clone();
    if cli.no_governor {
        let pool = FirstCome::new(cli.accounts, cli.ordinary_slots);
        return routes.with_state(Arc::new(Proxy::new(upstream, Admission::FirstCome(Arc::new(pool)))));
    }
    let governor = Governor::start(Config { name: "gateway".to_owned(), ..Config::new(&cli.socket) });
    routes
        .with_state(Arc::new(Proxy::new(upstream, Admission::Governor(governor.clone()))))
        .layer(GovernorLayer::new(governor, &cli.pool).extract(identify))
}

/// The key as usual; the name a client gives itself becomes the label on the operator's screen.
fn identify(governor: &Governor, head: &Parts, ask: AcquireRequest) -> AcquireRequest {
    let ask = bearer_or_api_key(governor, head, ask);
    match head.headers.get("x-client-name").and_then(|name| name.to_str().ok()) {
        Some(name) if name.len() <= 64 => ask.label(name),
        Some(_) | None => ask,
    }
}

/// The usual `bind` leaves the backlog to a library's constant; a gateway should know its own.
fn listen(address: SocketAddr, backlog: u32) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(backlog)
}

#[expect(clippy::print_stdout, reason = "whoever started this program reads the port here")]
fn announce(address: SocketAddr) {
    println!("listening on {address}");
}
