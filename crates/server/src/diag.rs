//! The plaintext port for health and metrics.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

use crate::fleet::Fleet;
use crate::health::Health;
use crate::metrics::Metrics;

#[derive(Clone)]
struct Diag {
    health: Arc<Health>,
    fleet: Arc<Fleet>,
    metrics: Arc<Metrics>,
}

/// Health and metrics without authentication: they contain no secrets, and the port is local by default.
pub(crate) fn router(health: Arc<Health>, fleet: Arc<Fleet>, metrics: Arc<Metrics>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(scrape))
        .with_state(Diag { health, fleet, metrics })
}

async fn ready(State(diag): State<Diag>) -> (StatusCode, String) {
    let can_decide = || diag.fleet.view().snapshot.unusable().map_or(Ok(()), Err);
    match diag.health.ready().and_then(|()| can_decide()) {
        Ok(()) => (StatusCode::OK, "ready\n".into()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")),
    }
}

async fn scrape(State(diag): State<Diag>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], diag.metrics.encode())
}
