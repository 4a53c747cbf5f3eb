//! What the gateway tells of its accounts: how long one rests is what its provider said.

use crate::site::{accounts, chat, cool, cool_with, gateway, gateway_with, post, request, stats, upstream};
use serde_json::Value;
use support::programs::daemon::{Daemon, Setup};

fn member(daemon: &Daemon, name: &str) -> Value {
    let pools = daemon.get("/v1/pools");
    let members = pools[0]["members"].as_array().unwrap();
    members.iter().find(|member| member["name"] == name).unwrap().clone()
}

#[test]
fn an_account_rests_until_the_reset_its_provider_named() {
    for path in ["/v1/chat/completions", "/v1/messages"] {
        let daemon = Setup::new(&accounts(2, 4, "")).start();
        let upstream = upstream(2, 4);
        let gateway = gateway(&upstream, &daemon.socket());
        cool(upstream.address, "acct-01", 300);
        let mut streams: Vec<_> =
            (0..2).map(|n| post(gateway.address, path, &format!("sk-{n}"), r#"{"stream":true}"#)).collect();
        for stream in &mut streams {
            assert_eq!(stream.status, 200, "{}", stream.head);
            assert!(stream.first_bytes() > 0);
        }
        let cooled = member(&daemon, "acct-01");
        assert_eq!(cooled["state"], "cooling", "{cooled}");
        let left = cooled["cooling_seconds"].as_f64().unwrap();
        assert!(left > 200.0 && left < 302.0, "{cooled}");
        assert_eq!(member(&daemon, "acct-02")["in_flight"], 2);
        assert_eq!(stats(upstream.address)["refused_cooling_total"], 1, "asked once, and then left alone");
    }
}

#[test]
fn an_overloaded_provider_rests_for_a_short_while_and_its_refusal_is_unseen() {
    for path in ["/v1/chat/completions", "/v1/messages"] {
        let daemon = Setup::new(&accounts(2, 4, "")).start();
        let upstream = upstream(2, 4);
        let gateway = gateway(&upstream, &daemon.socket());
        cool_with(upstream.address, "acct-01", 300, 529);
        let mut streams: Vec<_> =
            (0..2).map(|n| post(gateway.address, path, &format!("sk-{n}"), r#"{"stream":true}"#)).collect();
        assert!(streams.iter_mut().all(|stream| stream.status == 200 && stream.first_bytes() > 0));
        // On a busy machine it may be over before it is looked at.
        let left = member(&daemon, "acct-01")["cooling_seconds"].as_f64();
        assert!(left.is_none_or(|left| left <= 10.0), "{left:?}");
    }
}

#[test]
fn a_running_streams_success_does_not_end_its_accounts_rest() {
    let daemon = Setup::new(&accounts(2, 4, "")).start();
    let upstream = upstream(2, 4);
    let gateway = gateway(&upstream, &daemon.socket());
    let ask = |words: u32| {
        let body = format!(r#"{{"stream":true,"max_tokens":{words}}}"#);
        post(gateway.address, "/v1/messages", "sk-one", &body)
    };
    let mut running = ask(40);
    // With one stream on each account, the next one goes to the first again.
    let mut other = ask(1000);
    assert!(running.first_bytes() > 0 && other.first_bytes() > 0);
    cool(upstream.address, "acct-01", 300);
    let moved = ask(2).body();
    assert!(moved.contains("message_stop"), "{moved:?}");
    let whole = running.body();
    assert!(whole.contains("word40 ") && whole.contains("message_stop"), "what ran went on: {whole:?}");
    assert!(ask(2).body().contains("message_stop"));
    assert_eq!(member(&daemon, "acct-01")["state"], "cooling");
    assert_eq!(stats(upstream.address)["refused_cooling_total"], 1);
    drop(other);
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
}

#[test]
fn a_providers_refusal_that_nobody_can_take_over_passes_as_it_is_but_for_its_origin() {
    let daemon = Setup::new(&accounts(1, 4, "")).start();
    let upstream = upstream(1, 4);
    let gateway = gateway(&upstream, &daemon.socket());
    cool(upstream.address, "acct-01", 300);
    let direct = request(upstream.address, "POST /v1/messages", "X-Account: acct-01\r\nConnection: close", "{}");
    let (status, reset) = (direct.status, direct.header("anthropic-ratelimit-requests-remaining").unwrap().to_owned());
    let direct = direct.json();
    let passed = post(gateway.address, "/v1/messages", "sk-one", "{}");
    assert_eq!((passed.status, status), (429, 429));
    assert_eq!(passed.header("x-governor-origin"), Some("upstream"));
    assert_eq!(passed.header("anthropic-ratelimit-requests-remaining"), Some(reset.as_str()));
    assert!(passed.header("x-governor-decision").is_none(), "governor decided nothing: {}", passed.head);
    assert_eq!(passed.json(), direct);

    // From now on the governor knows: it refuses by itself, until the reset that the provider named.
    let refused = post(gateway.address, "/v1/messages", "sk-one", "{}");
    assert_eq!((refused.status, refused.header("x-governor-origin")), (429, Some("upstream")), "{}", refused.head);
    let id = refused.header("x-governor-decision").unwrap().to_owned();
    assert_eq!(daemon.get(&format!("/v1/explain/{id}"))["reason"], "all_cooling");
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    // Up to 12 s more spread a crowd that waits for one reset.
    assert!((280..=313).contains(&seconds), "{}", refused.head);
    assert_eq!(stats(upstream.address)["refused_cooling_total"], 2);
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
}

#[test]
fn a_provider_that_breaks_or_hangs_gives_every_slot_back() {
    let daemon = Setup::new(&accounts(2, 2, "")).start();
    let upstream = upstream(2, 2);
    let gateway = gateway_with(&upstream, &daemon.socket(), &["--first-byte-timeout-ms", "300"]);
    let ask = |fault: &str| {
        let body = format!(r#"{{"stream":true,"simulate":{fault}}}"#);
        post(gateway.address, "/v1/chat/completions", "sk-one", &body)
    };
    for (fault, status) in [(r#"{"status":500}"#, 500), (r#"{"status":400}"#, 400), (r#"{"hang":true}"#, 504)] {
        assert_eq!(ask(fault).status, status, "{fault}");
    }
    let mut cut = ask(r#"{"cut_after":2,"word_ms":10}"#);
    assert!(cut.status == 200 && cut.first_bytes() > 0);
    let rest = cut.body();
    assert!(!rest.ends_with("0\r\n\r\n"), "a stream that was cut does not look whole: {rest:?}");
    daemon.wait_for("/v1/pools", |pools| pools[0]["in_flight"] == 0);
    let mut after = chat(gateway.address, "sk-two");
    assert!(after.status == 200 && after.first_bytes() > 0, "{}", after.head);
}
