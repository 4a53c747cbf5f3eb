//! Handlers with faults of the kinds that real ones have, for tests of what becomes of their slots. Served only when
//! asked for.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::Response;
use axum::routing::post;
use futures_util::stream;
use std::convert::Infallible;

/// `/v1/panic/chat/completions` and `/v1/panic-in-body/chat/completions`: counted, as every chat completion is.
pub(crate) fn routes() -> Router {
    Router::new()
        .route("/v1/panic/chat/completions", post(panic_at_once))
        .route("/v1/panic-in-body/chat/completions", post(panic_in_body))
}

async fn panic_at_once() -> Response {
    panic!("a handler with a fault");
}

async fn panic_in_body() -> Response {
    let pieces = stream::unfold(0, |piece| async move {
        assert!(piece == 0, "a body with a fault");
        Some((Ok::<_, Infallible>(Bytes::from_static(b"data: {}\n\n")), piece + 1))
    });
    Response::new(Body::from_stream(pieces))
}
