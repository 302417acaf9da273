//! The protocol of the supervisor's socket. Both ends may be of different releases.

use serde::{Deserialize, Serialize};

use crate::host::ServiceState;

/// A request: one JSON value and a newline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    IsEnabled,
    SetEnabled(bool),
    State,
    Reload,
    Stop,
    Start,
    Refresh,
    SetUpdates(bool),
}

/// The response to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Response {
    Done,
    Enabled(bool),
    State(#[serde(with = "StateName")] ServiceState),
    Failed(String),
}

/// The names of states in the protocol.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ServiceState", rename_all = "snake_case")]
enum StateName {
    Running,
    Failing,
    Queued,
    Stopped,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The two ends may be of different releases.
    #[test]
    fn words_stay_as_they_are() {
        for (request, text) in [
            (Request::State, r#""state""#),
            (Request::Stop, r#""stop""#),
            (Request::SetUpdates(false), r#"{"set_updates":false}"#),
        ] {
            assert_eq!(serde_json::to_string(&request).unwrap(), text);
            assert_eq!(serde_json::from_str::<Request>(text).unwrap(), request);
        }
        for (answer, text) in [
            (Response::Done, r#""done""#),
            (Response::Enabled(true), r#"{"enabled":true}"#),
            (Response::State(ServiceState::Failing), r#"{"state":"failing"}"#),
        ] {
            assert_eq!(serde_json::to_string(&answer).unwrap(), text);
            assert_eq!(serde_json::from_str::<Response>(text).unwrap(), answer);
        }
    }
}
