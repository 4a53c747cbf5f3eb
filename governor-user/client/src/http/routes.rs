//! Which requests take a slot. A table, one row per endpoint; everything else passes. Knows paths and methods only.

use http::Method;

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
    /// Not in the table: passes like exempt work. Governor limits what is known to cost upstream capacity, and a
    /// gateway names routes of its own with [`GovernorLayer::routes`](crate::tower::GovernorLayer::routes).
    Unlisted,
}

/// Path suffixes whose POSTs are counted, and the endpoint class of each. A suffix matches whole segments from the end,
/// whatever prefix a gateway mounts them under (`/v1`, `/openai/v1`, a tenant).
const COUNTED: &[(&str, &str)] = &[
    ("/chat/completions", "chat"),
    ("/messages", "messages"),
    ("/responses", "responses"),
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
    ("/ai/language-model", "ai_sdk"),
    ("/ai/embedding-model", "ai_sdk"),
    ("/ai/image-model", "ai_sdk"),
];

/// Path suffixes that are exempt for every method.
const EXEMPT: &[&str] =
    &["/health", "/healthz", "/livez", "/ready", "/readyz", "/metrics", "/models", "/docs", "/openapi.json"];

/// Path prefixes that are exempt for every method.
const EXEMPT_BELOW: &[&str] = &["/docs/", "/oauth/", "/.well-known/oauth-"];

/// Path suffixes of long-lived exempt streams.
const EXEMPT_STREAMS: &[&str] = &["/mcp", "/mcp/sse", "/sse"];

/// Classes a request by method and path. A trailing slash changes nothing.
#[must_use]
pub fn classify(method: &Method, path: &str) -> Route {
    let path = path.strip_suffix('/').unwrap_or(path);
    if let Some(endpoint) = endpoint(path) {
        return if method == Method::POST { Route::Counted(endpoint) } else { Route::Unlisted };
    }
    let model = path.rsplit_once('/').is_some_and(|(list, _)| list.ends_with("/models")) && method == Method::GET;
    if model
        || EXEMPT.iter().any(|suffix| path.ends_with(suffix))
        || EXEMPT_BELOW.iter().any(|prefix| path.starts_with(prefix))
    {
        return Route::Exempt;
    }
    if EXEMPT_STREAMS.iter().any(|suffix| path.ends_with(suffix)) {
        return Route::ExemptStream;
    }
    Route::Unlisted
}

/// The endpoint class of a path, whatever the method.
#[must_use]
pub fn endpoint(path: &str) -> Option<&'static str> {
    let path = path.strip_suffix('/').unwrap_or(path);
    COUNTED.iter().find(|(suffix, _)| path.ends_with(suffix)).map(|(_, endpoint)| *endpoint)
}
