//! A handler that ends as the request's `x-ending` says.

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use governor_client::tower::Custody;
use http::{HeaderMap, StatusCode, Version};
use http_body::Frame;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, split};

/// What the handler panics with, on purpose and without a message on the screen.
const PANIC: &str = "on purpose";

pub(super) async fn answer(request: Request) -> Response {
    let ending = request.headers().get("x-ending").map(|value| value.to_str().unwrap().to_owned());
    match ending.as_deref() {
        Some("complete") => Response::new(Body::from("done")),
        Some("empty") => Response::builder().status(StatusCode::NO_CONTENT).body(Body::empty()).unwrap(),
        Some("stream") => scripted(&[Step::Data, Step::Data]),
        Some("trailers") => scripted(&[Step::Data, Step::Trailers]),
        Some("hangs") => scripted(&[Step::Data, Step::Hang]),
        Some("fails") => scripted(&[Step::Data, Step::Fail]),
        Some("panics") => std::panic::resume_unwind(Box::new(PANIC)),
        Some("panics_in_body") => scripted(&[Step::Data, Step::Panic]),
        Some("times_out") => {
            let slow = tokio::time::timeout(Duration::from_millis(20), std::future::pending::<Infallible>());
            assert!(slow.await.is_err());
            Response::builder().status(StatusCode::GATEWAY_TIMEOUT).body(Body::empty()).unwrap()
        }
        Some("never") => std::future::pending().await,
        Some("echo") => upgrade(request, Keeping::Nothing),
        Some("echo_and_keep") => upgrade(request, Keeping::Clone),
        Some("echo_and_take") => upgrade(request, Keeping::Lease),
        Some(other) => panic!("no ending {other:?}"),
        None => Response::new(Body::empty()),
    }
}

/// What a body does at one poll.
#[derive(Clone, Copy)]
enum Step {
    Data,
    Trailers,
    Fail,
    Panic,
    Hang,
}

fn scripted(steps: &'static [Step]) -> Response {
    Response::new(Body::new(Script(steps)))
}

struct Script(&'static [Step]);

impl http_body::Body for Script {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some((step, rest)) = self.0.split_first() else { return Poll::Ready(None) };
        if !matches!(step, Step::Hang) {
            self.0 = rest;
        }
        match step {
            Step::Data => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"data"))))),
            Step::Trailers => Poll::Ready(Some(Ok(Frame::trailers(HeaderMap::new())))),
            Step::Fail => Poll::Ready(Some(Err(std::io::Error::other("the upstream hung up")))),
            Step::Panic => std::panic::resume_unwind(Box::new(PANIC)),
            Step::Hang => Poll::Pending,
        }
    }
}

/// What the task of an upgraded connection keeps of its lease.
#[derive(Clone, Copy)]
enum Keeping {
    Nothing,
    Clone,
    Lease,
}

/// Switches protocols and sends back what comes. `bye` ends the conversation and not the connection: the task then waits
/// for the client to close.
fn upgrade(mut request: Request, keeping: Keeping) -> Response {
    let over_http_2 = request.version() == Version::HTTP_2;
    let custody = request.extensions().get::<Custody>().expect("an upgrade is counted").clone();
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let kept = match keeping {
            Keeping::Nothing => {
                drop(custody);
                (None, None)
            }
            Keeping::Clone => (Some(custody), None),
            Keeping::Lease => (None, custody.take()),
        };
        let stream = TokioIo::new(upgraded.await.unwrap());
        let (mut reader, mut writer) = split(stream);
        let mut word = [0; 3];
        while reader.read_exact(&mut word).await.is_ok() && word != *b"bye" {
            writer.write_all(&word).await.unwrap();
        }
        drop(kept);
        copy(&mut reader, &mut tokio::io::sink()).await.ok();
    });
    if over_http_2 {
        return Response::new(Body::empty());
    }
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .body(Body::empty())
        .unwrap()
}
