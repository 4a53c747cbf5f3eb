//! `/metrics` and `/healthz` over loopback TCP. Read-only; nothing about overload is a health answer.

use super::families;
use crate::daemon::handle::Handle;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// Content type of OpenMetrics text.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The routes.
pub fn routes(handle: Handle) -> Router {
    Router::new().route("/metrics", get(metrics)).route("/healthz", get(|| async { "ok\n" })).with_state(handle)
}

async fn metrics(State(handle): State<Handle>) -> Response {
    let Some(view) = handle.view().await else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the daemon is stopping\n").into_response();
    };
    let seen = handle.observation();
    match families::render(&view, &seen, handle.recorder()) {
        Ok(text) => ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
