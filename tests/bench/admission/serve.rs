//! The servers that are compared with and that this program itself can be: an echo, and a service that allows everything.

use crate::talk;
use anyhow::{Context, Result, bail};
use axum::Router;
use axum::http::StatusCode;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};

/// Serves until it is killed.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match arguments {
        [mode, path] if mode == "echo" => runtime.block_on(echo(path)),
        [mode, path] if mode == "authz" => runtime.block_on(authz(path)),
        _ => bail!("nothing can be served by {arguments:?}"),
    }
}

/// Answers every request of one release and one acquire with the frame of a grant, whatever it asks.
async fn echo(path: &str) -> Result<()> {
    let listener = UnixListener::bind(path).with_context(|| format!("cannot listen on {path}"))?;
    let (length, answer) = (talk::release(&[0])?.len() + talk::acquire(7)?.len(), talk::grant()?);
    loop {
        let (mut stream, _) = listener.accept().await?;
        let answer = answer.clone();
        tokio::spawn(async move {
            let mut request = vec![0; length];
            while stream.read_exact(&mut request).await.is_ok() {
                if stream.write_all(&answer).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// What Envoy asks.
async fn authz(path: &str) -> Result<()> {
    let listener = UnixListener::bind(path).with_context(|| format!("cannot listen on {path}"))?;
    axum::serve(listener, Router::new().fallback(|| async { StatusCode::OK })).await?;
    Ok(())
}

/// What all gateways forward to: says the same short thing to everybody. Runs on a thread of this process, beside the
/// clients.
pub(crate) fn upstream() -> Result<SocketAddr> {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || -> Result<()> {
        support::cores::beside_clients()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            // Whoever asked is gone only when the program ends.
            tell.send(listener.local_addr()?).ok();
            let answer = || async { ([("content-type", "application/json")], ANSWER) };
            axum::serve(listener, Router::new().fallback(answer)).await?;
            Ok(())
        })
    });
    told.recv().context("the upstream did not start")
}

/// As long as a short answer of a model.
const ANSWER: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a short answer, some words long, as models give them"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":12,"total_tokens":21}}"#;
