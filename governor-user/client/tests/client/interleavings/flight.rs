//! One request under way, driven poll by poll, and the handler behind it that does as its script says.

use bytes::Bytes;
use governor_client::Lease;
use governor_client::tower::{Custody, GovernorLayer, LeaseBody};
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::Empty;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tower::{Layer, ServiceExt, service_fn};

/// What a handler does.
#[derive(Clone, Debug)]
pub(super) struct Script {
    /// Polls that find it busy, before it answers.
    pub(super) waits: u8,
    /// Whether it answers (`Data`), fails or panics.
    pub(super) handler: Step,
    /// What its body does, poll by poll; then it ends.
    pub(super) body: Vec<Step>,
    /// The body says so before it is polled for its end.
    pub(super) knows_its_end: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Data,
    Wait,
    Trailers,
    Fail,
    Panic,
}

/// Where the handler leaves word of its lease.
type Word = Arc<Mutex<Option<Custody>>>;

type Failed = &'static str;
type Answering = Pin<Box<dyn Future<Output = Result<Response<LeaseBody<Scripted>>, Failed>>>>;

/// A request, in the layer and a handler of its own.
pub(super) fn scripted(layer: &GovernorLayer, script: Script) -> (Answering, Word) {
    let word = Word::default();
    let told = word.clone();
    let inner = service_fn(move |request: Request<Empty<Bytes>>| {
        let custody = request.extensions().get::<Custody>().expect("a counted request has a lease").clone();
        *told.lock().unwrap() = Some(custody);
        let mut script = script.clone();
        poll_fn(move |cx| {
            if script.waits > 0 {
                script.waits -= 1;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match script.handler {
                Step::Fail => Poll::Ready(Err("failed")),
                Step::Panic => resume_unwind(Box::new("on purpose")),
                Step::Data | Step::Wait | Step::Trailers => {
                    let steps = script.body.iter().rev().copied().collect();
                    Poll::Ready(Ok(Response::new(Scripted { steps, knows_its_end: script.knows_its_end })))
                }
            }
        })
    });
    let request = Request::post("/v1/messages").body(Empty::new()).unwrap();
    (Box::pin(layer.layer(inner).oneshot(request)), word)
}

/// A body that does as told.
pub(super) struct Scripted {
    /// What is still to do, the last first.
    steps: Vec<Step>,
    knows_its_end: bool,
}

impl Body for Scripted {
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        match self.steps.pop() {
            None => Poll::Ready(None),
            Some(Step::Data) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"data"))))),
            Some(Step::Trailers) => Poll::Ready(Some(Ok(Frame::trailers(HeaderMap::new())))),
            Some(Step::Fail) => Poll::Ready(Some(Err("failed"))),
            Some(Step::Panic) => resume_unwind(Box::new("on purpose")),
            Some(Step::Wait) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.knows_its_end && self.steps.is_empty()
    }
}

/// How far a request has come.
enum Stage {
    Asking(Answering),
    Body(Pin<Box<LeaseBody<Scripted>>>),
    /// The body has ended, or failed, and is still in somebody's hand.
    Ended(
        #[expect(dead_code, reason = "held so that its drop is not what ends the lease")] Pin<Box<LeaseBody<Scripted>>>,
    ),
    Over,
}

enum Taken {
    Not,
    Held(#[expect(dead_code, reason = "held for its drop")] Lease),
    Dropped,
}

pub(super) struct Flight {
    stage: Stage,
    word: Word,
    taken: Taken,
}

impl Flight {
    pub(super) fn begin(answering: Answering, word: Word) -> Self {
        Self { stage: Stage::Asking(answering), word, taken: Taken::Not }
    }

    pub(super) fn over() -> Self {
        Self { stage: Stage::Over, word: Word::default(), taken: Taken::Not }
    }

    /// Nothing of it goes on, so that another may take its place.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over) && !matches!(self.taken, Taken::Held(_))
    }

    /// Once the handler was called: its lease, and whether that should be held.
    pub(super) fn lease(&self) -> Option<(u64, bool)> {
        let word = self.word.lock().unwrap();
        let handle = word.as_ref()?.handle();
        let held = match self.taken {
            Taken::Held(_) => true,
            Taken::Dropped => false,
            Taken::Not => matches!(self.stage, Stage::Asking(_) | Stage::Body(_)),
        };
        Some((handle.id(), held))
    }

    pub(super) async fn poll(&mut self) {
        poll_fn(|cx| {
            self.poll_once(cx);
            Poll::Ready(())
        })
        .await;
    }

    fn poll_once(&mut self, cx: &mut Context<'_>) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Asking(mut answering) => match caught(|| answering.as_mut().poll(cx)) {
                Some(Poll::Pending) => Stage::Asking(answering),
                Some(Poll::Ready(Ok(response))) => {
                    let body = Box::pin(response.into_body());
                    if body.is_end_stream() { Stage::Ended(body) } else { Stage::Body(body) }
                }
                Some(Poll::Ready(Err(_))) | None => Stage::Over,
            },
            Stage::Body(mut body) => match caught(|| body.as_mut().poll_frame(cx)) {
                Some(Poll::Pending) => Stage::Body(body),
                Some(Poll::Ready(Some(Ok(frame)))) if !frame.is_trailers() && !body.is_end_stream() => {
                    Stage::Body(body)
                }
                Some(Poll::Ready(_)) | None => Stage::Ended(body),
            },
            rest @ (Stage::Ended(_) | Stage::Over) => rest,
        };
    }

    pub(super) fn end(&mut self) {
        self.stage = Stage::Over;
    }

    pub(super) fn take(&mut self) {
        let word = self.word.lock().unwrap();
        if let Some(lease) = word.as_ref().and_then(Custody::take) {
            self.taken = Taken::Held(lease);
        }
    }

    pub(super) fn let_go(&mut self) {
        if matches!(self.taken, Taken::Held(_)) {
            self.taken = Taken::Dropped;
        }
    }
}

fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}
