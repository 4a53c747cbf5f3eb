//! A simulated AI provider on loopback: accounts with a few slots each, streamed answers of heavy-tailed length, and a
//! true 429 when an account is over its slots or was told to cool. It knows nothing of the governor: what it counts is
//! what a provider would count, so its figures are an independent check of the gateway's.
//!
//! | request | answer |
//! |---|---|
//! | any other path, header `x-account: acct-01` | a stream of server-sent events, or 429 |
//! | `GET /admin/stats` | streams per account, integrals of use since the last reset |
//! | `POST /admin/reset` | starts counts and integrals anew |
//! | `POST /admin/cool?account=acct-03&seconds=30` | 429 to that account's new requests; 0 ends it |

mod accounts;
mod dialect;
mod duration;

use accounts::{Accounts, Refusal, Stats};
use anyhow::Context;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use clap::Parser;
use dialect::Dialect;
use duration::HeavyTail;
use futures_util::stream;
use http_body_util::BodyExt;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// Time between two pieces of a stream.
const PIECE_EVERY: Duration = Duration::from_millis(100);

/// What a full account tells its caller: it cannot know when one of its streams ends.
const FULL_RETRY_AFTER: Duration = Duration::from_secs(1);

/// A simulated AI provider with accounts, slots and streamed answers.
///
/// The defaults run about five times faster than life: a median answer of 0.6 s stands for one of 3 s, and the longest
/// of 8 s for one of 40 s.
#[derive(Debug, Parser)]
struct Cli {
    /// Address to listen on; the chosen port is printed
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Number of accounts
    #[arg(long, default_value_t = 14, value_parser = clap::value_parser!(u32).range(1..=1000))]
    accounts: u32,
    /// Streams each account runs at once
    #[arg(long, default_value_t = 8)]
    slots: u32,
    /// Median duration of a stream, in milliseconds
    #[arg(long, default_value_t = 600)]
    median_ms: u64,
    /// Spread of the durations: the standard deviation of their logarithm
    #[arg(long, default_value_t = 1.1)]
    sigma: f64,
    /// Longest duration of a stream, in milliseconds
    #[arg(long, default_value_t = 8000)]
    longest_ms: u64,
    /// Seed of the durations
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug)]
struct Provider {
    accounts: Mutex<Accounts>,
    durations: HeavyTail,
    rng: Mutex<StdRng>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let provider = Arc::new(Provider {
        accounts: Mutex::new(Accounts::new(cli.accounts, cli.slots, Instant::now())),
        durations: HeavyTail {
            median: Duration::from_millis(cli.median_ms),
            sigma: cli.sigma,
            longest: Duration::from_millis(cli.longest_ms),
        },
        rng: Mutex::new(StdRng::seed_from_u64(cli.seed)),
    });
    let app = axum::Router::new()
        .route("/admin/stats", get(stats))
        .route("/admin/reset", post(reset))
        .route("/admin/cool", post(cool))
        .fallback(answer)
        .with_state(provider);

    let listener =
        tokio::net::TcpListener::bind(cli.listen).await.with_context(|| format!("cannot listen on {}", cli.listen))?;
    announce(listener.local_addr()?);
    let listener = listener.tap_io(|stream| {
        // Small pieces go out as they come. Failing means the reader is gone, which shows at the next write.
        stream.set_nodelay(true).ok();
    });
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        served = async { axum::serve(listener, app).await } => served.context("cannot serve"),
        _ = terminate.recv() => Ok(()),
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

#[expect(clippy::print_stdout, reason = "whoever started this program reads the port here")]
fn announce(address: SocketAddr) {
    println!("listening on {address}");
}

/// One request to the provider: a slot, a first piece after a short thought, then a piece every [`PIECE_EVERY`].
async fn answer(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let dialect = Dialect::of_path(head.uri.path());
    if let Err(error) = read_through(body).await {
        return (StatusCode::BAD_REQUEST, format!("broken request body: {error}\n")).into_response();
    }
    let account = head.headers.get("x-account").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let slot = match Slot::take(&provider, account) {
        Ok(slot) => slot,
        Err(Refusal::Full) => return dialect.rate_limited("too many concurrent requests", FULL_RETRY_AFTER),
        Err(Refusal::Cooling(left)) => return dialect.rate_limited("rate limit of this account reached", left),
        Err(Refusal::Unknown) => {
            return (StatusCode::BAD_REQUEST, format!("header x-account names no account: {account:?}\n"))
                .into_response();
        }
    };
    let (duration, thought) = provider.draw();
    let ends = Instant::now() + duration;
    tokio::time::sleep(thought).await;

    let first = Streaming { dialect, ends, pieces: 0, slot: Some(slot) };
    let pieces = stream::unfold(first, |mut streaming| async move {
        let piece = streaming.next().await?;
        Some((Ok::<_, Infallible>(piece), streaming))
    });
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(pieces)).into_response()
}

/// Reads a request to its end without keeping it: a provider answers when it has seen the whole question.
async fn read_through(mut body: Body) -> Result<(), axum::Error> {
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(())
}

async fn stats(State(provider): State<Arc<Provider>>) -> Json<Stats> {
    Json(provider.accounts().stats(Instant::now()))
}

async fn reset(State(provider): State<Arc<Provider>>) -> StatusCode {
    provider.accounts().reset(Instant::now());
    StatusCode::NO_CONTENT
}

#[derive(serde::Deserialize)]
struct CoolDown {
    account: String,
    seconds: u32,
}

async fn cool(State(provider): State<Arc<Provider>>, Query(order): Query<CoolDown>) -> Response {
    let duration = Duration::from_secs(order.seconds.into());
    if provider.accounts().cool(&order.account, duration, Instant::now()) {
        StatusCode::NO_CONTENT.into_response()
    } else {
        (StatusCode::NOT_FOUND, format!("no account is named {}\n", order.account)).into_response()
    }
}

impl Provider {
    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        // A panic elsewhere cannot leave the counts half changed: every change is one assignment.
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A duration for one answer, and how much of it passes before the first byte.
    fn draw(&self) -> (Duration, Duration) {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        let duration = self.durations.sample(&mut *rng);
        let thought = Duration::from_millis(rng.random_range(20..80));
        (duration, thought.min(duration / 2))
    }
}

/// A slot of an account, given back when the stream ends or its reader goes away.
#[derive(Debug)]
struct Slot {
    provider: Arc<Provider>,
    account: usize,
}

impl Slot {
    fn take(provider: &Arc<Provider>, account: &str) -> Result<Self, Refusal> {
        let account = provider.accounts().open(account, Instant::now())?;
        Ok(Self { provider: Arc::clone(provider), account })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.provider.accounts().close(self.account, Instant::now());
    }
}

#[derive(Debug)]
struct Streaming {
    dialect: Dialect,
    ends: Instant,
    pieces: u32,
    slot: Option<Slot>,
}

impl Streaming {
    async fn next(&mut self) -> Option<Bytes> {
        self.slot.as_ref()?;
        let left = self.ends.saturating_duration_since(Instant::now());
        if self.pieces > 0 {
            tokio::time::sleep(left.min(PIECE_EVERY)).await;
        }
        if self.pieces > 0 && left <= PIECE_EVERY {
            // The slot is free before the reader can see the end, as the account of a provider would be.
            self.slot = None;
            return Some(self.dialect.end());
        }
        self.pieces += 1;
        Some(self.dialect.piece(self.pieces))
    }
}
