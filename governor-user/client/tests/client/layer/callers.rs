//! Whose request it is, and what a client may say about that.

use super::{LEASE, nothing};
use crate::peer::{Peer, Talk};
use governor_client::tower::{Caller, Connection, GovernorLayer, TrustedHeaders};
use governor_client::{AcquireRequest, ClientSocket, Kind, Priority};
use governor_common::wire::request::{Acquire, Request as Frame};
use http::{HeaderName, HeaderValue, Request};
use tower::{Layer, ServiceExt, service_fn};

const CLIENT: &str = "127.0.0.1:5000";

fn socket() -> ClientSocket {
    ClientSocket { local: "127.0.0.1:80".parse().unwrap(), peer: CLIENT.parse().unwrap(), cookie: Some(7) }
}

/// What the daemon is asked for when `request` goes through `layer`.
async fn asked(layer: &GovernorLayer, talk: &mut Talk, request: http::request::Builder) -> Acquire {
    let request = request.body(http_body_util::Empty::new()).unwrap();
    let (response, acquire) = tokio::join!(layer.layer(service_fn(nothing)).oneshot(request), async {
        let (Frame::Acquire(acquire), request) = talk.next().await else { panic!("an acquire comes") };
        talk.grant(request, LEASE, "m1").await;
        acquire
    });
    assert_eq!(response.unwrap().status(), 200);
    assert_eq!(talk.release().await, [LEASE]);
    acquire
}

fn post() -> http::request::Builder {
    Request::post("/v1/embeddings")
}

/// Everything a hostile client might try, in the names gateways like to use.
fn claims(request: http::request::Builder) -> http::request::Builder {
    let names =
        ["x-org", "x-class", "x-priority", "x-traffic", "x-label", "x-user", "x-governor-lease", "x-governor-parent"];
    names.into_iter().fold(request, |request, name| request.header(name, "critical"))
}

#[tokio::test]
async fn the_key_is_the_credential_and_nothing_else_is_believed() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let layer = GovernorLayer::new(governor.clone(), "chat");
    let key = Some(governor.key(b"sk-one"));
    let plain = Acquire { pool: "chat".into(), endpoint: Some("embeddings".into()), ..Acquire::default() };
    let rows: [(&[(&str, &str)], Acquire); 9] = [
        (&[("authorization", "Bearer sk-one")], Acquire { key, ..plain.clone() }),
        (&[("authorization", "bearer  sk-one ")], Acquire { key, ..plain.clone() }),
        (&[("x-api-key", "sk-one")], Acquire { key, ..plain.clone() }),
        (&[("authorization", "Bearer sk-one"), ("x-api-key", "sk-two")], Acquire { key, ..plain.clone() }),
        (&[("authorization", "Bearer "), ("x-api-key", "sk-one")], Acquire { key, ..plain.clone() }),
        (&[("api-key", "sk-one")], Acquire { key, ..plain.clone() }),
        (&[("x-goog-api-key", "sk-one")], Acquire { key, ..plain.clone() }),
        (&[("authorization", r#"Digest username="u", nonce="n""#)], plain.clone()),
        (&[], plain),
    ];
    for (headers, expected) in rows {
        let request = headers.iter().fold(claims(post()), |request, (name, value)| request.header(*name, *value));
        let acquire = asked(&layer, &mut talk, request).await;
        assert_eq!(Acquire { site: None, ..acquire }, expected, "{headers:?}");
    }
}

#[tokio::test]
async fn listed_headers_are_trusted_and_no_others() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let name = HeaderName::from_static;
    let trusted = TrustedHeaders::none().org(name("x-org")).class(name("x-class")).priority(name("x-priority"));
    let layer = GovernorLayer::new(governor.clone(), "chat").trusted_headers(trusted);
    let request = claims(post()).header("authorization", "Bearer sk-one");
    let acquire = asked(&layer, &mut talk, request).await;
    assert_eq!((acquire.key, acquire.org), (Some(governor.key(b"sk-one")), Some(governor.key(b"critical"))));
    assert_eq!((acquire.class.as_deref(), acquire.priority), (Some("critical"), Priority::Critical));
    assert_eq!((acquire.traffic, acquire.label, acquire.parent), (None, None, None));

    let all = TrustedHeaders::none().key(name("x-user")).traffic(name("x-traffic")).label(name("x-label"));
    let layer = GovernorLayer::new(governor.clone(), "chat").trusted_headers(all);
    let acquire = asked(&layer, &mut talk, claims(post()).header("authorization", "Bearer sk-one")).await;
    assert_eq!(acquire.key, Some(governor.key(b"critical")), "in place of the credential");
    assert_eq!((acquire.traffic.as_deref(), acquire.label.as_deref()), (Some("critical"), Some("critical")));
    assert_eq!((acquire.org, acquire.class, acquire.priority), (None, None, Priority::Normal));
}

#[tokio::test]
async fn a_trusted_header_that_makes_no_sense_says_nothing() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let name = HeaderName::from_static;
    let trusted = TrustedHeaders::none()
        .class(name("x-class"))
        .priority(name("x-priority"))
        .org(name("x-org"))
        .label(name("x-label"));
    let layer = GovernorLayer::new(governor, "chat").trusted_headers(trusted);
    let request = post()
        .header("x-class", HeaderValue::from_bytes(b"\xff").unwrap())
        .header("x-priority", "urgent")
        .header("x-org", " ")
        .header("x-label", "x".repeat(129));
    let acquire = asked(&layer, &mut talk, request).await;
    assert_eq!((acquire.class, acquire.org, acquire.priority), (None, None, Priority::Normal));
    assert_eq!(acquire.label, None);
}

#[tokio::test]
async fn what_the_gateways_authentication_knows_wins_over_everything() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let trusted = TrustedHeaders::none().org(HeaderName::from_static("x-org")).key(HeaderName::from_static("x-user"));
    let layer = GovernorLayer::new(governor.clone(), "chat")
        .extract(|governor, _, ask| ask.key(governor.key(b"by the closure")).label("by the closure"))
        .trusted_headers(trusted);
    let caller = Caller::new()
        .key("user-17")
        .org("acme")
        .class("tier2")
        .priority(Priority::Sheddable)
        .traffic("media")
        .pool("pictures")
        .candidates(["m1", "m2"])
        .sticky("m2");
    let acquire = asked(&layer, &mut talk, claims(post()).extension(caller)).await;
    let hash = |raw: &str| Some(governor.key(raw.as_bytes()));
    assert_eq!((acquire.key, acquire.org), (hash("user-17"), hash("acme")));
    assert_eq!((acquire.class.as_deref(), acquire.priority), (Some("tier2"), Priority::Sheddable));
    assert_eq!((acquire.traffic.as_deref(), acquire.pool.as_str()), (Some("media"), "pictures"));
    assert_eq!((acquire.candidates, acquire.sticky.as_deref()), (vec!["m1".into(), "m2".into()], Some("m2")));
    assert_eq!(acquire.label.as_deref(), Some("by the closure"), "what the caller leaves open stands");
}

/// A9: a re-attach names its member, which is the only one it may use.
#[tokio::test]
async fn a_reattach_names_its_sessions_member() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let layer = GovernorLayer::new(governor, "chat");
    let acquire = asked(&layer, &mut talk, post().extension(Caller::new().reattach("m7"))).await;
    assert_eq!((acquire.kind, acquire.sticky.as_deref()), (Kind::Reattach, Some("m7")));
}

#[tokio::test]
async fn a_lease_is_known_by_the_line_of_its_layer_and_its_endpoint() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let line = line!() + 1;
    let layer = GovernorLayer::new(governor, "chat");
    let acquire = asked(&layer, &mut talk, post()).await;
    assert_eq!(acquire.site, Some(format!("layer/callers.rs:{line} embeddings")));
}

#[tokio::test]
async fn an_extractor_that_begins_anew_keeps_endpoint_and_connection() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let layer = GovernorLayer::new(governor, "chat").extract(|_, _, _| AcquireRequest::new("other"));
    let acquire = asked(&layer, &mut talk, post().extension(socket())).await;
    assert_eq!((acquire.pool.as_str(), acquire.endpoint.as_deref()), ("other", Some("embeddings")));
    assert_eq!((acquire.client, acquire.ends_with_client), (Some(socket()), false));
}

#[tokio::test]
async fn the_clients_socket_comes_from_the_accept_loop_in_any_of_three_ways() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let layer = GovernorLayer::new(governor, "chat").ends_with_client();
    let connection = || Connection::known(Some(socket()));
    let rows = [
        post().extension(socket()),
        post().extension(connection()),
        post().extension(axum::extract::ConnectInfo(connection())),
    ];
    for request in rows {
        let acquire = asked(&layer, &mut talk, request).await;
        assert_eq!((acquire.client, acquire.ends_with_client), (Some(socket()), true));
    }
}

#[test]
fn a_caller_shows_no_raw_identity() {
    let shown = format!("{:?}", Caller::new().key("sk-planted").org("planted-org").label("team"));
    assert!(shown.contains("team") && !shown.contains("planted"), "{shown}");
}
