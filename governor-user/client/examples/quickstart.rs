//! The smallest protected gateway: `quickstart SOCKET`. The lines between the marks are those of the guide. What it forwards
//! to is played by its own handler, which tells the account it would use and goes on until its client leaves.

use anyhow::Context;
use axum::body::{Body, Bytes};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use futures_util::{StreamExt, stream};
use governor_client::LeaseHandle;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use std::convert::Infallible;
use std::path::Path;
use tokio::net::TcpListener;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let socket = std::env::args_os().nth(1).context("usage: quickstart SOCKET")?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    announce(&listener)?;
    serve(Path::new(&socket), listener).await
}

async fn serve(socket: &Path, listener: TcpListener) -> anyhow::Result<()> {
    // guide: begin
    use governor_client::tower::{Connection, GovernorLayer, axum::Listener};
    use governor_client::{Config, Governor, NodeSecret};
    let secret = NodeSecret::new(std::env::var("NODE_SECRET")?.as_bytes())?;
    let governor = Governor::start(Config { secret, ..Config::new(socket) });
    let admission = GovernorLayer::new(governor, "chat");
    let app = Router::new().route("/healthz", get(|| async { "ok\n" })).fallback(forward);
    let app = app.layer(admission);
    let listener = Listener::new(listener);
    let service = app.into_make_service_with_connect_info::<Connection>();
    axum::serve(listener, service).await?;
    // guide: end
    Ok(())
}

async fn forward(lease: Option<Extension<LeaseHandle>>) -> Response {
    let Some(Extension(lease)) = lease else { return Response::new(Body::from("no slot needed\n")) };
    let account = lease.member().unwrap_or_default();
    let first = stream::iter([Ok::<_, Infallible>(Bytes::from(format!("data: by {account}\n\n")))]);
    let mut response = Response::new(Body::from_stream(first.chain(stream::pending())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

#[expect(clippy::print_stdout, reason = "whoever started this program reads the port here")]
fn announce(listener: &TcpListener) -> std::io::Result<()> {
    println!("listening on {}", listener.local_addr()?);
    Ok(())
}
