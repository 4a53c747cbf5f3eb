//! An AI gateway in one process: a reverse proxy that streams, with the governor's layer in front. It is the reference for
//! a gateway of your own, one concept a file; `README.md` beside this folder says where to find what. `--no-governor`
//! leaves the layer out and admits first come, first served, for comparison.

mod answer;
mod app;
mod caller;
mod cors;
mod drain;
mod faults;
mod first_come;
mod forward;
mod nested;
mod page;
mod pools;
mod seat;
mod upgrade;
mod upstream;

use anyhow::Context;
use caller::Callers;
use clap::Parser;
use cors::Origin;
use drain::Drain;
use pools::{PoolRule, PoolUpstream};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
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
    /// Host and port of the provider; POOL=HOST:PORT for the provider of another pool
    #[arg(long, required = true)]
    upstream: Vec<PoolUpstream>,
    /// Longest wait for the first byte of an answer, in milliseconds
    #[arg(long, default_value_t = 60_000)]
    first_byte_timeout_ms: u64,
    /// The governor's proxy socket
    #[arg(long, default_value = "/run/governor/proxy.sock")]
    socket: PathBuf,
    /// The governor's pool that stands for the provider
    #[arg(long, default_value = "chat")]
    pool: String,
    /// Another pool for some requests: embeddings=POOL (an endpoint), model:NAME=POOL (a model that the path names)
    #[arg(long)]
    pool_for: Vec<PoolRule>,
    /// File of known API keys with org, class and priority of each; without it every key is let in
    #[arg(long)]
    keys: Option<PathBuf>,
    /// Origin whose pages may call this gateway, * for every one; may be given more than once
    #[arg(long)]
    cors_origin: Vec<Origin>,
    /// Admit first come, first served, refuse at once when no slot is free
    #[arg(long)]
    no_governor: bool,
    /// Accounts of the provider, named acct-01 and so on
    #[arg(long, default_value_t = 14, requires = "no_governor")]
    accounts: u32,
    /// Slots an account has for ordinary requests
    #[arg(long, default_value_t = 7, requires = "no_governor")]
    ordinary_slots: u32,
    /// After SIGTERM /readyz fails for this long before the gateway stops to accept, in milliseconds
    #[arg(long, default_value_t = 0)]
    leave_ms: u64,
    /// After that running streams may go on for this long, in seconds
    #[arg(long, default_value_t = 10)]
    grace_seconds: u64,
    /// Serve routes that fail on purpose, for tests
    #[arg(long, hide = true)]
    test_routes: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();

    let callers = cli.keys.as_deref().map(Callers::read).transpose()?;
    let drain = Drain::new(Duration::from_millis(cli.leave_ms), Duration::from_secs(cli.grace_seconds));
    let app = app::app(&cli, callers, &drain);
    let listener = listen(cli.listen, cli.backlog).with_context(|| format!("cannot listen on {}", cli.listen))?;
    announce(listener.local_addr()?);
    drain.serve(listener, app).await
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
