//! The table, row by row.

use super::*;
use http::Request;

/// What the tests send for each row of [`COUNTED`].
const ROWS: &[(&str, &str)] = &[
    ("/v1/chat/completions", "chat"),
    ("/v1/completions", "completions"),
    ("/v1/messages", "messages"),
    ("/v1/responses", "responses"),
    ("/v1/responses/compact", "responses"),
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
    ("/v1/videos/video_1/remix", "videos"),
    ("/v1/ai/language-model", "ai_sdk"),
    ("/v1/ai/embedding-model", "ai_sdk"),
    ("/v1/ai/image-model", "ai_sdk"),
    ("/v1beta/models/gemini-2.5-pro:generateContent", "generate_content"),
    ("/v1beta/models/gemini-2.5-pro:streamGenerateContent", "generate_content"),
    ("/v1beta/models/gemini-embedding-001:embedContent", "embeddings"),
    ("/v1beta/models/gemini-embedding-001:batchEmbedContents", "embeddings"),
    ("/v1/projects/p/locations/l/publishers/google/models/imagen-4:predict", "predict"),
    ("/v1beta/models/veo-3:predictLongRunning", "videos"),
    ("/v1/projects/p/locations/l/publishers/anthropic/models/claude:rawPredict", "messages"),
    ("/v1/projects/p/locations/l/publishers/anthropic/models/claude:streamRawPredict", "messages"),
];

#[test]
fn every_counted_endpoint_has_a_row() {
    assert_eq!(ROWS.len(), COUNTED.len());
    for ((path, endpoint), (suffix, _)) in ROWS.iter().zip(COUNTED) {
        assert!(path::ends_with(path, suffix), "{path} stands for {suffix}");
        assert_eq!(classify(&Method::POST, path), Route::Counted(endpoint), "{path}");
    }
}

#[test]
fn only_a_post_of_a_counted_path_takes_a_slot() {
    let others = [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::PATCH, Method::DELETE];
    for (path, _) in ROWS {
        for method in &others {
            assert_eq!(classify(method, path), Route::Unlisted, "{method} {path}");
        }
    }
}

#[test]
fn another_spelling_of_a_counted_path_counts_the_same() {
    let spellings = [
        "/chat/completions/",
        "/tenant/openai/v1/chat/completions",
        "/v1//chat/completions",
        "/v1/chat/./completions",
        "/v1/%63hat/completions",
        "/v1/chat%2Fcompletions",
        "/docs/../v1/chat/completions",
        "/oauth/v1/chat/completions",
        "/v1/chat/completions;v=1",
        "/v1;tenant=a/chat;x/completions;y=2",
        "/V1/Chat/Completions",
    ];
    for path in spellings {
        assert_eq!(classify(&Method::POST, path), Route::Counted("chat"), "{path}");
    }
    for path in
        ["/v1beta/models/m%3AgenerateContent", "/v1beta/models/m:generatecontent", "/tunedModels/t:generateContent"]
    {
        assert_eq!(classify(&Method::POST, path), Route::Counted("generate_content"), "{path}");
    }
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
        "/v1beta/models/gemini-2.5-pro:countTokens",
        "/v1/messages/count_tokens",
        "/v1/responses/input_tokens",
        "/docs/index.html",
        "/oauth/token",
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-protected-resource/mcp",
    ];
    for path in rows {
        for method in [Method::GET, Method::HEAD, Method::POST] {
            assert_eq!(classify(&method, path), Route::Exempt, "{method} {path}");
        }
    }
    assert!(EXEMPT.iter().all(|suffix| rows.iter().any(|path| path::ends_with(path, suffix))));
    assert!(EXEMPT_BELOW.iter().all(|prefix| rows.iter().any(|path| path.starts_with(prefix))));
    assert_eq!(classify(&Method::GET, "/v1/models/gpt-4"), Route::Exempt);
}

#[test]
fn event_streams_are_exempt_with_a_cap_of_their_own() {
    for path in ["/mcp", "/v1/mcp", "/mcp/sse", "/sse"] {
        assert_eq!(classify(&Method::GET, path), Route::ExemptStream, "{path}");
        assert_eq!(classify(&Method::POST, path), Route::ExemptStream, "{path}");
    }
}

#[test]
fn what_only_looks_like_a_listed_path_is_unlisted() {
    let paths = [
        "/",
        "/v1",
        "/v1/chatcompletions",
        "/v1/messages/batches",
        "/v1/mymessages",
        "/v1beta/models/m:batchGenerateContent",
        "/v1/chat/completions;/other",
        "/v1/videos/video_1",
        "/v1/responses/resp_1/cancel",
        "/unhealth",
    ];
    for path in paths {
        assert_eq!(classify(&Method::POST, path), Route::Unlisted, "{path}");
    }
}

#[test]
fn opening_a_websocket_counts_where_a_post_would_and_at_realtime() {
    let open = |path: &str, protocol: &str| {
        let request = Request::get(path).header("connection", "upgrade").header("upgrade", protocol);
        of(&request.body(()).unwrap().into_parts().0)
    };
    assert_eq!(open("/v1/responses", "websocket"), Route::Counted("responses"));
    assert_eq!(open("/v1/realtime", "WebSocket"), Route::Counted("realtime"));
    assert_eq!(open("/v1/realtime", "h2c"), Route::Unlisted);
    assert_eq!(open("/mcp", "websocket"), Route::ExemptStream);
    assert_eq!(open("/chat", "websocket"), Route::Unlisted);
    assert_eq!(classify(&Method::GET, "/v1/realtime"), Route::Unlisted);

    let mut extended = Request::builder().method(Method::CONNECT).uri("http://gateway/v1/realtime").body(()).unwrap();
    *extended.version_mut() = Version::HTTP_2;
    assert_eq!(of(&extended.into_parts().0), Route::Counted("realtime"));
    let mut tunnel = Request::builder().method(Method::CONNECT).uri("gateway:443").body(()).unwrap();
    *tunnel.version_mut() = Version::HTTP_2;
    assert_eq!(of(&tunnel.into_parts().0), Route::Unlisted);
}
