//! A WebSocket of the provider that says back what it is told. It takes a slot of the account until it ends, as a live
//! session of a real provider would.

use crate::answer::take;
use crate::dialect::Dialect;
use crate::provider::{Provider, Slot};
use crate::refusal::refusal;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::HeaderMap;
use axum::response::Response;
use std::sync::Arc;

/// The handshake, and then the echo.
pub(crate) async fn realtime(
    State(provider): State<Arc<Provider>>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    match take(&provider, &headers) {
        Ok(slot) => upgrade.on_upgrade(|socket| echo(socket, slot)),
        Err(refused) => refusal(Dialect::OpenAi, refused, provider.slots),
    }
}

async fn echo(mut socket: WebSocket, slot: Slot) {
    let _held = slot;
    while let Some(Ok(message)) = socket.recv().await {
        let answer = match message {
            Message::Text(_) | Message::Binary(_) => message,
            // Answered by the library.
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) => continue,
        };
        if socket.send(answer).await.is_err() {
            return;
        }
    }
}
