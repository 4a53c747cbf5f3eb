//! The tuner over HTTP: what it sees, what it did, and what operators order for single listeners.

use super::problem::{Answer, Problem};
use super::server::{Caller, writer};
use crate::config::TunerMode;
use crate::node::handle::Handle;
use crate::tuner::{self, Selector};
use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{ConnectInfo, Query, State};
use axum::http::StatusCode;
use governor_api as api;

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

/// `POST /v1/tuner/mode`.
pub(super) async fn set_mode(
    State(handle): State<Handle>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    body: Result<Json<api::TunerSet>, JsonRejection>,
) -> Answer<api::TunerOrdered> {
    let Json(api::TunerSet { which, mode }) = body?;
    let by = writer(caller)?;
    let mode = TunerMode::parse(&mode).filter(|mode| *mode != TunerMode::Off).ok_or_else(|| {
        Problem::new(StatusCode::BAD_REQUEST, format!("\"{mode}\" is no mode for single listeners"))
            .hint("write enforce or observe")
    })?;
    selector(&which)?;
    let ordered = handle.tuner().set_mode(which, Some(mode), by).await.ok_or_else(Problem::stopping)?;
    let (ordered, stored) = ordered.map_err(|why| Problem::new(StatusCode::BAD_REQUEST, why))?;
    Ok(Json(api::TunerOrdered { warning: stored.warning().await, ..ordered }))
}

/// `POST /v1/tuner/clear`.
pub(super) async fn clear_mode(
    State(handle): State<Handle>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    body: Result<Json<api::TunerWhich>, JsonRejection>,
) -> Answer<api::TunerOrdered> {
    let Json(which) = body?;
    let by = writer(caller)?;
    selector(&which)?;
    let ordered = handle.tuner().set_mode(which, None, by).await.ok_or_else(Problem::stopping)?;
    let (ordered, stored) = ordered.map_err(|why| {
        Problem::new(StatusCode::NOT_FOUND, why).hint("governorctl tune lists the settings; name one as it is listed")
    })?;
    Ok(Json(api::TunerOrdered { warning: stored.warning().await, ..ordered }))
}

/// `POST /v1/tuner/restore`.
pub(super) async fn restore(
    State(handle): State<Handle>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    body: Result<Json<api::TunerWhich>, JsonRejection>,
) -> Answer<api::TunerOrdered> {
    let Json(which) = body?;
    let by = writer(caller)?;
    let selected = selector(&which)?;
    let ordered = handle.tuner().restore(selected, by).await.ok_or_else(Problem::stopping)?;
    if ordered.listeners.is_empty() {
        return Err(Problem::new(StatusCode::NOT_FOUND, format!("the tuner looks at no listener that is {which}"))
            .hint("governorctl tune --dry-run lists those that it looks at"));
    }
    Ok(Json(ordered))
}

/// `POST /v1/tuner/resume`.
pub(super) async fn resume(
    State(handle): State<Handle>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    body: Result<Json<api::TunerResume>, JsonRejection>,
) -> Answer<api::TunerResumed> {
    let Json(request) = body?;
    let by = writer(caller)?;
    let which = api::TunerWhich::from(request);
    let selected = parse(&which)?;
    let names_some = !selected.is_everything();
    let listeners = handle.tuner().resume(selected, by).await.ok_or_else(Problem::stopping)?;
    if listeners.is_empty() && names_some {
        return Err(Problem::new(StatusCode::NOT_FOUND, "no listener there was left alone")
            .hint("governorctl tune shows which ones are"));
    }
    Ok(Json(api::TunerResumed { listeners }))
}

/// Which listeners an order is for. The whole host is the configuration's: `tuner.mode`.
fn selector(which: &api::TunerWhich) -> Result<Selector, Problem> {
    let selected = parse(which)?;
    if selected.is_everything() {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "no listener is named").hint(
            "name a listener, a namespace, a cgroup or a process; governorctl set tuner.mode is for the whole host",
        ));
    }
    Ok(selected)
}

fn parse(which: &api::TunerWhich) -> Result<Selector, Problem> {
    tuner::selector(which).map_err(|why| {
        Problem::new(StatusCode::BAD_REQUEST, why)
            .hint("write its address and port, 0.0.0.0:443 or [::]:443, only :443, or cookie: and the socket's cookie")
    })
}
