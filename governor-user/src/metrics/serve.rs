//! `/metrics` and `/healthz` over loopback TCP. Read-only; nothing about overload is a health answer.

use super::families::{self, Shown};
use super::negotiate::TextFormat;
use crate::node::handle::Handle;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// The routes.
pub fn routes(handle: Handle) -> Router {
    Router::new().route("/metrics", get(metrics)).route("/healthz", get(|| async { "ok\n" })).with_state(handle)
}

async fn metrics(State(handle): State<Handle>, asked: HeaderMap) -> Response {
    let Some(view) = handle.view().await else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping\n").into_response();
    };
    let seen = handle.observation();
    let report = handle.report();
    let shown = Shown { view: &view, seen: &seen, report: &report, recorder: handle.recorder() };
    if let Some(answer) = protobuf(&asked, shown) {
        return answer;
    }
    let accept: Vec<&str> = asked.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok()).collect();
    let format = TextFormat::of(&accept.join(","));
    match families::render(shown, format) {
        Ok(text) => ([(header::CONTENT_TYPE, format.content_type()), (header::VARY, "accept")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// The answer for a scraper that can read native histograms, which text has no room for.
#[cfg(feature = "native-histograms")]
fn protobuf(asked: &HeaderMap, shown: Shown<'_>) -> Option<Response> {
    const PROTOBUF: &str =
        "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
    let accepted = asked.get(header::ACCEPT)?.to_str().ok()?;
    if !accepted.contains("application/vnd.google.protobuf") {
        return None;
    }
    Some(match families::render_protobuf(shown) {
        Ok(bytes) => ([(header::CONTENT_TYPE, PROTOBUF)], bytes).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    })
}

/// The text format, for every scraper.
#[cfg(not(feature = "native-histograms"))]
fn protobuf(_asked: &HeaderMap, _shown: Shown<'_>) -> Option<Response> {
    None
}
