//! The protocol of the supervisor's socket. Both ends may be of different releases.

use serde::{Deserialize, Serialize};

use crate::RunEnd;
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
    /// How the agent runs, with the lines that it has written since that one.
    Run {
        since: u64,
    },
}

/// The response to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Response {
    Done,
    Enabled(bool),
    State(#[serde(with = "StateName")] ServiceState),
    Failed(String),
    Run(RunReport),
}

/// What the supervisor knows of its agent's processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunReport {
    /// The processes that have ended.
    pub(crate) ended: u64,
    /// How the last of them ended.
    pub(crate) last_end: Option<RunEnd>,
    /// The lines that they wrote.
    pub(crate) written: u64,
    /// The last of the lines that were asked for.
    pub(crate) lines: Vec<String>,
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
            (Request::Run { since: 7 }, r#"{"run":{"since":7}}"#),
        ] {
            assert_eq!(serde_json::to_string(&request).unwrap(), text);
            assert_eq!(serde_json::from_str::<Request>(text).unwrap(), request);
        }
        for (answer, text) in [
            (Response::Done, r#""done""#),
            (Response::Enabled(true), r#"{"enabled":true}"#),
            (Response::State(ServiceState::Failing), r#"{"state":"failing"}"#),
            (
                Response::Run(RunReport {
                    ended: 2,
                    last_end: Some(RunEnd::Signal(11)),
                    written: 3,
                    lines: vec!["oh".into()],
                }),
                r#"{"run":{"ended":2,"last_end":{"signal":11},"written":3,"lines":["oh"]}}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&answer).unwrap(), text);
            assert_eq!(serde_json::from_str::<Response>(text).unwrap(), answer);
        }
    }
}
