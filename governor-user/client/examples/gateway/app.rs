//! What stands before what. From outside in: CORS, then who asks and for which pool, then the governor's layer, then the
//! routes. So a browser can read every refusal, a caller that is not known costs nobody a slot, and a request that is
//! refused has been neither routed nor read.

use crate::Cli;
use crate::caller::{self, Callers};
use crate::cors;
use crate::drain::Drain;
use crate::faults;
use crate::first_come::FirstCome;
use crate::forward::{Proxy, forward};
use crate::nested;
use crate::page;
use crate::pools::Pools;
use crate::seat::Admission;
use crate::upstream::Upstream;
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use governor_client::tower::GovernorLayer;
use governor_client::{Config, Governor};
use std::sync::Arc;
use std::time::Duration;

/// The whole gateway as one service.
pub(crate) fn app(cli: &Cli, callers: Option<Callers>, drain: &Drain) -> Router {
    let pools = Pools::new(&cli.pool_for);
    let patience = Duration::from_millis(cli.first_byte_timeout_ms);
    let upstream = Upstream::new(&cli.upstream, patience);
    let admitted = if cli.no_governor {
        let admission = Admission::FirstCome(Arc::new(FirstCome::new(cli.accounts, cli.ordinary_slots)));
        routes(Proxy::new(upstream, admission, drain.clone()), cli.test_routes)
    } else {
        let governor = Governor::start(Config { name: "gateway".to_owned(), ..Config::new(&cli.socket) });
        let layer = GovernorLayer::new(governor.clone(), &cli.pool).ends_with_client();
        let proxy = Proxy::new(upstream, Admission::Governor(governor.clone()), drain.clone());
        let inner = routes(proxy, cli.test_routes).layer(layer.clone());
        // Requests that lead to other requests: those go the same way, through the layer.
        let outer = Router::new()
            .route("/v1/guarded/chat/completions", post(nested::guarded))
            .with_state(nested::Inside::new(inner.clone()))
            .layer(layer);
        inner
            .merge(outer)
            .route("/metrics", get(page::metrics).with_state(page::Figures::new(governor, &cli.pool, drain.clone())))
    };
    let known = Arc::new(caller::Identify { callers, pools });
    let app = admitted.layer(from_fn_with_state(known, caller::identify));
    let app = app.route("/readyz", get(page::ready).with_state(drain.clone()));
    match cors::layer(&cli.cors_origin) {
        Some(cors) => app.layer(cors),
        None => app,
    }
}

fn routes(proxy: Proxy, test_routes: bool) -> Router {
    let proxy = Arc::new(proxy);
    let routes = Router::new().route("/healthz", get(|| async { "ok\n" })).fallback(forward);
    let routes = routes.with_state(proxy);
    if test_routes { routes.merge(faults::routes()) } else { routes }
}
