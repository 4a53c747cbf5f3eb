//! One request to the provider: a slot of the account, a short thought, then words at a steady pace until the answer's
//! time is over. The slot is held until the last byte is on its way or the reader has gone.

use crate::accounts::Refusal;
use crate::dialect::{Dialect, Stop, Voice};
use crate::provider::{Provider, Slot};
use crate::question::Question;
use crate::refusal::{failure, malformed, refusal};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two words.
const WORD_EVERY: Duration = Duration::from_millis(100);

/// An answer in words.
pub(crate) async fn answer(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let dialect = Dialect::of_path(head.uri.path());
    let question = match Question::receive(body).await {
        Ok(question) => question,
        Err(wrong) => return malformed(dialect, &wrong),
    };
    let slot = match take(&provider, &head.headers) {
        Ok(slot) => slot,
        Err(refused) => return refusal(dialect, refused, provider.slots),
    };
    let fault = question.simulate();
    if let Some(status) = fault.status {
        return failure(dialect, status);
    }
    if fault.hang {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(Duration::from_millis(fault.delay_ms)).await;
    let every = fault.word_ms.map_or(WORD_EVERY, |ms| Duration::from_millis(ms.max(1)));
    let draw = provider.draw();
    let voice = Voice::new(dialect, &question, draw.number);
    let ends = Instant::now() + draw.duration;
    if question.streams() {
        tokio::time::sleep(draw.thought).await;
        let most = question.max_tokens.unwrap_or(u32::MAX);
        let speech = Speech { voice, every, ends, words: 0, most, cut_after: fault.cut_after, slot: Some(slot) };
        let parts = stream::unfold(speech, |mut speech| async move {
            let part = speech.next().await?;
            Some((part, speech))
        });
        return ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(parts)).into_response();
    }
    let said = u32::try_from(draw.duration.as_millis() / every.as_millis()).unwrap_or(u32::MAX).max(1);
    let words = said.min(question.max_tokens.unwrap_or(u32::MAX).max(1));
    tokio::time::sleep(draw.duration * words / said).await;
    drop(slot);
    Json(voice.whole(words, if words < said { Stop::Length } else { Stop::End })).into_response()
}

/// A vector that stands for a text.
pub(crate) async fn embed(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    think(&provider, request, |model| {
        let vector = json!({"object": "embedding", "index": 0, "embedding": [0.25, -0.5, 1.0]});
        let usage = json!({"prompt_tokens": 1, "total_tokens": 1});
        json!({"object": "list", "data": [vector], "model": model, "usage": usage})
    })
    .await
}

/// A verdict on a text: nothing is ever flagged.
pub(crate) async fn moderate(State(provider): State<Arc<Provider>>, request: Request) -> Response {
    think(&provider, request, |model| {
        let verdict = json!({"flagged": false, "categories": {}, "category_scores": {}});
        json!({"id": "modr-0", "model": model, "results": [verdict]})
    })
    .await
}

/// An answer that takes a slot for the time of a thought.
async fn think(provider: &Arc<Provider>, request: Request, answer: impl FnOnce(&str) -> Value) -> Response {
    let (head, body) = request.into_parts();
    let question = match Question::receive(body).await {
        Ok(question) => question,
        Err(wrong) => return malformed(Dialect::OpenAi, &wrong),
    };
    let slot = match take(provider, &head.headers) {
        Ok(slot) => slot,
        Err(refused) => return refusal(Dialect::OpenAi, refused, provider.slots),
    };
    tokio::time::sleep(provider.draw().thought).await;
    drop(slot);
    Json(answer(&question.model)).into_response()
}

/// A slot of the account that the request names.
pub(crate) fn take(provider: &Arc<Provider>, headers: &HeaderMap) -> Result<Slot, Refusal> {
    let account = headers.get("x-account").and_then(|value| value.to_str().ok()).unwrap_or_default();
    Slot::take(provider, account)
}

/// A streamed answer in the middle of it.
#[derive(Debug)]
struct Speech {
    voice: Voice,
    every: Duration,
    ends: Instant,
    words: u32,
    /// The question allows no more words.
    most: u32,
    /// After so many the connection breaks.
    cut_after: Option<u32>,
    slot: Option<Slot>,
}

impl Speech {
    /// What is said next; `None` when all is said. An error breaks the connection.
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        self.slot.as_ref()?;
        if self.words == 0 {
            self.words = 1;
            return Some(Ok([self.voice.opening(), self.voice.word(1)].concat().into()));
        }
        let left = self.ends.saturating_duration_since(Instant::now());
        tokio::time::sleep(left.min(self.every)).await;
        if self.cut_after.is_some_and(|cut| self.words >= cut) {
            self.slot = None;
            return Some(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let stop = if left <= self.every { Some(Stop::End) } else { (self.words >= self.most).then_some(Stop::Length) };
        if let Some(stop) = stop {
            // The slot is free before the reader can see the end, as the account of a provider would be.
            self.slot = None;
            return Some(Ok(self.voice.closing(self.words, stop)));
        }
        self.words += 1;
        Some(Ok(self.voice.word(self.words)))
    }
}
