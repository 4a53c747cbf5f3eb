//! Where the layer stands: inside CORS and authentication, outside routing.

use crate::ledger::Ledger;
use crate::peer::Peer;
use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use governor_client::tower::{Caller, GovernorLayer};
use http::{HeaderValue, Method, StatusCode, header};
use tower::{Layer, ServiceExt};

/// Answers preflights and makes every answer readable, as CORS layers do.
async fn cors(request: Request, next: Next) -> Response {
    let mut response = match *request.method() {
        Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
        _ => next.run(request).await,
    };
    response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("https://page"));
    response
}

/// Lets in who has a credential, and says who that is.
async fn authenticate(mut request: Request, next: Next) -> Response {
    if !request.headers().contains_key(header::AUTHORIZATION) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    request.extensions_mut().insert(Caller::new().key("user-17"));
    next.run(request).await
}

fn request(method: Method, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(path).header("origin", "https://page")
}

#[tokio::test]
async fn a_refusal_passes_through_cors_and_whoever_is_not_let_in_asks_for_nothing() {
    let peer = Peer::listening();
    let (governor, ledger) = Ledger::open(&peer).await;
    let routes = Router::new()
        .route("/v1/messages", post(|| async { "done" }))
        .layer(GovernorLayer::new(governor.clone(), "chat"))
        .layer(from_fn(authenticate))
        .layer(from_fn(cors));
    let send =
        |builder: http::request::Builder| routes.clone().oneshot(builder.body(axum::body::Body::empty()).unwrap());

    let preflight = send(request(Method::OPTIONS, "/v1/messages")).await.unwrap();
    let stranger = send(request(Method::POST, "/v1/messages")).await.unwrap();
    assert_eq!((preflight.status().as_u16(), stranger.status().as_u16(), ledger.granted()), (204, 401, 0));

    let known = || request(Method::POST, "/v1/messages").header("authorization", "Bearer sk-one");
    let granted = send(known()).await.unwrap();
    assert_eq!((granted.status().as_u16(), ledger.last_asked().key), (200, Some(governor.key(b"user-17"))));
    drop(granted);
    ledger.refuse();
    let refused = send(known()).await.unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()[header::ACCESS_CONTROL_ALLOW_ORIGIN], "https://page");
    let exposed = refused.headers()[header::ACCESS_CONTROL_EXPOSE_HEADERS].to_str().unwrap();
    assert!(exposed.contains("retry-after-ms") && exposed.contains("x-governor-decision"), "{exposed}");
}

/// Both ways to put it before a router: nothing but the path was looked at by then.
#[tokio::test]
async fn admission_comes_before_it_is_known_whether_there_is_a_handler() {
    let peer = Peer::listening();
    let (governor, ledger) = Ledger::open(&peer).await;
    ledger.refuse();
    let layer = GovernorLayer::new(governor, "chat");
    let routes = Router::new().route("/healthz", post(|| async { "ok" }));
    let nowhere = || request(Method::POST, "/nowhere/v1/messages").body(axum::body::Body::empty()).unwrap();
    let inside = routes.clone().layer(layer.clone()).oneshot(nowhere()).await.unwrap();
    let around = layer.layer(routes).oneshot(nowhere()).await.unwrap();
    assert_eq!((inside.status().as_u16(), around.status().as_u16()), (429, 429));
}
