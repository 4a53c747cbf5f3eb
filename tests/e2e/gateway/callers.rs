//! Who asks is what the gateway's own authentication found out, whatever a client says of itself.

use crate::site::{accounts, gateway_with, post, request, upstream};
use serde_json::json;
use support::programs::daemon::Setup;

/// `sk-alpha` and `sk-beta`, as `sha256sum` has them.
const ALPHA: &str = "2179e632e89277f18aa600491b68ad55121fd6caa045e047fdeb426088a5a5f1";
const BETA: &str = "c29d79ad08b23ba5095b823d0b2e777320983be14c1150de96d07a86da5cd78c";

#[test]
fn a_caller_is_who_its_key_is_and_nobody_else_gets_a_slot() {
    let plan = "[node]\ncaps_mode = \"enforce\"\n[classes.tier2]\ncap = 1\n";
    let daemon = Setup::new(&format!("{plan}{}", accounts(2, 4, ""))).start();
    let upstream = upstream(2, 4);
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.json");
    let entries = json!({
        ALPHA: {"label": "alpha", "org": "acme", "class": "tier2", "priority": "critical", "accounts": ["acct-02"]},
        BETA: {"label": "beta", "priority": "sheddable"},
    });
    std::fs::write(&keys, entries.to_string()).unwrap();
    let gateway = gateway_with(&upstream, &daemon.socket(), &["--keys", keys.to_str().unwrap()]);

    let stream = r#"{"stream":true}"#;
    let mut alpha = post(gateway.address, "/v1/chat/completions", "sk-alpha", stream);
    assert!(alpha.status == 200 && alpha.first_bytes() > 0, "{}", alpha.head);
    // Anthropic's way to send a key, and headers that name another org, a better plan and a running lease.
    let claims = "X-Api-Key: sk-beta\r\nX-Client-Name: alpha\r\nX-Org: acme\r\nX-Class: tier4\r\nX-Priority: critical\r\n\
                  X-Governor-Lease: 1\r\nConnection: close";
    let mut beta = request(gateway.address, "POST /v1/messages", claims, stream);
    assert!(beta.status == 200 && beta.first_bytes() > 0, "{}", beta.head);

    let mut leases = daemon.get("/v1/leases").as_array().unwrap().clone();
    leases.sort_by_key(|lease| lease["label"].to_string());
    assert_eq!(leases.len(), 2, "{leases:?}");
    let seen = |name: &str| [leases[0][name].clone(), leases[1][name].clone()];
    assert_eq!(seen("label"), ["alpha", "beta"]);
    assert_eq!(seen("priority"), ["critical", "sheddable"]);
    assert!(leases[0]["org"].is_string() && leases[1]["org"].is_null(), "{leases:?}");
    assert_eq!(leases[0]["member"], "acct-02", "a key that is scoped to some accounts uses those");
    let capped = post(gateway.address, "/v1/chat/completions", "sk-alpha", stream);
    assert_eq!((capped.status, capped.header("x-governor-origin")), (429, Some("org")), "its plan allows one");

    for (line, headers, kind) in [
        ("POST /v1/chat/completions", "Authorization: Bearer sk-gamma", "OpenAI"),
        ("POST /v1/messages", "X-Client-Name: alpha", "Anthropic"),
    ] {
        let refused = request(gateway.address, line, &format!("{headers}\r\nConnection: close"), "{}");
        assert_eq!(refused.status, 401, "{kind}");
        assert_eq!(refused.json()["error"]["type"], "authentication_error", "{kind}");
    }
    assert_eq!(daemon.get("/v1/pools")[0]["granted_total"], 2);
}
