//! Several pools behind one gateway: by endpoint, and by the model that a path names.

use crate::site::{accounts, gateway_with, post, stats, upstream};
use serde_json::Value;
use support::programs::daemon::Setup;

#[test]
fn each_kind_of_request_takes_its_slot_from_its_own_pool_and_provider() {
    let more =
        "[pools.embed.members.acct-01]\nslots = 1\nreserve = 0\n[pools.big.members.acct-01]\nslots = 1\nreserve = 0\n";
    let daemon = Setup::new(&format!("{}{more}", accounts(1, 1, "[pools.chat.park]\nmax_wait = \"0s\"\n"))).start();
    let (chats, embeddings) = (upstream(1, 2), upstream(1, 2));
    let embed = format!("embed={}", embeddings.address);
    let rules = ["--pool-for", "model:gpt-5=big", "--pool-for", "embeddings=embed", "--upstream", &embed];
    let gateway = gateway_with(&chats, &daemon.socket(), &rules);

    let stream = r#"{"stream":true}"#;
    let mut chat = post(gateway.address, "/v1/chat/completions", "sk-one", stream);
    assert!(chat.status == 200 && chat.first_bytes() > 0);
    assert_eq!(post(gateway.address, "/v1/chat/completions", "sk-one", stream).status, 429, "its pool is full");
    let mut big = post(gateway.address, "/openai/deployments/gpt-5/chat/completions", "sk-one", stream);
    assert!(big.status == 200 && big.first_bytes() > 0, "{}", big.head);
    let vector = post(gateway.address, "/v1/embeddings", "sk-one", r#"{"input":"x"}"#);
    assert_eq!(vector.status, 200);
    assert_eq!(vector.json()["data"][0]["embedding"][0], 0.25);

    let granted = |pools: &Value, name: &str| {
        let pool = pools.as_array().unwrap().iter().find(|pool| pool["name"] == name).unwrap();
        pool["granted_total"].clone()
    };
    let pools = daemon.get("/v1/pools");
    assert_eq!(["chat", "big", "embed"].map(|name| granted(&pools, name)), [1, 1, 1]);
    let asked = |upstream| stats(upstream)["streams_total"].clone();
    assert_eq!((asked(chats.address), asked(embeddings.address)), (2.into(), 1.into()));
}
