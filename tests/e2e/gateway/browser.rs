//! A page in a real browser, of another origin than the gateway: it can read what a refusal says, and only where the
//! gateway lets its origin in.

use crate::site::{accounts, chat, gateway_with, upstream};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::thread;
use support::programs::daemon::Setup;

/// Asks the gateway as an application in a browser would, and shows what it may know.
const PAGE: &str = r#"<!doctype html><title>page</title><pre id="seen">nothing</pre><script>
const names = ["retry-after", "retry-after-ms", "x-governor-origin", "x-governor-decision", "ratelimit", "ratelimit-policy"];
const show = seen => { document.getElementById("seen").textContent = JSON.stringify(seen); };
fetch("GATEWAY/v1/chat/completions", {
  method: "POST",
  headers: {"authorization": "Bearer sk-page", "content-type": "application/json"},
  body: JSON.stringify({model: "m", messages: []}),
}).then(async answer => show({
  status: answer.status,
  headers: Object.fromEntries(names.map(name => [name, answer.headers.get(name)])),
  body: await answer.json(),
})).catch(error => show({error: error.name}));
</script>"#;

/// Serves one page at an origin of its own, for as long as the test runs.
fn serve(page: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let page = page.clone();
            // The browser opens connections ahead of its requests.
            thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
                let length = page.len();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\r\n");
                drop(stream.write_all(format!("{head}{page}").as_bytes()));
            });
        }
    });
    address
}

/// What the page at `origin` saw.
fn browse(origin: SocketAddr) -> Value {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("timeout")
        .args(["--kill-after=5", "120", "chromium"])
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"])
        .args(["--no-proxy-server", "--virtual-time-budget=20000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("http://{origin}/"))
        .env("HOME", profile.path())
        .stdin(Stdio::null())
        .output()
        .expect("Debian's package chromium is installed by `cargo xtask setup`");
    let dom = String::from_utf8_lossy(&output.stdout);
    let seen = dom.split_once(r#"<pre id="seen">"#).and_then(|(_, rest)| rest.split_once("</pre>"));
    let seen = seen.unwrap_or_else(|| panic!("{dom}\n{}", String::from_utf8_lossy(&output.stderr))).0;
    serde_json::from_str(&seen.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))
        .unwrap_or_else(|error| panic!("{error}: {seen:?}\n{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn a_page_of_another_origin_reads_a_refusal_and_cannot_where_it_is_not_let_in() {
    let daemon = Setup::new(&accounts(1, 1, "[pools.chat.park]\nmax_wait = \"0s\"")).start();
    let upstream = upstream(1, 1);
    let open = gateway_with(&upstream, &daemon.socket(), &["--cors-origin", "*"]);
    let allowed = serve(PAGE.replace("GATEWAY", &format!("http://{}", open.address)));
    let closed = gateway_with(&upstream, &daemon.socket(), &["--cors-origin", "http://elsewhere.example"]);
    let denied = serve(PAGE.replace("GATEWAY", &format!("http://{}", closed.address)));
    let held = chat(open.address, "sk-first");
    assert_eq!(held.status, 200);

    let seen = browse(allowed);
    assert_eq!((&seen["status"], &seen["body"]["error"]["type"]), (&json!(429), &json!("rate_limit_error")), "{seen}");
    let headers = &seen["headers"];
    let number = |name: &str| headers[name].as_str().and_then(|value| value.parse::<u64>().ok());
    let (seconds, millis) = (number("retry-after").unwrap(), number("retry-after-ms").unwrap());
    assert!(seconds >= 1 && seconds == millis.div_ceil(1000), "{headers}");
    assert_eq!(headers["x-governor-origin"], "pool");
    let id = headers["x-governor-decision"].as_str().unwrap();
    assert_eq!(daemon.get(&format!("/v1/explain/{id}"))["reason"], "pool_exhausted");
    assert!(headers["ratelimit"].as_str().unwrap().starts_with("\"pool_exhausted\";r=0;t="), "{headers}");

    assert_eq!(browse(denied), json!({"error": "TypeError"}), "the browser hides even the status");
    drop(held);
}
