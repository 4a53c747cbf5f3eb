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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counted_endpoint_has_a_row() {
        let rows = [
            ("/v1/chat/completions", "chat"),
            ("/v1/messages", "messages"),
            ("/v1/responses", "responses"),
            ("/v1/embeddings", "embeddings"),
            ("/v1/moderations", "moderations"),
            ("/v1/rerank", "rerank"),
            ("/v1/ocr", "ocr"),
            ("/v1/images/generations", "images"),
            ("/v1/images/edits", "images"),
            ("/v1/images/variations", "images"),
            ("/v1/audio/speech", "speech"),
            ("/v1/audio/transcriptions", "transcriptions"),
            ("/v1/audio/translations", "transcriptions"),
            ("/v1/videos", "videos"),
            ("/v1/ai/language-model", "ai_sdk"),
            ("/v1/ai/embedding-model", "ai_sdk"),
            ("/v1/ai/image-model", "ai_sdk"),
            ("/chat/completions/", "chat"),
            ("/tenant/openai/v1/chat/completions", "chat"),
        ];
        for (path, endpoint) in rows {
            assert_eq!(classify(&Method::POST, path), Route::Counted(endpoint), "{path}");
            assert_eq!(classify(&Method::GET, path), Route::Unlisted, "only a POST of {path} takes a slot");
        }
        assert!(COUNTED.iter().all(|(suffix, _)| rows.iter().any(|(path, _)| path.ends_with(suffix))));
    }

    #[test]
    fn every_exempt_path_has_a_row() {
        let rows = [
            "/health",
            "/healthz",
            "/livez",
            "/ready",
            "/readyz",
            "/metrics",
            "/v1/models",
            "/docs",
            "/openapi.json",
            "/docs/index.html",
            "/oauth/token",
            "/.well-known/oauth-authorization-server",
            "/.well-known/oauth-protected-resource/mcp",
        ];
        for path in rows {
            assert_eq!(classify(&Method::GET, path), Route::Exempt, "{path}");
            assert_eq!(classify(&Method::POST, path), Route::Exempt, "{path}");
        }
        assert!(EXEMPT.iter().all(|suffix| rows.iter().any(|path| path.ends_with(suffix))));
        assert_eq!(classify(&Method::GET, "/v1/models/gpt-4"), Route::Exempt);
    }

    #[test]
    fn event_streams_are_exempt_with_a_cap_of_their_own() {
        for path in ["/mcp", "/v1/mcp", "/mcp/sse", "/sse"] {
            assert_eq!(classify(&Method::GET, path), Route::ExemptStream, "{path}");
        }
    }

    #[test]
    fn what_only_looks_like_a_listed_path_is_unlisted() {
        for path in ["/", "/v1", "/v1/chatcompletions", "/v1/messages/batches", "/v1/mymessages", "/unhealth"] {
            assert_eq!(classify(&Method::POST, path), Route::Unlisted, "{path}");
        }
    }
}
