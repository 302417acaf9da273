//! Short answers over HTTP: health, and the version of each channel and whether it is critical. Called by `dispatch` for
//! the rows of the table of routes that name these endpoints.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use percent_encoding::percent_decode_str;
use refit_resources::{Found, Stores};
use refit_types::{Channel, ChannelName, Kind, Resource};

/// What a channel says of itself.
pub(crate) type Field = fn(&Channel) -> String;

/// The version that the followers of a channel should run.
pub(crate) const VERSION: Field = |channel| channel.version.to_string();

/// Whether they should go there outside their maintenance windows too.
pub(crate) const CRITICAL: Field = |channel| if channel.critical { "yes".into() } else { "no".into() };

/// One field of the channel of that name, as it stands in the path.
pub(crate) async fn channel(stores: &Stores, name: &str, field: Field) -> Response<Body> {
    let name = percent_decode_str(name).decode_utf8().ok();
    let Some(name) = name.and_then(|name| ChannelName::from_stored(&name).ok()) else { return not_found() };
    match stores.of(Kind::Channel).get(name.as_str()).await {
        Ok(Some(Found { value: Resource::Channel(channel), .. })) => {
            text(StatusCode::OK, format!("{}\n", field(&channel)))
        }
        Ok(_) => not_found(),
        Err(error) => {
            tracing::warn!(%error, channel = %name, "cannot read a channel");
            text(StatusCode::SERVICE_UNAVAILABLE, "the store does not answer; try again\n")
        }
    }
}

/// There is no such path, or nothing at it.
pub(crate) fn not_found() -> Response<Body> {
    text(StatusCode::NOT_FOUND, "not found\n")
}

/// A short answer.
pub(crate) fn text(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

/// The answer to HEAD: the same without its body.
pub(crate) fn without_body(response: Response<Body>) -> Response<Body> {
    let length = axum::body::HttpBody::size_hint(response.body()).exact();
    let mut response = response.map(|_| Body::empty());
    if let Some(length) = length {
        response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    }
    response
}
