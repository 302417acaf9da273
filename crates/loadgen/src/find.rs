//! The updater's question to the control plane, over an open connection.

use http_body_util::{BodyExt, Limited};
use refit_types::HostId;
use serde::Deserialize;
use tonic::body::Body;
use tonic::transport::Channel;
use tower::{Service, ServiceExt};

use crate::AgentError;

/// An answer is a few hundred bytes.
const LARGEST_ANSWER: usize = 64 * 1024;

/// What the control plane tells an updater.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FindAnswer {
    /// The version that it is about.
    pub agent_version: String,
    /// Whether to go there now.
    pub agent_auto_update: bool,
    /// Over how many seconds to spread that.
    pub agent_update_jitter_seconds: u32,
    /// Names the attempt in reports; 0 where attempts are not counted.
    #[serde(default)]
    pub agent_update_attempt: u64,
}

/// Asks over a connection that is there, as HTTP/2 allows.
pub(crate) async fn ask(channel: &mut Channel, host: HostId) -> Result<FindAnswer, AgentError> {
    let refused = |error: &dyn std::fmt::Display| AgentError::Refused(format!("find: {error}"));
    let request = http::Request::get(format!("/v1/webapi/find?host={host}")).body(Body::empty());
    let request = request.map_err(|error| refused(&error))?;
    let channel = channel.ready().await.map_err(|error| refused(&error))?;
    let response = channel.call(request).await.map_err(|error| refused(&error))?;
    if response.status() != http::StatusCode::OK {
        return Err(refused(&response.status()));
    }
    let body = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await;
    let body = body.map_err(|error| refused(&error))?.to_bytes();
    serde_json::from_slice(&body).map_err(|error| refused(&error))
}
