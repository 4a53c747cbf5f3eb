//! WebSockets: the handshake goes to the provider like any request; when it agrees, the two connections are joined and
//! bytes pass both ways as they are. The slot is held until both ways have ended. Knows no frame of the protocol.
//!
//! Over HTTP/1.1 only: HTTP/2 opens WebSockets by extended CONNECT, which the client falls back from.

use crate::drain::Stay;
use crate::forward::headers::end_to_end;
use crate::seat::Seat;
use axum::body::Body;
use axum::http::header::{CONNECTION, UPGRADE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::time::timeout;

/// When one way has ended, the other may take this long to say goodbye.
const GOODBYE: Duration = Duration::from_secs(10);

/// Most that is passed on at once.
const PIECE: usize = 16 * 1024;

const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");

/// Whether a request asks for a WebSocket.
pub(crate) fn is_asked(head: &Parts) -> bool {
    head.headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(WEBSOCKET.as_bytes()))
}

/// The client's connection as it will be after the handshake, if it asks for a WebSocket and can have one.
pub(crate) fn take(head: &mut Parts) -> Option<OnUpgrade> {
    is_asked(head).then(|| head.extensions.remove())?
}

/// Asks the provider for the same; these headers are about one connection, so they were not passed on.
pub(crate) fn ask(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, WEBSOCKET);
}

/// Joins the client's connection with the provider's, which has agreed. Returns the answer that completes the handshake.
pub(crate) fn join(client: OnUpgrade, agreed: Response<Incoming>, mut seat: Seat, stay: Stay) -> Response {
    let mut headers = end_to_end(agreed.headers());
    ask(&mut headers);
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = agreed.status();
    *answer.headers_mut() = headers;
    // The layer would end the lease with this answer's body, which is empty: from here on it is this task's.
    seat.keep();
    tokio::spawn(async move {
        let _stay = stay;
        match tokio::try_join!(client, hyper::upgrade::on(agreed)) {
            Ok((client, provider)) => pass_both_ways(client, provider, &seat).await,
            Err(error) => tracing::debug!(%error, "the handshake was not completed"),
        }
        drop(seat);
    });
    answer
}

async fn pass_both_ways(client: Upgraded, provider: Upgraded, seat: &Seat) {
    let (client_reads, client_writes) = split(TokioIo::new(client));
    let (provider_reads, provider_writes) = split(TokioIo::new(provider));
    let up = pass(client_reads, provider_writes, seat);
    let down = pass(provider_reads, client_writes, seat);
    tokio::pin!(up, down);
    // Whether the goodbye came in time changes nothing: both connections end here.
    drop(tokio::select! {
        () = &mut up => timeout(GOODBYE, down).await,
        () = &mut down => timeout(GOODBYE, up).await,
    });
}

/// Passes bytes on until either end is gone.
async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, seat: &Seat) {
    let mut piece = vec![0; PIECE];
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        seat.touch();
        if to.write_all(&piece[..length]).await.is_err() {
            return;
        }
    }
    // Failing means that it is gone already.
    to.shutdown().await.ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    #[test]
    fn only_a_websocket_is_an_upgrade_that_is_passed_on() {
        for (value, asked) in [("websocket", true), ("WebSocket", true), ("h2c", false), ("", false)] {
            let request = Request::builder().header("upgrade", value).body(()).unwrap();
            assert_eq!(is_asked(&request.into_parts().0), asked, "{value:?}");
        }
    }

    #[tokio::test]
    async fn bytes_pass_until_one_end_is_gone_and_the_other_hears_of_it() {
        let (mut client, near) = tokio::io::duplex(64);
        let (far, mut provider) = tokio::io::duplex(64);
        let passing = tokio::spawn(async move { pass(near, far, &Seat::Exempt).await });
        client.write_all(b"hello").await.unwrap();
        let mut heard = [0; 5];
        provider.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"hello");
        drop(client);
        assert_eq!(provider.read(&mut heard).await.unwrap(), 0);
        passing.await.unwrap();
    }
}
