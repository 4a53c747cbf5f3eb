//! The response body that carries the lease: it is given back when the body ends, fails or is dropped, whichever comes
//! first, and once.

use super::hold::Hold;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

pin_project! {
    /// The inner service's body and the lease it runs on, or a refusal.
    #[derive(Debug)]
    pub struct LeaseBody<B> {
        #[pin]
        inner: Inner<B>,
        hold: Hold,
    }
}

pin_project! {
    #[project = InnerProjection]
    #[derive(Debug)]
    enum Inner<B> {
        Passing { #[pin] body: B },
        Refusal { text: Option<Bytes> },
    }
}

impl<B: Body<Data = Bytes>> LeaseBody<B> {
    pub(super) fn holding(body: B, hold: Hold) -> Self {
        // A body that is empty from the start may never be polled.
        let hold = if body.is_end_stream() { Hold::Nothing } else { hold };
        Self { inner: Inner::Passing { body }, hold }
    }

    pub(super) fn refusal(text: Bytes) -> Self {
        Self { inner: Inner::Refusal { text: Some(text).filter(|text| !text.is_empty()) }, hold: Hold::Nothing }
    }
}

impl<B: Body<Data = Bytes>> Body for LeaseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let mut body = match this.inner.as_mut().project() {
            InnerProjection::Passing { body } => body,
            InnerProjection::Refusal { text } => return Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
        };
        // In hand while the body runs: a panic in it drops the lease, even if the body itself is kept.
        let hold = mem::replace(this.hold, Hold::Nothing);
        let polled = body.as_mut().poll_frame(cx);
        let goes_on = match &polled {
            Poll::Pending => true,
            Poll::Ready(Some(Ok(frame))) => {
                hold.touch();
                // A server need not poll the body again after its last frame, and trailers are the last.
                !frame.is_trailers() && !body.is_end_stream()
            }
            Poll::Ready(Some(Err(_)) | None) => false,
        };
        if goes_on {
            *this.hold = hold;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Passing { body } => body.is_end_stream(),
            Inner::Refusal { text } => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Passing { body } => body.size_hint(),
            Inner::Refusal { text } => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| u64::try_from(text.len()).unwrap_or(u64::MAX)))
            }
        }
    }
}
