//! What the gateway says about itself: whether to send it more, and its figures, among them what the daemon's signal page
//! tells every proxy of the node. What the page does not tell now is left out, never 0.

use crate::drain::Drain;
use axum::extract::State;
use axum::http::StatusCode;
use governor_client::{Governor, Signals};
use std::fmt::Write;
use std::sync::Arc;

/// Ready until told to stop. Overload is no reason: a node that refuses some goes on serving the others.
pub(crate) async fn ready(State(drain): State<Drain>) -> (StatusCode, &'static str) {
    if drain.is_leaving() { (StatusCode::SERVICE_UNAVAILABLE, "leaving\n") } else { (StatusCode::OK, "ready\n") }
}

/// Where the figures come from.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    governor: Governor,
    /// Kept, because looking at the page through it costs nanoseconds.
    signals: Signals,
    pool: Arc<str>,
    drain: Drain,
}

impl Figures {
    pub(crate) fn new(governor: Governor, pool: &str, drain: Drain) -> Self {
        Self { signals: governor.signals(), governor, pool: pool.into(), drain }
    }
}

/// Figures in Prometheus' text format.
pub(crate) async fn metrics(State(figures): State<Figures>) -> String {
    let Figures { governor, signals, pool, drain } = figures;
    let stats = governor.stats();
    let mut rows = vec![
        ("gateway_governor_connected", "gauge", u64::from(stats.connected)),
        ("gateway_leases", "gauge", stats.leases.into()),
        ("gateway_requests_waiting", "gauge", stats.waiting.into()),
        ("gateway_websockets", "gauge", u64::try_from(drain.staying()).unwrap_or(u64::MAX)),
        ("gateway_fallback_grants_total", "counter", stats.fallback_grants_total),
        ("gateway_fallback_refusals_total", "counter", stats.fallback_refusals_total),
        ("gateway_unlisted_total", "counter", stats.unlisted_total),
    ];
    if let Some(node) = signals.read() {
        rows.push(("gateway_node_pressure_permille", "gauge", node.overload.pressure.into()));
        rows.push(("gateway_node_requests", "gauge", node.node_counted.into()));
    }
    if let Some(pool) = signals.pool(&pool) {
        rows.push(("gateway_pool_capacity", "gauge", pool.capacity.into()));
        rows.push(("gateway_pool_in_flight", "gauge", pool.in_flight.into()));
        rows.push(("gateway_pool_parked", "gauge", pool.parked.into()));
    }
    let mut text = String::new();
    for (name, kind, value) in rows {
        writeln!(text, "# TYPE {name} {kind}\n{name} {value}").expect("a string takes what is written");
    }
    text
}
