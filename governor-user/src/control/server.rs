//! The control server: HTTP over a Unix socket. Reading needs the socket's mode, writing needs root or the daemon's own
//! user, as the kernel reports it.

use super::advice;
use super::keys;
use super::members;
use super::problem::{Answer, Problem};
use super::tuner;
use super::views;
use crate::config::Names;
use crate::control::verdicts::Place;
use crate::findings::Facts;
use crate::node::handle::Handle;
use crate::node::reload;
use crate::process::clock;
use crate::records::archive;
use crate::records::audit::event;
use crate::transport::peer::Peer;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{ConnectInfo, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Extension, Json, Router};
use governor_api as api;
use governor_kernel::accounting::groups::groups;

/// Longest bypass or override that ends by itself: a year.
pub(super) const LONGEST: u64 = 366 * 86_400;

/// Who asks; `None` if the kernel would not say.
#[derive(Clone, Copy, Debug)]
pub struct Caller(Option<Peer>);

impl From<Option<Peer>> for Caller {
    fn from(peer: Option<Peer>) -> Self {
        Self(peer)
    }
}

/// The routes.
pub fn routes(handle: Handle) -> Router {
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/listeners", get(listeners))
        .route("/v1/listeners/closed", get(closed))
        .route("/v1/verdicts", get(verdicts))
        .route("/v1/cgroups", get(cgroups))
        .route("/v1/namespaces", get(namespaces))
        .route("/v1/pools", get(pools))
        .route("/v1/members", get(members::list))
        .route("/v1/members/{pool}/{member}", post(members::order))
        .route("/v1/drain", get(members::drain).post(members::order_drain))
        .route("/v1/keys", get(keys))
        .route("/v1/orgs", get(orgs))
        .route("/v1/leases", get(leases))
        .route("/v1/leases/{id}", get(lease))
        .route("/v1/refusals", get(super::refusals::refusals))
        .route("/v1/explain/{id}", get(explain))
        .route("/v1/advise", get(advise))
        .route("/v1/config", get(config))
        .route("/v1/settings/{key}", put(set).delete(unset))
        .route("/v1/overrides", get(keys::list))
        .route("/v1/overrides/{key}", put(keys::set).delete(keys::clear))
        .route("/v1/events", get(keys::events))
        .route("/v1/bypass", post(bypass))
        .route("/v1/reload", post(reload))
        .route("/v1/tuner", get(tuner::view))
        .route("/v1/tuner/journal", get(tuner::journal))
        .route("/v1/tuner/mode", post(tuner::set_mode))
        .route("/v1/tuner/clear", post(tuner::clear_mode))
        .route("/v1/tuner/restore", post(tuner::restore))
        .route("/v1/tuner/resume", post(tuner::resume))
        .route("/v1/doctor", get(doctor))
        .fallback(|| async { Problem::new(StatusCode::NOT_FOUND, "no such route") })
        .method_not_allowed_fallback(|| async { Problem::new(StatusCode::METHOD_NOT_ALLOWED, "no such method here") })
        .layer(Extension(advice::Turn::default()))
        .with_state(handle)
}

async fn status(State(handle): State<Handle>) -> Answer<api::Status> {
    let view = handle.view().await.ok_or_else(Problem::stopping)?;
    let settings = handle.settings().lock().await;
    let (seen, report, state) = (handle.observation(), handle.report(), views::state_health(handle.state()));
    let facts = Facts {
        view: &view,
        seen: &seen,
        report: &report,
        hold: settings.loaded().config.overload.hold,
        failed_reload: settings.reload_failure(),
        state: &state,
    };
    Ok(Json(views::status(facts, handle.started(), &settings)))
}

async fn listeners(
    State(handle): State<Handle>,
    query: Result<Query<api::ListenersQuery>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(query) = query?;
    let seen = handle.observation();
    match query.groups {
        0 => {
            let report = handle.report();
            let rows = tokio::task::spawn_blocking(move || super::listeners::rows(&seen.listeners, &report));
            let failed = |error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("no listeners: {error}"));
            Ok(Json(rows.await.map_err(failed)?).into_response())
        }
        1 => Ok(Json(groups(&seen.listeners)).into_response()),
        _ => Err(Problem::new(StatusCode::BAD_REQUEST, "groups is 0 or 1")),
    }
}

async fn verdicts(
    State(handle): State<Handle>,
    query: Result<Query<api::VerdictsQuery>, QueryRejection>,
) -> Answer<Vec<api::ListenerVerdict>> {
    let Query(query) = query?;
    let report = handle.report();
    let blind = handle.observation().walk.blind();
    let with_holders = |mut rows: Vec<api::ListenerVerdict>| {
        for row in rows.iter_mut().filter(|row| row.pids.is_empty()) {
            row.pids_unknown.clone_from(&blind);
        }
        Json(rows)
    };
    let Some(named) = query.listener else { return Ok(with_holders(super::verdicts::verdicts(&report, None))) };
    let place = Place::parse(&named).ok_or_else(|| {
        Problem::new(StatusCode::BAD_REQUEST, format!("\"{named}\" is no listener"))
            .hint("name it by its port or its address and port: :443, 10.0.0.1:443, [::]:443")
    })?;
    let rows = super::verdicts::verdicts(&report, Some(place));
    if rows.is_empty() {
        return Err(Problem::new(StatusCode::NOT_FOUND, format!("nobody listens on {named}"))
            .hint("governorctl listeners shows every listener"));
    }
    Ok(with_holders(rows))
}

async fn closed(State(handle): State<Handle>) -> Json<Vec<api::ClosedListeners>> {
    Json(handle.observation().closed.clone())
}

async fn cgroups(State(handle): State<Handle>) -> Answer<Vec<api::CgroupView>> {
    let seen = handle.observation();
    seen.cgroups.clone().map(Json).ok_or_else(|| {
        let why = seen.degraded.join("; ");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, format!("connections per cgroup are unavailable: {why}"))
    })
}

async fn namespaces(State(handle): State<Handle>) -> Json<Vec<api::NamespaceView>> {
    Json(handle.observation().namespaces.clone())
}

async fn pools(State(handle): State<Handle>) -> Answer<Vec<api::Pool>> {
    let view = handle.view().await.ok_or_else(Problem::stopping)?;
    Ok(Json(views::pools(&view)))
}

async fn keys(
    State(handle): State<Handle>,
    query: Result<Query<api::KeysQuery>, QueryRejection>,
) -> Answer<Vec<api::Key>> {
    let Query(query) = query?;
    let view = handle.view().await.ok_or_else(Problem::stopping)?;
    known_pool(&view, query.pool.as_deref())?;
    Ok(Json(views::keys(&view, &names(&handle).await, &query)))
}

async fn leases(
    State(handle): State<Handle>,
    query: Result<Query<api::LeasesQuery>, QueryRejection>,
) -> Answer<Vec<api::Lease>> {
    let Query(query) = query?;
    let (view, leases) = handle.leases().await.ok_or_else(Problem::stopping)?;
    known_pool(&view, query.pool.as_deref())?;
    Ok(Json(views::leases(&view, &names(&handle).await, &leases, &query)))
}

async fn lease(State(handle): State<Handle>, Path(id): Path<String>) -> Answer<api::Lease> {
    let number = hexadecimal(&id, "l-").ok_or_else(|| {
        Problem::new(StatusCode::BAD_REQUEST, format!("\"{id}\" is no lease id"))
            .hint("governorctl leases lists those that are held")
    })?;
    let (view, leases) = handle.leases().await.ok_or_else(Problem::stopping)?;
    let one: Vec<_> = leases.into_iter().filter(|lease| lease.lease.0 == number).collect();
    let found = views::leases(&view, &names(&handle).await, &one, &api::LeasesQuery::default());
    found.into_iter().next().map(Json).ok_or_else(|| {
        Problem::new(StatusCode::NOT_FOUND, format!("lease l-{number:016x} is not held"))
            .hint("leases that ended are not kept; governorctl leases lists those that are held")
    })
}

/// An id with or without its kind before it.
fn hexadecimal(id: &str, kind: &str) -> Option<u64> {
    u64::from_str_radix(id.strip_prefix(kind).unwrap_or(id), 16).ok()
}

async fn orgs(State(handle): State<Handle>) -> Answer<Vec<api::Org>> {
    let view = handle.view().await.ok_or_else(Problem::stopping)?;
    Ok(Json(views::orgs(&view, &names(&handle).await)))
}

pub(super) async fn names(handle: &Handle) -> Names {
    handle.settings().lock().await.loaded().config.names.clone()
}

pub(super) fn known_pool(view: &crate::driver::view::View, name: Option<&str>) -> Result<(), Problem> {
    let Some(name) = name else { return Ok(()) };
    if view.snapshot.pools.iter().any(|pool| pool.name == name) {
        return Ok(());
    }
    let names: Vec<&str> = view.snapshot.pools.iter().map(|pool| pool.name.as_str()).collect();
    Err(Problem::new(StatusCode::NOT_FOUND, format!("no pool named \"{name}\""))
        .hint(format!("the pools are: {}", names.join(", "))))
}

async fn explain(State(handle): State<Handle>, Path(id): Path<String>) -> Answer<api::Decision> {
    let number = hexadecimal(&id, "d-").ok_or_else(|| {
        Problem::new(StatusCode::BAD_REQUEST, format!("\"{id}\" is no decision id"))
            .hint("it is the value of the response header x-governor-decision, up to 16 hexadecimal digits")
    })?;
    let found = handle.explain(number).await.ok_or_else(Problem::stopping)?;
    if let Some((entry, now)) = found {
        return Ok(Json(views::decision(&entry, now)));
    }
    let unreadable = |why: String| {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the archive of decisions cannot be read: {why}"))
    };
    let _turn = super::refusals::SEARCH.acquire().await.map_err(|error| unreadable(error.to_string()))?;
    let state = handle.state().clone();
    let archived = tokio::task::spawn_blocking(move || {
        Ok::<_, std::io::Error>((archive::find(state.path(), number)?, archive::oldest(state.path())?))
    })
    .await;
    let archived = archived.map_err(|error| unreadable(error.to_string()))?;
    let (found, oldest) = archived.map_err(|error| unreadable(error.to_string()))?;
    found.map(Json).ok_or_else(|| {
        let age = oldest.map_or_else(String::new, |age| format!("; the oldest kept one is {age} s old"));
        Problem::new(StatusCode::NOT_FOUND, format!("decision d-{number:016x} is unknown"))
            .hint(format!("{}{age}", archive::BOUND))
    })
}

async fn advise(
    State(handle): State<Handle>,
    Extension(turn): Extension<advice::Turn>,
    query: Result<Query<api::AdviceQuery>, QueryRejection>,
) -> Answer<api::Advice> {
    let Query(query) = query?;
    let config = handle.settings().lock().await.loaded().config.clone();
    let advised =
        turn.advise(config.policy, handle.state().path().to_owned(), clock::wall_seconds(), query.last_seconds).await;
    advised.map(Json).map_err(|error| match error {
        advice::NoAdvice::Busy => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, error.to_string()).hint("ask again in a few seconds")
        }
        advice::NoAdvice::Failed(_) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    })
}

async fn config(State(handle): State<Handle>) -> Json<Vec<api::ConfigEntry>> {
    Json(views::config(&*handle.settings().lock().await))
}

/// `POST /v1/reload`.
async fn reload(State(handle): State<Handle>, ConnectInfo(caller): ConnectInfo<Caller>) -> Answer<api::Reload> {
    let by = writer(caller)?;
    Ok(Json(reload::reload(&handle, &by).await?))
}

async fn set(
    State(handle): State<Handle>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    Path(key): Path<String>,
    body: Result<Json<api::Setting>, JsonRejection>,
) -> Answer<api::Warned<api::SettingChange>> {
    let Json(setting) = body?;
    let value = match setting.value {
        serde_json::Value::String(text) => text,
        serde_json::Value::Number(number) => number.to_string(),
        serde_json::Value::Bool(value) => value.to_string(),
        serde_json::Value::Null | serde_json::Value::Array(_) | serde_json::Value::Object(_) => {
            return Err(Problem::new(StatusCode::BAD_REQUEST, "a value is a text, a number or true or false"));
        }
    };
    change(&handle, caller, &key, Some(&value)).await
}

async fn unset(
    State(handle): State<Handle>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    Path(key): Path<String>,
) -> Answer<api::Warned<api::SettingChange>> {
    change(&handle, caller, &key, None).await
}

async fn change(
    handle: &Handle,
    caller: Caller,
    key: &str,
    value: Option<&str>,
) -> Answer<api::Warned<api::SettingChange>> {
    let by = writer(caller)?;
    let mut settings = handle.settings().lock().await;
    let change = settings.prepare(key, value, &by, &clock::wall_time())?;
    let answer = views::change(key, change.before.as_ref(), change.after.as_ref());
    // In force first: a disk that does not take it must not hold up an emergency.
    let stored = settings.keep(change);
    handle.obey(&settings.loaded().config).await.ok_or_else(Problem::stopping)?;
    let action = if value.is_some() { "set" } else { "unset" };
    handle.record(event(&by, action, key, &answer.previous, &answer.value, None)).await;
    drop(settings);
    Ok(Json(api::Warned { answer, warning: stored.warning().await }))
}

async fn bypass(
    State(handle): State<Handle>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    body: Result<Json<api::BypassRequest>, JsonRejection>,
) -> Answer<api::Warned<api::Bypass>> {
    let Json(request) = body?;
    let by = writer(caller)?;
    if request.for_seconds.is_some_and(|seconds| seconds == 0 || seconds > LONGEST) {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "a bypass lasts from one second to 366 days"));
    }
    let stored = handle.bypass(request.on, request.for_seconds, by).await.ok_or_else(Problem::stopping)?;
    let view = handle.view().await.ok_or_else(Problem::stopping)?;
    Ok(Json(api::Warned { answer: views::bypass(&view), warning: stored.warning().await }))
}

async fn doctor(State(handle): State<Handle>) -> Answer<Vec<api::Check>> {
    let view = handle.view().await.ok_or_else(Problem::stopping)?;
    let tuner = handle.tuner().view().await;
    let settings = handle.settings().lock().await;
    let state = views::state_health(handle.state());
    let mut checks = super::doctor::checks(&view, &handle.observation(), tuner.as_ref(), &state, &settings);
    checks.extend(super::doctor::sockets(&handle.sockets().missing()));
    Ok(Json(checks))
}

/// Names the caller if it may write.
pub(super) fn writer(caller: Caller) -> Result<String, Problem> {
    let own = rustix::process::geteuid().as_raw();
    match caller.0 {
        Some(peer) if peer.uid == 0 || (peer.uid == own && !peer.is_unmapped()) => Ok(format!("uid {}", peer.uid)),
        Some(peer) if peer.is_unmapped() => {
            let message = format!("uid {} is every user outside governord's user namespace", peer.uid);
            Err(Problem::new(StatusCode::FORBIDDEN, message).hint("run it as root of governord's user namespace"))
        }
        Some(peer) => Err(Problem::new(StatusCode::FORBIDDEN, format!("uid {} may read but not change", peer.uid))
            .hint("run it as root or as the daemon's user")),
        None => Err(Problem::new(StatusCode::FORBIDDEN, "the kernel did not say who asks")),
    }
}
