//! Who asks: the gateway's own authentication. It looks an API key up and leaves what it knows of the caller in the
//! request's extensions, where the governor's layer finds it. A header that a client sends names nothing but its key.

use crate::answer::problem;
use crate::pools::Pools;
use anyhow::Context;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use governor_client::Priority;
use governor_client::http::routes::{Route, of};
use governor_client::tower::{Caller, credential};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

/// The API keys that are let in, by the hexadecimal SHA-256 of each: the file is no secret.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Callers(BTreeMap<String, Entry>);

/// What is known of a key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// On the operator's screen.
    label: String,
    org: Option<String>,
    /// Its plan, by the name of a class in the governor's configuration.
    class: Option<String>,
    #[serde(default)]
    priority: Rank,
    /// Accounts it may use; all when none is named.
    #[serde(default)]
    accounts: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Rank {
    Critical,
    #[default]
    Normal,
    Sheddable,
}

impl Callers {
    /// Reads the file: a JSON object of entries by hashed key.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is not as expected", path.display()))
    }

    fn find(&self, key: &str) -> Option<&Entry> {
        let mut hashed = String::new();
        for byte in Sha256::digest(key.as_bytes()) {
            write!(hashed, "{byte:02x}").expect("a string takes what is written");
        }
        self.0.get(&hashed)
    }
}

/// What the middleware needs.
#[derive(Debug)]
pub(crate) struct Identify {
    /// `None`: whoever comes is let in.
    pub(crate) callers: Option<Callers>,
    pub(crate) pools: Pools,
}

/// Puts a [`Caller`] into the request, or answers 401.
pub(crate) async fn identify(State(known): State<Arc<Identify>>, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    let route = of(&head);
    if matches!(route, Route::Exempt) {
        return next.run(Request::from_parts(head, body)).await;
    }
    let key = credential(&head);
    let key = key.as_deref().and_then(|key| str::from_utf8(key).ok());
    let mut caller = Caller::new();
    if let Some(pool) = known.pools.of(&route, head.uri.path()) {
        caller = caller.pool(pool);
    }
    caller = match &known.callers {
        Some(callers) => match key.and_then(|key| callers.find(key)) {
            Some(entry) => describe(caller, entry),
            None => return problem(&head, StatusCode::UNAUTHORIZED, "this API key is not known here"),
        },
        // A demonstration: whoever comes is let in, and the name a client gives itself is shown to the operator.
        None => match head.headers.get("x-client-name").and_then(|name| name.to_str().ok()) {
            Some(name) if name.len() <= 64 => caller.label(name),
            Some(_) | None => caller,
        },
    };
    head.extensions.insert(caller);
    next.run(Request::from_parts(head, body)).await
}

/// The key itself is left to the layer, which finds and hashes it.
fn describe(caller: Caller, entry: &Entry) -> Caller {
    let priority = match entry.priority {
        Rank::Critical => Priority::Critical,
        Rank::Normal => Priority::Normal,
        Rank::Sheddable => Priority::Sheddable,
    };
    let accounts = entry.accounts.iter().map(String::as_str);
    let mut caller = caller.label(entry.label.as_str()).priority(priority).candidates(accounts);
    if let Some(org) = &entry.org {
        caller = caller.org(org);
    }
    if let Some(class) = &entry.class {
        caller = caller.class(class.as_str());
    }
    caller
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_its_hash_and_never_stands_in_the_file() {
        // printf %s sk-alpha | sha256sum
        let file = r#"{"c7a9ca03a9b9a7b9d8c1a8d1e9b0d93ff1f1d3f4b7d0d1b2d8f0a34ef94e6a3b": {"label": "other"}, "HASH": {"label": "alpha", "org": "acme", "class": "tier2", "priority": "critical"}}"#;
        let hash = Sha256::digest(b"sk-alpha").iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let callers: Callers = serde_json::from_str(&file.replace("HASH", &hash)).unwrap();
        let entry = callers.find("sk-alpha").unwrap();
        assert_eq!(
            (entry.label.as_str(), entry.org.as_deref(), entry.class.as_deref()),
            ("alpha", Some("acme"), Some("tier2"))
        );
        assert!(callers.find("sk-beta").is_none());
    }
}
