//! A simulated AI provider on loopback: accounts with a few slots each, answers of heavy-tailed length, and true
//! refusals when an account is over its slots or was told to cool. It knows nothing of the governor: what it counts is
//! what a provider would count, so its figures are an independent check of the gateway's.
//!
//! | request, with header `x-account: acct-01` | answer |
//! |---|---|
//! | `POST /v1/chat/completions`, `/v1/messages`, any other path | words, in one piece or streamed, or a refusal |
//! | `POST /v1/embeddings`, `/v1/moderations` | after a short thought |
//! | `GET /v1/realtime` | a WebSocket that says back what it is told |
//!
//! A question may say how its answer is to go wrong: `"simulate": {"status": 502}`, `{"delay_ms": 900}`, `{"hang": true}`,
//! `{"cut_after": 3}`; `{"word_ms": 20}` sets the pace, `"max_tokens": 3` the longest answer in words.
//!
//! | request of whoever runs the test | answer |
//! |---|---|
//! | `GET /admin/stats` | streams per account, integrals of use since the last reset |
//! | `POST /admin/reset` | starts counts and integrals anew |
//! | `POST /admin/cool?account=acct-03&seconds=30` | 429 to that account's new requests; 0 ends it |
//! | … `&status=529` | its provider's "overloaded" instead: 529, or OpenAI's 503 |

mod accounts;
mod answer;
mod dialect;
mod duration;
mod provider;
mod question;
mod realtime;
mod refusal;

use accounts::{Cause, Stats};
use anyhow::Context;
use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::serve::ListenerExt;
use clap::Parser;
use duration::HeavyTail;
use provider::Provider;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

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

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let durations = HeavyTail {
        median: Duration::from_millis(cli.median_ms),
        sigma: cli.sigma,
        longest: Duration::from_millis(cli.longest_ms),
    };
    let provider = Arc::new(Provider::new(cli.accounts, cli.slots, durations, cli.seed));

    let listener =
        tokio::net::TcpListener::bind(cli.listen).await.with_context(|| format!("cannot listen on {}", cli.listen))?;
    announce(listener.local_addr()?);
    let listener = listener.tap_io(|stream| {
        // Small pieces go out as they come. Failing means the reader is gone, which shows at the next write.
        stream.set_nodelay(true).ok();
    });
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        served = async { axum::serve(listener, app(provider)).await } => served.context("cannot serve"),
        _ = terminate.recv() => Ok(()),
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

fn app(provider: Arc<Provider>) -> axum::Router {
    axum::Router::new()
        .route("/admin/stats", get(stats))
        .route("/admin/reset", post(reset))
        .route("/admin/cool", post(cool))
        .route("/v1/models", get(models))
        .route("/v1/embeddings", post(answer::embed))
        .route("/v1/moderations", post(answer::moderate))
        .route("/v1/realtime", any(realtime::realtime))
        .fallback(answer::answer)
        .with_state(provider)
}

#[expect(clippy::print_stdout, reason = "whoever started this program reads the port here")]
fn announce(address: SocketAddr) {
    println!("listening on {address}");
}

async fn models() -> Json<Value> {
    Json(json!({"object": "list", "data": [{"id": "demo", "object": "model", "created": 0, "owned_by": "demo"}]}))
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
    /// What it answers meanwhile: 429 unless said.
    status: Option<u16>,
}

async fn cool(State(provider): State<Arc<Provider>>, Query(order): Query<CoolDown>) -> Response {
    let cause = match order.status {
        None | Some(429) => Cause::Limited,
        Some(529 | 503) => Cause::Overloaded,
        Some(other) => return (StatusCode::BAD_REQUEST, format!("no account answers {other}\n")).into_response(),
    };
    let duration = Duration::from_secs(order.seconds.into());
    if provider.accounts().cool(&order.account, cause, duration, Instant::now()) {
        StatusCode::NO_CONTENT.into_response()
    } else {
        (StatusCode::NOT_FOUND, format!("no account is named {}\n", order.account)).into_response()
    }
}
