//! What must never leave the proxy.

use super::peer::Peer;
use bytes::Bytes;
use governor_client::tower::{Caller, GovernorLayer, TrustedHeaders};
use governor_client::{AcquireRequest, Config, Governor, NodeSecret};
use http::{HeaderName, Request, Response};
use http_body_util::Empty;
use std::convert::Infallible;
use tower::{Layer, ServiceExt, service_fn};

const KEY: &str = "sk-live-planted-0123456789";
const SECRET: &str = "node-secret-planted";

#[tokio::test]
async fn neither_a_raw_key_nor_the_node_secret_is_sent_or_shown() {
    let peer = Peer::listening();
    let config = Config { secret: NodeSecret::new(SECRET.as_bytes()).unwrap(), ..peer.config() };
    let mut shown = format!("{config:?}");
    let governor = Governor::start(config);
    let mut talk = peer.greet().await;

    let ask = AcquireRequest::new("chat").key(governor.key(KEY.as_bytes())).label("team");
    shown += &format!("{ask:?} {governor:?}");
    let (lease, ()) = tokio::join!(governor.acquire(ask), async {
        let request = talk.acquire().await;
        talk.grant(request, 0x0001_0000_0000_0001, "m1").await;
    });
    let lease = lease.unwrap();
    shown += &format!("{lease:?} {:?}", lease.handle());
    drop(lease);
    talk.release().await;

    let sent = String::from_utf8_lossy(&talk.heard).into_owned();
    assert!(sent.contains("team"), "the bytes were captured");
    for text in [&sent, &shown] {
        assert!(!text.contains(KEY) && !text.contains("planted") && !text.contains(SECRET), "{text}");
    }
}

#[tokio::test]
async fn the_layer_sends_hashes_of_whatever_names_a_caller() {
    let (governor, mut talk) = Peer::listening().meet().await;
    let trusted = TrustedHeaders::none().org(HeaderName::from_static("x-org"));
    let layer = GovernorLayer::new(governor.clone(), "chat").trusted_headers(trusted);
    let answer = |_: Request<Empty<Bytes>>| async { Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new())) };
    let requests = [
        Request::post("/v1/messages").header("authorization", format!("Bearer {KEY}")).header("x-org", KEY),
        Request::post("/v1/messages").header("x-api-key", KEY),
        Request::post("/v1/messages").extension(Caller::new().key(KEY).org(KEY).label("team")),
    ];
    for request in requests {
        let request = request.body(Empty::new()).unwrap();
        let (response, ()) = tokio::join!(layer.layer(service_fn(answer)).oneshot(request), async {
            let request = talk.acquire().await;
            talk.grant(request, 0x0001_0000_0000_0001, "m1").await;
        });
        drop(response.unwrap());
        talk.release().await;
    }
    let sent = String::from_utf8_lossy(&talk.heard).into_owned();
    assert!(sent.contains("team"), "the bytes were captured");
    assert!(!sent.contains(KEY) && !sent.contains("planted"), "{sent}");
}

#[test]
fn an_empty_secret_is_an_error() {
    for empty in ["", " ", "\n\t "] {
        let error = NodeSecret::new(empty.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("the node secret is empty: set "), "{error}");
    }
}

#[tokio::test]
async fn one_key_and_secret_give_one_hash_on_every_worker() {
    let peer = Peer::absent();
    let governor = |secret: &str| {
        let secret = NodeSecret::new(secret.as_bytes()).unwrap();
        Governor::start(Config { secret, ..peer.config() })
    };
    let (one, two, other) = (governor("a"), governor("a"), governor("b"));
    assert_eq!(one.key(b"k"), two.key(b"k"));
    assert_ne!(one.key(b"k"), other.key(b"k"));
    assert_ne!(one.key(b"k"), one.key(b"l"));
    // HMAC-SHA256("a", "k") as any other implementation computes it.
    assert_eq!(one.key(b"k").to_string(), "5c6ef15fb723c157311b6f4a8fe11c70");
}
