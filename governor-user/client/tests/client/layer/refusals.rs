//! What a refusal looks like, and what passes.

use super::{LEASE, nothing, post};
use crate::ledger::shed;
use crate::peer::Peer;
use bytes::Bytes;
use governor_client::tower::GovernorLayer;
use governor_common::wire::reply::Reply;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use std::convert::Infallible;
use tower::{Layer, ServiceExt, service_fn};

/// What the client sees of a refusal: status, headers and body.
async fn refused(
    path: &str,
    header: Option<(&'static str, &'static str)>,
    status: u16,
) -> (StatusCode, String, String) {
    let (governor, mut talk) = Peer::listening().meet().await;
    let layer = GovernorLayer::new(governor, "chat").allow_origin(HeaderValue::from_static("*"));
    let mut request = post(path);
    if let Some((name, value)) = header {
        request.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let (response, ()) = tokio::join!(layer.layer(service_fn(nothing)).oneshot(request), async {
        let request = talk.acquire().await;
        talk.say(&Reply::Shed(shed(status)), request).await;
    });
    let (head, body) = response.unwrap().into_parts();
    let mut headers: Vec<String> =
        head.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    headers.sort();
    let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    (head.status, headers.join("\n"), body)
}

#[tokio::test]
async fn a_refusal_speaks_the_language_of_the_route() {
    let (status, headers, body) = refused("/v1/chat/completions", None, 429).await;
    assert_eq!(status, 429);
    assert_eq!(
        headers,
        "access-control-allow-origin: *\n\
         access-control-expose-headers: retry-after, retry-after-ms, x-should-retry, ratelimit, ratelimit-policy, \
         x-governor-origin, x-governor-decision, x-request-id, request-id\n\
         cache-control: no-store\n\
         content-type: application/json\n\
         ratelimit-policy: \"fair_share\";q=9;qu=\"concurrent-requests\"\n\
         ratelimit: \"fair_share\";r=0;t=2\n\
         request-id: 000000000000004d\n\
         retry-after-ms: 1001\n\
         retry-after: 2\n\
         x-governor-decision: 000000000000004d\n\
         x-governor-origin: key\n\
         x-request-id: 000000000000004d"
    );
    assert_eq!(
        body,
        r#"{"error":{"code":"fair_share","message":"no slot","param":null,"reason":"fair_share","type":"rate_limit_error"}}"#
    );

    let (status, headers, body) = refused("/v1/responses", None, 529).await;
    assert_eq!(status.as_u16(), 529);
    assert!(headers.contains("x-governor-origin: node"));
    assert_eq!(
        body,
        r#"{"error":{"code":"overloaded","message":"no slot","param":null,"reason":"node_cap","type":"overloaded_error"}}"#
    );

    let rows = [("/v1/messages", None), ("/v1/chat/completions", Some(("anthropic-version", "2023-06-01")))];
    for (path, header) in rows {
        let (_, _, body) = refused(path, header, 529).await;
        let golden = r#"{"error":{"message":"no slot","reason":"node_cap","type":"overloaded_error"},"request_id":"000000000000004d","type":"error"}"#;
        assert_eq!(body, golden, "{path}");
        let (_, _, body) = refused(path, header, 429).await;
        let golden = r#"{"error":{"message":"no slot","reason":"fair_share","type":"rate_limit_error"},"request_id":"000000000000004d","type":"error"}"#;
        assert_eq!(body, golden, "{path}");
    }
}

#[tokio::test]
async fn googles_clients_read_status_and_delay() {
    for (status, name) in [(429, "RESOURCE_EXHAUSTED"), (529, "UNAVAILABLE"), (403, "PERMISSION_DENIED")] {
        let (_, _, body) = refused("/v1beta/models/gemini-2.5-pro:generateContent", None, status).await;
        let error = &serde_json::from_str::<serde_json::Value>(&body).unwrap()["error"];
        assert_eq!((&error["code"], &error["status"]), (&status.into(), &name.into()), "{body}");
        assert_eq!(error["details"][0]["metadata"]["decision"], "000000000000004d", "{body}");
        let delay = error["details"].get(1).map(|retry| &retry["retryDelay"]);
        assert_eq!(delay, (status != 403).then_some(&"1.001s".into()), "{body}");
    }
}

/// Clients retry 429 and 5xx by themselves, for minutes.
#[tokio::test]
async fn where_waiting_cannot_help_no_client_is_sent_back() {
    for path in ["/v1/chat/completions", "/v1/messages"] {
        let (status, headers, body) = refused(path, None, 403).await;
        assert_eq!(status, 403);
        assert!(headers.contains("x-should-retry: false") && headers.contains("x-request-id: "), "{headers}");
        assert!(!headers.contains("retry-after") || headers.matches("retry-after").count() == 2, "only as exposed");
        assert!(body.contains(r#""type":"permission_error""#), "{body}");
    }
    let (_, headers, _) = refused("/v1/messages", None, 429).await;
    assert!(!headers.contains("x-should-retry: "), "{headers}");
}

#[tokio::test]
async fn an_upstreams_own_refusal_passes_with_its_origin_and_else_untouched() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let inner = service_fn(|_: Request<Empty<Bytes>>| async {
        let response = Response::builder().status(429).header("retry-after", "7").body(Empty::<Bytes>::new()).unwrap();
        Ok::<_, Infallible>(response)
    });
    let service = GovernorLayer::new(governor, "chat").layer(inner);
    let (response, ()) = tokio::join!(service.oneshot(post("/v1/messages")), async {
        let request = talk.acquire().await;
        talk.grant(request, LEASE, "m1").await;
    });
    let response = response.unwrap();
    assert_eq!(response.status(), 429);
    let headers: Vec<_> = response.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    assert_eq!(headers, [("retry-after", &b"7"[..]), ("x-governor-origin", b"upstream")]);
}

#[tokio::test]
async fn a_route_of_no_provider_is_refused_in_plain_words() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let layer = GovernorLayer::new(governor, "chat").routes(|_| governor_client::http::routes::Route::Counted("own"));
    let (response, ()) = tokio::join!(layer.layer(service_fn(nothing)).oneshot(post("/render")), async {
        let request = talk.acquire().await;
        talk.say(&Reply::Shed(shed(429)), request).await;
    });
    let body = response.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(
        body,
        r#"{"error":{"decision":"000000000000004d","message":"no slot","origin":"key","reason":"fair_share","status":429}}"#
    );
}
