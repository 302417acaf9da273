use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::routing::{any, get};
use refit_resources::{Found, Stores};
use refit_types::{Channel, ChannelName, Kind, Resource};

use crate::artifacts::Artifacts;

/// What anyone may read over HTTP: the version of each channel, whether it is critical, and the archives.
pub(crate) fn router(stores: Stores, artifacts: Arc<Artifacts>) -> Router {
    let artifact = async move |request: Request| artifacts.respond(&request.into_parts().0).await;
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/v1/artifacts/{*path}", any(artifact))
        .route("/v1/{*path}", get(channel_value))
        .fallback(|| async { (StatusCode::NOT_FOUND, "not found\n") })
        .with_state(stores)
}

async fn channel_value(State(stores): State<Stores>, Path(path): Path<String>) -> (StatusCode, String) {
    let not_found = || (StatusCode::NOT_FOUND, "not found\n".to_owned());
    let Some((name, value)) = path.rsplit_once('/') else { return not_found() };
    let Ok(name) = ChannelName::from_stored(name) else { return not_found() };
    let show: fn(&Channel) -> String = match value {
        "version" => |channel| channel.version.to_string(),
        "critical" => |channel| if channel.critical { "yes".into() } else { "no".into() },
        _ => return not_found(),
    };
    match stores.of(Kind::Channel).get(name.as_str()).await {
        Ok(Some(Found { value: Resource::Channel(channel), .. })) => {
            (StatusCode::OK, format!("{}\n", show(&channel)))
        }
        Ok(_) => not_found(),
        Err(error) => {
            tracing::warn!(%error, channel = %name, "a channel could not be read");
            (StatusCode::SERVICE_UNAVAILABLE, "the store does not answer; try again\n".into())
        }
    }
}
