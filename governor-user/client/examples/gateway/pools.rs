//! Which pool a request takes its slot from: by its endpoint, or by the model where the path names it. A model that only
//! the body names is not known here: admission comes before the body is read.

use axum::http::uri::Authority;
use governor_client::http::routes::Route;
use std::str::FromStr;

/// `embeddings=POOL` or `model:NAME=POOL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolRule {
    which: Which,
    pool: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Which {
    /// An endpoint class of the table of routes.
    Endpoint(String),
    /// The segment after `deployments` or `models` in the path.
    Model(String),
}

impl FromStr for PoolRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (which, pool) = text.rsplit_once('=').ok_or("a rule is ENDPOINT=POOL or model:NAME=POOL")?;
        let which = match which.strip_prefix("model:") {
            Some(model) => Which::Model(model.to_owned()),
            None => Which::Endpoint(which.to_owned()),
        };
        Ok(Self { which, pool: pool.to_owned() })
    }
}

/// The rules; the first that fits decides.
#[derive(Debug)]
pub(crate) struct Pools(Vec<PoolRule>);

impl Pools {
    pub(crate) fn new(rules: &[PoolRule]) -> Self {
        Self(rules.to_vec())
    }

    /// The pool of a request; `None`: the usual one.
    pub(crate) fn of(&self, route: &Route, path: &str) -> Option<&str> {
        let Route::Counted(endpoint) = route else { return None };
        let fits = |rule: &&PoolRule| match &rule.which {
            Which::Endpoint(which) => which == endpoint,
            Which::Model(which) => model(path) == Some(which),
        };
        self.0.iter().find(fits).map(|rule| rule.pool.as_str())
    }
}

/// `gpt` of `/openai/deployments/gpt/chat/completions`.
fn model(path: &str) -> Option<&str> {
    let mut segments = path.split('/');
    segments.find(|segment| matches!(*segment, "deployments" | "models"))?;
    segments.next()
}

/// `HOST:PORT` of the provider behind all pools, or `POOL=HOST:PORT` of one pool's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolUpstream {
    /// `None`: of all pools that have no other.
    pub(crate) pool: Option<String>,
    pub(crate) authority: Authority,
}

impl FromStr for PoolUpstream {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (pool, authority) = match text.rsplit_once('=') {
            Some((pool, authority)) => (Some(pool.to_owned()), authority),
            None => (None, text),
        };
        let authority = authority.parse().map_err(|error| format!("{authority:?} is no HOST:PORT: {error}"))?;
        Ok(Self { pool, authority })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_fits_decides_and_only_for_what_is_counted() {
        let rules: Vec<PoolRule> =
            ["model:gpt-5=big", "embeddings=embed"].into_iter().map(|rule| rule.parse().unwrap()).collect();
        let pools = Pools::new(&rules);
        for (route, path, pool) in [
            (Route::Counted("embeddings"), "/v1/embeddings", Some("embed")),
            (Route::Counted("chat"), "/v1/chat/completions", None),
            (Route::Counted("chat"), "/openai/deployments/gpt-5/chat/completions", Some("big")),
            (Route::Counted("embeddings"), "/openai/deployments/gpt-5/embeddings", Some("big")),
            (Route::Exempt, "/v1/models/gpt-5", None),
        ] {
            assert_eq!(pools.of(&route, path), pool, "{path}");
        }
    }

    #[test]
    fn an_upstream_may_be_of_one_pool() {
        let one: PoolUpstream = "embed=127.0.0.1:9".parse().unwrap();
        assert_eq!((one.pool.as_deref(), one.authority.as_str()), (Some("embed"), "127.0.0.1:9"));
        let all: PoolUpstream = "provider.example:443".parse().unwrap();
        assert_eq!((all.pool, all.authority.as_str()), (None, "provider.example:443"));
        assert!("embed=a b".parse::<PoolUpstream>().is_err());
    }
}
