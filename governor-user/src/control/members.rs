//! Members, orders for them, and the drain of the node, over HTTP.

use super::problem::{Answer, Problem};
use super::server::{Caller, LONGEST, known_pool, names, writer};
use super::views;
use crate::driver::operator::members::{MemberRefused, row};
use crate::driver::view::View;
use crate::node::handle::Handle;
use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{ConnectInfo, Path, Query, State};
use axum::http::StatusCode;
use governor_api as api;
use governor_engine::snapshot::LeaseView;

/// Leases that a drain names.
const MOST_NAMED: usize = 5;

/// Members that an error names.
const MOST_KNOWN: usize = 20;

/// `GET /v1/members`.
pub(super) async fn list(
    State(handle): State<Handle>,
    query: Result<Query<api::MembersQuery>, QueryRejection>,
) -> Answer<Vec<api::MemberRow>> {
    let Query(query) = query?;
    let view = handle.view().await.ok_or_else(Problem::stopping)?;
    known_pool(&view, query.pool.as_deref())?;
    Ok(Json(rows(&view, query.pool.as_deref())))
}

fn rows(view: &View, pool: Option<&str>) -> Vec<api::MemberRow> {
    let pools = view.snapshot.pools.iter().filter(|row| pool.is_none_or(|name| row.name == name));
    pools
        .flat_map(|pool| {
            pool.members.iter().map(|member| {
                let note = view.members.get(&(pool.pool, member.member)).cloned().unwrap_or_default();
                row(&pool.name, member, &note, view.now)
            })
        })
        .collect()
}

/// `POST /v1/members/{pool}/{member}`.
pub(super) async fn order(
    State(handle): State<Handle>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    Path(place): Path<(String, String)>,
    body: Result<Json<api::MemberRequest>, JsonRejection>,
) -> Answer<api::Warned<api::MemberChange>> {
    let Json(request) = body?;
    let by = writer(caller)?;
    if request.for_seconds.is_some_and(|seconds| seconds == 0 || seconds > LONGEST) {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "a cool-down lasts from one second to 366 days"));
    }
    let done = handle.order_member(place, request, by).await.ok_or_else(Problem::stopping)?;
    let (answer, stored) = done?;
    Ok(Json(api::Warned { answer, warning: stored.warning().await }))
}

/// `GET /v1/drain`.
pub(super) async fn drain(State(handle): State<Handle>) -> Answer<api::Drain> {
    drained(&handle).await.map(Json)
}

/// `POST /v1/drain`.
pub(super) async fn order_drain(
    State(handle): State<Handle>,
    ConnectInfo(caller): ConnectInfo<Caller>,
    body: Result<Json<api::DrainRequest>, JsonRejection>,
) -> Answer<api::Warned<api::Drain>> {
    let Json(request) = body?;
    let by = writer(caller)?;
    let stored = handle.order_drain(request.on, request.reason, by).await.ok_or_else(Problem::stopping)?;
    Ok(Json(api::Warned { answer: drained(&handle).await?, warning: stored.warning().await }))
}

async fn drained(handle: &Handle) -> Result<api::Drain, Problem> {
    let (view, mut leases) = handle.leases().await.ok_or_else(Problem::stopping)?;
    leases.sort_by_key(|lease| (lease.granted, lease.lease));
    let oldest: Vec<LeaseView> = leases.iter().take(MOST_NAMED).cloned().collect();
    let longest = views::leases(&view, &names(handle).await, &oldest, &api::LeasesQuery::default());
    Ok(api::Drain { longest, ..views::drain(&view) })
}

impl From<MemberRefused> for Problem {
    fn from(refused: MemberRefused) -> Self {
        let said = refused.to_string();
        match refused {
            MemberRefused::Unknown { known, .. } if known.is_empty() => Self::new(StatusCode::NOT_FOUND, said),
            MemberRefused::Unknown { known, .. } => {
                let more = if known.len() > MOST_KNOWN { ", …" } else { "" };
                let named = known.iter().take(MOST_KNOWN).cloned().collect::<Vec<_>>().join(", ");
                Self::new(StatusCode::NOT_FOUND, said).hint(format!("the members are: {named}{more}"))
            }
            MemberRefused::Invalid(_) => Self::new(StatusCode::BAD_REQUEST, said),
            MemberRefused::TooMany(_) => Self::new(StatusCode::CONFLICT, said),
        }
    }
}
