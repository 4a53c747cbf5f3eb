//! The official OpenAI and Anthropic clients in front of the example gateway: a refusal raises what their users catch,
//! a retry comes when it was told to, a stream arrives word for word.

mod python;
mod tap;

use crate::official::python::{Client, Provider};
use crate::official::tap::Tap;
use crate::site::{Program, accounts, chat, cool, gateway, upstream};
use std::time::Duration;
use support::programs::daemon::{Daemon, Setup};

/// A client, and all that is between it and the account with the one slot it wants.
struct Site {
    client: Client,
    tap: Tap,
    gateway: Program,
    upstream: Program,
    daemon: Daemon,
}

impl Site {
    fn new(provider: Provider) -> Self {
        let daemon = Setup::new(&accounts(1, 1, "[pools.chat.park]\nmax_wait = \"0s\"")).start();
        let upstream = upstream(1, 1);
        let gateway = gateway(&upstream, &daemon.socket());
        let tap = Tap::before(gateway.address);
        let client = Client::start(provider, tap.address);
        Self { client, tap, gateway, upstream, daemon }
    }
}

/// `word1 word2 …`, as the upstream says it.
fn words(count: u32) -> String {
    (1..=count).map(|number| format!("word{number} ")).collect()
}

#[test]
fn openais_client_gets_whole_and_streamed_answers_word_for_word() {
    answers(Provider::OpenAi, "length");
}

#[test]
fn anthropics_client_gets_whole_and_streamed_answers_word_for_word() {
    answers(Provider::Anthropic, "max_tokens");
}

fn answers(provider: Provider, reason: &str) {
    let mut site = Site::new(provider);
    for streamed in [false, true] {
        let answer = site.client.ask(streamed, 12, 0);
        assert_eq!(answer["text"], words(12), "{answer}");
        assert_eq!((&answer["words"], &answer["reason"]), (&12.into(), &reason.into()), "{answer}");
    }
    site.daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0 && pools[0]["granted_total"] == 2);
}

#[test]
fn openais_client_talks_over_a_websocket_and_reads_why_it_may_not() {
    let mut site = Site::new(Provider::OpenAi);
    let heard = site.client.talk(5);
    let pieces: Vec<_> = (0..5).map(|number| format!("piece{number}")).collect();
    assert_eq!(heard["heard"], serde_json::json!(pieces), "{heard}");
    site.daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0 && pools[0]["granted_total"] == 1);
    let held = chat(site.gateway.address, "sk-first");
    let refused = site.client.talk(1);
    assert_eq!(
        (&refused["status"], &refused["headers"]["x-governor-origin"]),
        (&429.into(), &"pool".into()),
        "{refused}"
    );
    drop(held);
}

#[test]
fn openais_client_raises_what_its_users_catch() {
    let overloaded = ["InternalServerError", "APIStatusError"];
    refusals(Provider::OpenAi, &overloaded, |body| {
        assert_eq!(body["error"]["code"], "overloaded", "{body}");
    });
}

#[test]
fn anthropics_client_raises_what_its_users_catch() {
    let overloaded = ["OverloadedError", "InternalServerError", "APIStatusError"];
    refusals(Provider::Anthropic, &overloaded, |body| {
        assert_eq!((&body["type"], &body["error"]["type"]), (&"error".into(), &"overloaded_error".into()), "{body}");
    });
}

fn refusals(provider: Provider, overloaded: &[&str], body: impl Fn(&serde_json::Value)) {
    let mut site = Site::new(provider);
    let held = chat(site.gateway.address, "sk-first");
    for streamed in [false, true] {
        let refused = site.client.ask(streamed, 1, 0);
        assert_eq!(raised(&refused), ["RateLimitError", "APIStatusError"], "{refused}");
        assert_eq!((&refused["status"], &refused["headers"]["x-governor-origin"]), (&429.into(), &"pool".into()));
        assert_eq!(refused["body"]["error"]["type"], "rate_limit_error", "{refused}");
    }
    let set = site.daemon.ctl(&["set", "node.cap", "1"]);
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
    let refused = site.client.ask(false, 1, 0);
    assert_eq!(raised(&refused), overloaded, "{refused}");
    assert_eq!((&refused["status"], &refused["headers"]["x-governor-origin"]), (&529.into(), &"node".into()));
    body(&refused["body"]);
    drop(held);
}

/// The classes of the exception that a user could catch, up to the one of all answers that are no success.
fn raised(refused: &serde_json::Value) -> Vec<&str> {
    let classes = refused["raised"].as_array().unwrap_or_else(|| panic!("nothing was raised: {refused}"));
    let end = classes.iter().position(|class| class == "APIStatusError").expect("the server's answer was understood");
    classes[..=end].iter().filter_map(|class| class.as_str()).collect()
}

#[test]
fn openais_client_comes_back_when_it_was_told_to() {
    retries(Provider::OpenAi);
}

#[test]
fn anthropics_client_comes_back_when_it_was_told_to() {
    retries(Provider::Anthropic);
}

fn retries(provider: Provider) {
    let mut site = Site::new(provider);
    // The governor's refusal: nobody gives the slot back, so every try is refused.
    let held = chat(site.gateway.address, "sk-first");
    let refused = site.client.ask(false, 1, 2);
    assert_eq!(refused["status"], 429, "{refused}");
    assert_eq!(followed(&site.tap, &refused), 2);
    drop(held);
    site.daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);

    // The provider's refusal, which passes as it is; when the account serves again, so does the retry.
    cool(site.upstream.address, "acct-01", 5);
    let answer = site.client.ask(true, 3, 5);
    assert_eq!(answer["text"], words(3), "{answer}");
    assert!(followed(&site.tap, &answer) >= 1);
    site.daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
}

/// How many tries followed a refusal, each of them exactly when that refusal had said.
fn followed(tap: &Tap, outcome: &serde_json::Value) -> usize {
    let delays: Vec<f64> = outcome["delays"].as_array().unwrap().iter().map(|delay| delay.as_f64().unwrap()).collect();
    let tries = tap.take_tries();
    assert_eq!(tries.len(), delays.len() + 1, "{tries:?} {outcome}");
    for (pair, delay) in tries.windows(2).zip(&delays) {
        let (refused, advice) = pair[0].refused.expect("a try that was followed by another had been refused");
        assert!((advice.as_secs_f64() - delay).abs() < 1e-3, "told {advice:?}, waits {delay} s");
        assert!(pair[1].arrived >= refused + advice, "{:?} after a refusal for {advice:?}", pair[1].arrived - refused);
        assert!(advice > Duration::ZERO);
    }
    delays.len()
}
