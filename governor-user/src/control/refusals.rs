//! `GET /v1/refusals`: refusals that were kept, by key, pool, reason and age, with how many there are of each reason. Reads
//! the disk: not on the daemon's loop, and one request at a time.

use super::problem::{Answer, Problem};
use super::views;
use crate::config::value::identity;
use crate::node::handle::Handle;
use crate::records::archive;
use crate::records::explain::explain;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use governor_api as api;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use tokio::sync::Semaphore;

/// Window that is searched where the query names none, in seconds.
const WINDOW: u64 = 3600;

/// Refusals that are listed where the query names no number, and at most.
const LISTED: usize = 50;
const MOST_LISTED: usize = 1000;

/// A search reads up to 64 MiB: one at a time, the others wait. `explain` of an id that is not in memory is one as well.
pub(super) static SEARCH: Semaphore = Semaphore::const_new(1);

/// `GET /v1/refusals`.
pub(super) async fn refusals(
    State(handle): State<Handle>,
    query: Result<Query<api::RefusalsQuery>, QueryRejection>,
) -> Answer<api::Refusals> {
    let Query(query) = query?;
    if query.observed > 1 {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "observed is 0 or 1"));
    }
    // A name of the configuration stands for its hash.
    let key = {
        let settings = handle.settings().lock().await;
        let names = &settings.loaded().config.names;
        query.key.as_ref().and_then(|name| names.key(name)).map(|key| format!("{:032x}", key.0))
    };
    let failed = |why: String| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("no refusals: {why}"));
    let _turn = SEARCH.acquire().await.map_err(|error| failed(error.to_string()))?;
    // The newest are on their way to the disk.
    let (recent, now) = handle.recent_decisions().await.ok_or_else(Problem::stopping)?;
    let recent: Vec<api::Decision> = recent.iter().map(|entry| views::numbers(entry, now)).collect();
    let mut found = Found::new(Filter { query, key });
    let state = handle.state().clone();
    let found = tokio::task::spawn_blocking(move || found.search(recent, state.path()).map(|()| found)).await;
    Ok(Json(found.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))?.answer()))
}

/// Which decisions are wanted.
struct Filter {
    query: api::RefusalsQuery,
    /// Hash of the key that the configuration gives the query's name.
    key: Option<String>,
}

impl Filter {
    fn window(&self) -> u64 {
        self.query.since_seconds.unwrap_or(WINDOW)
    }

    fn wants(&self, decision: &api::Decision) -> bool {
        let query = &self.query;
        let is_refusal = decision.outcome == api::Outcome::Shed;
        let is_key = |name: &String| match &self.key {
            Some(hash) => decision.key.as_ref() == Some(hash),
            None if identity(name).is_some() => decision.key.as_deref() == Some(&name.to_ascii_lowercase()),
            None => decision.label.as_ref() == Some(name),
        };
        is_refusal == (query.observed == 0)
            && query.pool.as_ref().is_none_or(|pool| *pool == decision.pool)
            && query.reason.as_ref().is_none_or(|reason| *reason == decision.reason)
            && query.key.as_ref().is_none_or(is_key)
    }
}

/// What a search has found so far.
struct Found {
    filter: Filter,
    rows: Vec<api::Decision>,
    counts: BTreeMap<(String, String, u16), u64>,
    oldest: Option<u64>,
}

impl Found {
    fn new(filter: Filter) -> Self {
        Self { filter, rows: Vec::new(), counts: BTreeMap::new(), oldest: None }
    }

    /// The newest first: those the driver remembers, then the disk back to the window's begin.
    fn search(&mut self, recent: Vec<api::Decision>, state_dir: &Path) -> io::Result<()> {
        let seen: BTreeSet<String> = recent.iter().map(|decision| decision.id.clone()).collect();
        recent.into_iter().for_each(|decision| self.take(decision));
        let window = self.filter.window();
        archive::newest_first(state_dir, window, |decision| {
            if !seen.contains(&decision.id) {
                self.take(decision);
            }
        })?;
        self.oldest = archive::oldest(state_dir)?;
        Ok(())
    }

    fn take(&mut self, mut decision: api::Decision) {
        if !self.filter.wants(&decision) {
            return;
        }
        *self.counts.entry((decision.pool.clone(), decision.reason.clone(), decision.status)).or_default() += 1;
        let most = self.filter.query.limit.unwrap_or(LISTED).min(MOST_LISTED);
        if self.rows.len() < most {
            decision.explanation = explain(&decision);
            self.rows.push(decision);
        }
    }

    fn answer(self) -> api::Refusals {
        let mut by_reason: Vec<api::RefusalCount> = self
            .counts
            .into_iter()
            .map(|((pool, reason, status), count)| api::RefusalCount { pool, reason, status, count })
            .collect();
        by_reason.sort_by_key(|row| std::cmp::Reverse(row.count));
        api::Refusals {
            since_seconds: self.filter.window(),
            oldest_seconds: self.oldest,
            total: by_reason.iter().map(|row| row.count).sum(),
            by_reason,
            rows: self.rows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(id: &str, pool: &str, key: &str, label: Option<&str>, reason: &str) -> api::Decision {
        api::Decision {
            id: id.to_owned(),
            pool: pool.to_owned(),
            key: Some(key.repeat(16)),
            label: label.map(str::to_owned),
            reason: reason.to_owned(),
            status: 429,
            ..api::Decision::default()
        }
    }

    fn found(query: api::RefusalsQuery) -> api::Refusals {
        let folder = tempfile::tempdir().unwrap();
        let observed =
            api::Decision { outcome: api::Outcome::WouldRefuse, ..decision("05", "chat", "aa", None, "key_cap") };
        let recent = vec![
            decision("04", "chat", "aa", Some("batch"), "fair_share"),
            decision("03", "chat", "bb", Some("user"), "fair_share"),
            decision("02", "media", "aa", Some("batch"), "queue_full"),
            observed,
        ];
        let mut found = Found::new(Filter { query, key: None });
        found.search(recent, folder.path()).unwrap();
        found.answer()
    }

    #[test]
    fn refusals_are_found_by_key_pool_and_reason() {
        let ids = |query| found(query).rows.into_iter().map(|row| row.id).collect::<Vec<_>>();
        let all = api::RefusalsQuery::default;
        assert_eq!(ids(all()), ["04", "03", "02"]);
        assert_eq!(ids(api::RefusalsQuery { key: Some("batch".into()), ..all() }), ["04", "02"]);
        assert_eq!(ids(api::RefusalsQuery { key: Some("BB".repeat(16)), ..all() }), ["03"]);
        assert_eq!(ids(api::RefusalsQuery { pool: Some("media".into()), ..all() }), ["02"]);
        assert_eq!(ids(api::RefusalsQuery { reason: Some("fair_share".into()), ..all() }), ["04", "03"]);
        assert_eq!(ids(api::RefusalsQuery { observed: 1, ..all() }), ["05"]);
    }

    #[test]
    fn every_refusal_is_counted_and_some_are_listed() {
        let answer = found(api::RefusalsQuery { limit: Some(1), ..api::RefusalsQuery::default() });
        assert_eq!((answer.total, answer.rows.len()), (3, 1));
        let counts: Vec<_> =
            answer.by_reason.iter().map(|row| (row.pool.as_str(), row.reason.as_str(), row.count)).collect();
        assert_eq!(counts, [("chat", "fair_share", 2), ("media", "queue_full", 1)]);
        assert!(answer.rows[0].explanation.contains("fair share"));
    }
}
