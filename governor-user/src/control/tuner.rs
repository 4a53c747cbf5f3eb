//! The tuner over HTTP: what it sees, what it did, and giving listeners back to it.

use super::api;
use super::problem::{Answer, Problem};
use super::server::{Caller, writer};
use crate::config::ListenerPattern;
use crate::daemon::handle::Handle;
use crate::tuner;
use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{ConnectInfo, Query, State};
use axum::http::StatusCode;

/// `GET /v1/tuner`.
pub(super) async fn view(State(handle): State<Handle>) -> Answer<api::Tuner> {
    handle.tuner().view().await.map(Json).ok_or_else(Problem::stopping)
}

/// `GET /v1/tuner/journal`.
pub(super) async fn journal(
    State(handle): State<Handle>,
    query: Result<Query<api::TunerJournalQuery>, QueryRejection>,
) -> Answer<Vec<api::TunerRecord>> {
    let Query(query) = query?;
    let state = handle.state().clone();
    let found = tokio::task::spawn_blocking(move || tuner::records(state.path(), query.last_seconds)).await;
    let failed =
        |why: String| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the journal cannot be read: {why}"));
    let found = found.map_err(|error| failed(error.to_string()))?;
    found.map(Json).map_err(|error| failed(error.to_string()))
}

/// `POST /v1/tuner/resume`.
pub(super) async fn resume(
    State(handle): State<Handle>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    body: Result<Json<api::TunerResume>, JsonRejection>,
) -> Answer<api::TunerResumed> {
    let Json(request) = body?;
    let by = writer(caller)?;
    let which = match &request.listener {
        None => None,
        Some(text) => Some(ListenerPattern::parse(text).ok_or_else(|| {
            Problem::new(StatusCode::BAD_REQUEST, format!("\"{text}\" is no listener"))
                .hint("write its address and port, 0.0.0.0:443 or [::]:443, or only :443")
        })?),
    };
    let listeners = handle.tuner().resume(which, by).await.ok_or_else(Problem::stopping)?;
    if listeners.is_empty() && request.listener.is_some() {
        return Err(Problem::new(StatusCode::NOT_FOUND, "no listener there was left alone")
            .hint("governorctl tune shows which ones are"));
    }
    Ok(Json(api::TunerResumed { listeners }))
}
