//! Which requests take a slot. A table, one row per endpoint; everything else passes. Knows paths and methods only.

mod path;

use http::request::Parts;
use http::{Method, Version, header};

/// What governor does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Takes a slot; the name of the endpoint class goes into records.
    Counted(&'static str),
    /// Never counted and never shed: health, readiness, metrics, model lists, docs, OAuth. An overloaded node stays
    /// ready.
    Exempt,
    /// Never takes a slot, but may last for hours: counted apart, with a cap of its own.
    ExemptStream,
    /// Not in the table: passes without a slot, because only what is listed is known to cost upstream capacity. A POST is
    /// counted in [`Stats::unlisted_total`](crate::Stats::unlisted_total) and logged, so that a provider's new endpoint is
    /// noticed. [`GovernorLayer::count_unlisted`](crate::tower::GovernorLayer::count_unlisted) lets them all take slots,
    /// [`GovernorLayer::routes`](crate::tower::GovernorLayer::routes) names routes of the gateway's own.
    Unlisted,
}

/// Path suffixes whose POSTs are counted, and the endpoint class of each. A suffix matches whole segments from the end,
/// whatever prefix a gateway mounts them under (`/v1`, `/openai/v1`, a tenant); `*` is any one segment, `*:verb` one that
/// ends in `:verb`, as Google names its methods. Another case of the letters counts the same.
pub const COUNTED: &[(&str, &str)] = &[
    ("/chat/completions", "chat"),
    ("/completions", "completions"),
    ("/messages", "messages"),
    ("/responses", "responses"),
    ("/responses/compact", "responses"),
    ("/embeddings", "embeddings"),
    ("/moderations", "moderations"),
    ("/rerank", "rerank"),
    ("/ocr", "ocr"),
    ("/images/generations", "images"),
    ("/images/edits", "images"),
    ("/images/variations", "images"),
    ("/audio/speech", "speech"),
    ("/audio/transcriptions", "transcriptions"),
    ("/audio/translations", "transcriptions"),
    ("/videos", "videos"),
    ("/videos/*/remix", "videos"),
    ("/ai/language-model", "ai_sdk"),
    ("/ai/embedding-model", "ai_sdk"),
    ("/ai/image-model", "ai_sdk"),
    ("/*:generateContent", "generate_content"),
    ("/*:streamGenerateContent", "generate_content"),
    ("/*:embedContent", "embeddings"),
    ("/*:batchEmbedContents", "embeddings"),
    ("/*:predict", "predict"),
    ("/*:predictLongRunning", "videos"),
    ("/*:rawPredict", "messages"),
    ("/*:streamRawPredict", "messages"),
];

/// Path suffixes that are counted when a WebSocket is opened there, beside those of [`COUNTED`].
pub const COUNTED_SOCKETS: &[(&str, &str)] = &[("/realtime", "realtime")];

/// Path suffixes that are exempt for every method. Counting the tokens of a prompt generates nothing and has limits of its
/// own upstream.
pub const EXEMPT: &[&str] = &[
    "/health",
    "/healthz",
    "/livez",
    "/ready",
    "/readyz",
    "/metrics",
    "/models",
    "/docs",
    "/openapi.json",
    "/*:countTokens",
    "/messages/count_tokens",
    "/responses/input_tokens",
];

/// Path prefixes that are exempt for every method.
pub const EXEMPT_BELOW: &[&str] = &["/docs/", "/oauth/", "/.well-known/oauth-"];

/// Path suffixes of long-lived exempt streams.
pub const EXEMPT_STREAMS: &[&str] = &["/mcp", "/mcp/sse", "/sse"];

/// Classes a request. Opening a WebSocket on a counted path counts like a POST to it.
#[must_use]
pub fn of(head: &Parts) -> Route {
    if opens_socket(head) {
        let path = path::normal(head.uri.path());
        let socket = COUNTED_SOCKETS.iter().find(|(suffix, _)| path::ends_with(&path, suffix));
        if let Some(endpoint) = socket.map(|(_, endpoint)| *endpoint).or_else(|| endpoint(&path)) {
            return Route::Counted(endpoint);
        }
    }
    classify(&head.method, head.uri.path())
}

/// Classes a request by method and path. A trailing slash changes nothing, nor does another spelling of the same path
/// (`%63hat`, `//`, `/./`, `;v=1`): an upstream may read it as the path it stands for.
#[must_use]
pub fn classify(method: &Method, path: &str) -> Route {
    let path = path::normal(path);
    if let Some(endpoint) = endpoint(&path) {
        return if method == Method::POST { Route::Counted(endpoint) } else { Route::Unlisted };
    }
    let model = method == Method::GET && path::ends_with(&path, "/models/*");
    if model
        || EXEMPT.iter().any(|suffix| path::ends_with(&path, suffix))
        || EXEMPT_BELOW.iter().any(|prefix| path.starts_with(prefix))
    {
        return Route::Exempt;
    }
    if EXEMPT_STREAMS.iter().any(|suffix| path::ends_with(&path, suffix)) {
        return Route::ExemptStream;
    }
    Route::Unlisted
}

/// The endpoint class of a path, whatever the method.
#[must_use]
pub fn endpoint(path: &str) -> Option<&'static str> {
    row(path).map(|(_, endpoint)| endpoint)
}

/// The row of [`COUNTED`] that a path belongs to.
pub(crate) fn row(path: &str) -> Option<(&'static str, &'static str)> {
    let path = path::normal(path);
    let exact = COUNTED.iter().find(|(suffix, _)| path::ends_with(&path, suffix));
    // Some upstreams ignore the case of letters.
    exact.or_else(|| COUNTED.iter().find(|(suffix, _)| path::ends_with_in_any_case(&path, suffix))).copied()
}

/// The handshake of RFC 6455, or its form over HTTP/2 (RFC 8441).
fn opens_socket(head: &Parts) -> bool {
    if head.version >= Version::HTTP_2 {
        // A CONNECT with a path is an extended one: a plain CONNECT names an authority and nothing else.
        return head.method == Method::CONNECT && head.uri.path().len() > 1;
    }
    let upgrades = head.headers.get_all(header::UPGRADE).iter();
    head.method == Method::GET
        && upgrades
            .filter_map(|value| value.to_str().ok())
            .any(|value| value.split(',').any(|protocol| protocol.trim().eq_ignore_ascii_case("websocket")))
}

#[cfg(test)]
mod tests;
