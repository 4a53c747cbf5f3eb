//! What the simulated provider reads of a request: whether to stream, and how much it may say. Everything else of a
//! question is accepted and means nothing.

use axum::body::Body;
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;

/// Longest question.
const LONGEST: usize = 16 * 1024 * 1024;

/// A question as far as it matters.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Question {
    #[serde(default = "unnamed")]
    pub(crate) model: String,
    #[serde(default)]
    pub(crate) stream: Option<bool>,
    #[serde(default)]
    pub(crate) stream_options: Option<StreamOptions>,
    /// Longest answer in words.
    #[serde(default, alias = "max_completion_tokens")]
    pub(crate) max_tokens: Option<u32>,
    /// How this answer is to go wrong.
    #[serde(default)]
    pub(crate) simulate: Option<Simulate>,
}

/// What no real provider would do on request, and every one does at some time.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Simulate {
    /// Answer at once with this status and no more.
    pub(crate) status: Option<u16>,
    /// Say nothing for so long.
    pub(crate) delay_ms: u64,
    /// Say nothing at all, and go on holding the slot.
    pub(crate) hang: bool,
    /// Break the connection after so many streamed words.
    pub(crate) cut_after: Option<u32>,
    /// Time between two words.
    pub(crate) word_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct StreamOptions {
    #[serde(default)]
    pub(crate) include_usage: bool,
}

impl Question {
    /// Reads a question to its end: a provider answers when it has seen the whole of it.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in words for its author.
    pub(crate) async fn receive(body: Body) -> Result<Self, String> {
        let body = Limited::new(body, LONGEST).collect().await.map_err(|error| format!("broken body: {error}"))?;
        Self::read(&body.to_bytes())
    }

    /// Whether the answer is to come word by word.
    pub(crate) fn streams(&self) -> bool {
        self.stream == Some(true)
    }

    /// How it is to go wrong.
    pub(crate) fn simulate(&self) -> Simulate {
        self.simulate.unwrap_or_default()
    }

    /// A question from its bytes.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| format!("could not parse the JSON body: {error}"))
    }
}

fn unnamed() -> String {
    "demo".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_need_not_say_more_than_that_it_is_one() {
        let question = Question::read(b"{}").unwrap();
        assert_eq!((question.streams(), question.max_tokens, question.model.as_str()), (false, None, "demo"));
        let question = Question::read(br#"{"model":"m","stream":true,"max_tokens":3,"messages":[{}]}"#).unwrap();
        assert_eq!((question.streams(), question.max_tokens, question.model.as_str()), (true, Some(3), "m"));
    }

    #[test]
    fn what_is_no_question_is_said_to_be_none() {
        for wrong in ["", "[", "7", r#"{"max_tokens":-1}"#, r#"{"stream":"yes"}"#, r#"{"simulate":{"statsu":502}}"#] {
            assert!(Question::read(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
