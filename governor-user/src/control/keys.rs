//! Overrides of single keys and the record of changes, over HTTP.

use super::problem::{Answer, Problem};
use super::server::{Caller, LONGEST, writer};
use crate::driver::operator::key_orders::KeyRefused;
use crate::node::handle::Handle;
use crate::records::audit;
use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{ConnectInfo, Path, Query, State};
use axum::http::StatusCode;
use governor_api as api;

/// `GET /v1/overrides`.
pub(super) async fn list(State(handle): State<Handle>) -> Answer<Vec<api::KeyOverride>> {
    handle.key_overrides().await.map(Json).ok_or_else(Problem::stopping)
}

/// `PUT /v1/overrides/{key}`.
pub(super) async fn set(
    State(handle): State<Handle>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    Path(key): Path<String>,
    body: Result<Json<api::KeyOverrideRequest>, JsonRejection>,
) -> Answer<api::Warned<api::KeyOverrideChange>> {
    let Json(order) = body?;
    if order.for_seconds.is_some_and(|seconds| seconds == 0 || seconds > LONGEST) {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "an override lasts from one second to 366 days"));
    }
    carry_out(&handle, caller, key, Some(order)).await
}

/// `DELETE /v1/overrides/{key}`.
pub(super) async fn clear(
    State(handle): State<Handle>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    Path(key): Path<String>,
) -> Answer<api::Warned<api::KeyOverrideChange>> {
    carry_out(&handle, caller, key, None).await
}

/// `GET /v1/events`.
pub(super) async fn events(
    State(handle): State<Handle>,
    query: Result<Query<api::EventsQuery>, QueryRejection>,
) -> Answer<Vec<api::Event>> {
    let Query(query) = query?;
    let state = handle.state().clone();
    let found = tokio::task::spawn_blocking(move || audit::events(state.path(), query.last_seconds)).await;
    let failed = |why: String| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("events cannot be read: {why}"));
    let found = found.map_err(|error| failed(error.to_string()))?;
    found.map(Json).map_err(|error| failed(error.to_string()))
}

async fn carry_out(
    handle: &Handle,
    caller: Caller,
    name: String,
    order: Option<api::KeyOverrideRequest>,
) -> Answer<api::Warned<api::KeyOverrideChange>> {
    let by = writer(caller)?;
    let configured = handle.settings().lock().await.loaded().config.names.key(&name);
    let name = configured.map_or(name, |key| format!("{:032x}", key.0));
    let done = handle.order_key(name, order, by).await.ok_or_else(Problem::stopping)?;
    let (change, stored) = done?;
    Ok(Json(api::Warned { answer: change, warning: stored.warning().await }))
}

impl From<KeyRefused> for Problem {
    fn from(refused: KeyRefused) -> Self {
        let said = refused.to_string();
        match refused {
            KeyRefused::Unknown { .. } => Self::new(StatusCode::NOT_FOUND, said)
                .hint("name it by its label or by its 32 hexadecimal digits, as governorctl keys shows them"),
            KeyRefused::Ambiguous { keys, .. } => {
                Self::new(StatusCode::CONFLICT, said).hint(format!("they are {}", keys.join(", ")))
            }
            KeyRefused::NotOverridden { .. } => Self::new(StatusCode::NOT_FOUND, said),
            KeyRefused::Invalid(_) => Self::new(StatusCode::BAD_REQUEST, said),
            KeyRefused::TooMany(_) => Self::new(StatusCode::CONFLICT, said),
        }
    }
}
