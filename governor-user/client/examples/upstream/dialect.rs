//! The two ways the simulated provider speaks: OpenAI's chat completions and Anthropic's messages, in whole answers and
//! in server-sent events, as their official clients read them. Owns bytes only; `refusal` has the errors.

use crate::question::Question;
use axum::body::Bytes;
use serde_json::{Value, json};

/// Which provider's forms an answer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `/v1/chat/completions` and everything else.
    OpenAi,
    /// `/v1/messages`.
    Anthropic,
}

/// What all parts of one answer have in common.
#[derive(Clone, Debug)]
pub(crate) struct Voice {
    pub(crate) dialect: Dialect,
    pub(crate) model: String,
    /// Number that makes the answer's id.
    pub(crate) number: u64,
    /// A last event tells how much was said: OpenAI's clients ask for it, Anthropic's always get it.
    pub(crate) usage: bool,
}

/// Why an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Everything is said.
    End,
    /// The question allows no more.
    Length,
}

impl Dialect {
    /// The dialect of a request path.
    pub(crate) fn of_path(path: &str) -> Self {
        if path.starts_with("/v1/messages") { Self::Anthropic } else { Self::OpenAi }
    }
}

impl Voice {
    /// The voice that answers this question.
    pub(crate) fn new(dialect: Dialect, question: &Question, number: u64) -> Self {
        let usage = question.stream_options.is_some_and(|options| options.include_usage);
        Self { dialect, model: question.model.clone(), number, usage }
    }

    /// What a streamed answer begins with, before its first word.
    pub(crate) fn opening(&self) -> Bytes {
        match self.dialect {
            Dialect::OpenAi => self.chunk(&json!({"role": "assistant", "content": ""}), None),
            Dialect::Anthropic => {
                let message = json!({
                    "id": self.id(), "type": "message", "role": "assistant", "model": self.model, "content": [],
                    "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 1, "output_tokens": 0},
                });
                let start = event("message_start", &json!({"type": "message_start", "message": message}));
                let block = json!({
                    "type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""},
                });
                joined(&[start, event("content_block_start", &block)])
            }
        }
    }

    /// One word of a streamed answer, counted from 1.
    pub(crate) fn word(&self, number: u32) -> Bytes {
        match self.dialect {
            Dialect::OpenAi => self.chunk(&json!({"content": word(number)}), None),
            Dialect::Anthropic => event(
                "content_block_delta",
                &json!({
                    "type": "content_block_delta", "index": 0,
                    "delta": {"type": "text_delta", "text": word(number)},
                }),
            ),
        }
    }

    /// What a streamed answer of so many words ends with.
    pub(crate) fn closing(&self, words: u32, stop: Stop) -> Bytes {
        match self.dialect {
            Dialect::OpenAi => {
                let mut parts = vec![self.chunk(&json!({}), Some(stop))];
                if self.usage {
                    let mut last = self.completion("chat.completion.chunk", json!([]));
                    last["usage"] = usage(words);
                    parts.push(Bytes::from(format!("data: {last}\n\n")));
                }
                parts.push(Bytes::from_static(b"data: [DONE]\n\n"));
                joined(&parts)
            }
            Dialect::Anthropic => joined(&[
                event("content_block_stop", &json!({"type": "content_block_stop", "index": 0})),
                event(
                    "message_delta",
                    &json!({
                        "type": "message_delta", "usage": {"output_tokens": words},
                        "delta": {"stop_reason": self.stop_reason(stop), "stop_sequence": null},
                    }),
                ),
                event("message_stop", &json!({"type": "message_stop"})),
            ]),
        }
    }

    /// An answer of so many words in one piece.
    pub(crate) fn whole(&self, words: u32, stop: Stop) -> Value {
        let text: String = (1..=words).map(word).collect();
        match self.dialect {
            Dialect::OpenAi => {
                let choice = json!({
                    "index": 0, "message": {"role": "assistant", "content": text, "refusal": null},
                    "logprobs": null, "finish_reason": self.stop_reason(stop),
                });
                let mut answer = self.completion("chat.completion", json!([choice]));
                answer["usage"] = usage(words);
                answer
            }
            Dialect::Anthropic => json!({
                "id": self.id(), "type": "message", "role": "assistant", "model": self.model,
                "content": [{"type": "text", "text": text}],
                "stop_reason": self.stop_reason(stop), "stop_sequence": null,
                "usage": {"input_tokens": 1, "output_tokens": words},
            }),
        }
    }

    fn id(&self) -> String {
        match self.dialect {
            Dialect::OpenAi => format!("chatcmpl-{:016x}", self.number),
            Dialect::Anthropic => format!("msg_{:016x}", self.number),
        }
    }

    fn stop_reason(&self, stop: Stop) -> &'static str {
        match (self.dialect, stop) {
            (Dialect::OpenAi, Stop::End) => "stop",
            (Dialect::OpenAi, Stop::Length) => "length",
            (Dialect::Anthropic, Stop::End) => "end_turn",
            (Dialect::Anthropic, Stop::Length) => "max_tokens",
        }
    }

    fn chunk(&self, delta: &Value, stop: Option<Stop>) -> Bytes {
        let reason = stop.map(|stop| self.stop_reason(stop));
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason});
        let chunk = self.completion("chat.completion.chunk", json!([choice]));
        Bytes::from(format!("data: {chunk}\n\n"))
    }

    fn completion(&self, object: &str, choices: Value) -> Value {
        json!({"id": self.id(), "object": object, "created": 0, "model": self.model, "choices": choices})
    }
}

/// The answer's text, word by word: whoever reads it can tell whether one is missing or came twice.
fn word(number: u32) -> String {
    format!("word{number} ")
}

fn usage(words: u32) -> Value {
    json!({"prompt_tokens": 1, "completion_tokens": words, "total_tokens": words + 1})
}

fn event(name: &str, data: &Value) -> Bytes {
    Bytes::from(format!("event: {name}\ndata: {data}\n\n"))
}

fn joined(parts: &[Bytes]) -> Bytes {
    Bytes::from(parts.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voice(path: &str) -> Voice {
        let question =
            Question::read(br#"{"model":"m","stream":true,"stream_options":{"include_usage":true}}"#).unwrap();
        Voice::new(Dialect::of_path(path), &question, 7)
    }

    #[test]
    fn every_part_of_a_stream_is_whole_server_sent_events_of_json() {
        for voice in [voice("/v1/chat/completions"), voice("/v1/messages")] {
            for part in [voice.opening(), voice.word(1), voice.word(2), voice.closing(2, Stop::Length)] {
                let text = String::from_utf8(part.to_vec()).unwrap();
                assert!(text.ends_with("\n\n"), "{text:?}");
                for data in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
                    assert!(data == "[DONE]" || data.parse::<Value>().is_ok(), "{data:?}");
                }
            }
        }
    }

    #[test]
    fn a_stream_says_the_same_words_as_a_whole_answer() {
        for voice in [voice("/v1/chat/completions"), voice("/v1/messages")] {
            let streamed: String = (1..=12)
                .map(|number| String::from_utf8(voice.word(number).to_vec()).unwrap())
                .map(|event| format!("word{} ", event.split("word").nth(1).unwrap().split(' ').next().unwrap()))
                .collect();
            assert!(voice.whole(12, Stop::End).to_string().contains(&streamed));
        }
    }
}
