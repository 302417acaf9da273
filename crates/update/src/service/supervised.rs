//! The `Service` seam by requests to `refit-update supervise`.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::host::{HostError, Service, ServiceState};
use crate::supervisor::control_socket;
use crate::supervisor::protocol::{Request, Response, RunReport};
use crate::{Layout, RunEnd, RunMark};

/// How long a response may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// The supervisor kills the agent if it has not stopped after 30 seconds.
const STOP_WITHIN: Duration = Duration::from_secs(40);
/// Far more than a response needs; the longest has the last lines of an agent.
const MAX_ANSWER_BYTES: u64 = 256 * 1024;

/// The agent as a child of `refit-update supervise`, which is asked over its socket.
#[derive(Debug, Clone)]
pub(crate) struct Supervised {
    socket: PathBuf,
}

impl Supervised {
    /// The supervisor of a layout.
    pub(crate) fn new(layout: &Layout) -> Self {
        Self { socket: control_socket(layout) }
    }

    /// Whether a process listens on its socket. A supervisor that listens and does not respond runs an agent: requests to
    /// it fail, and nothing is switched.
    pub(crate) fn is_listening(&self) -> bool {
        use io::ErrorKind::{ConnectionRefused, InvalidInput, NotADirectory, NotFound};
        match UnixStream::connect(&self.socket) {
            Ok(_) => true,
            // No supervisor can listen on a path that is too long for a socket.
            Err(error) => {
                !matches!(error.kind(), ConnectionRefused | InvalidInput | NotADirectory | NotFound)
            }
        }
    }

    fn exchange(&self, request: Request, within: Duration) -> io::Result<Response> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(within))?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        let mut line = serde_json::to_vec(&request)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = Vec::new();
        stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer)?;
        if answer.is_empty() {
            return Err(io::Error::other("it closed the connection without a response"));
        }
        Ok(serde_json::from_slice(&answer)?)
    }

    fn ask(&self, request: Request) -> Result<Response, HostError> {
        let within = if request == Request::Stop { STOP_WITHIN } else { ANSWER_WITHIN };
        let error = match self.exchange(request, within) {
            Ok(Response::Failed(reason)) => reason,
            Ok(answer) => return Ok(answer),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                format!("it was silent for {} s", within.as_secs())
            }
            Err(error) => error.to_string(),
        };
        let socket = self.socket.display();
        Err(HostError(format!(
            "the supervisor at {socket} did not carry out the request {request:?}: {error}"
        )))
    }

    fn command(&self, request: Request) -> Result<(), HostError> {
        match self.ask(request)? {
            Response::Done => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// What the supervisor says of its agent; nothing from one of a release that does not know the request.
    fn report_since(&self, line: u64) -> Option<RunReport> {
        match self.ask(Request::Run { since: line }) {
            Ok(Response::Run(report)) => Some(report),
            Ok(_) => None,
            Err(error) => {
                tracing::debug!("It is not known how the agent runs: {error}");
                None
            }
        }
    }

    fn unexpected(&self, answer: &Response) -> HostError {
        let socket = self.socket.display();
        HostError(format!(
            "the supervisor at {socket} sent an unexpected response: {answer:?}; is it of another version?"
        ))
    }
}

impl Service for Supervised {
    fn is_enabled(&self) -> Result<bool, HostError> {
        match self.ask(Request::IsEnabled)? {
            Response::Enabled(enabled) => Ok(enabled),
            other => Err(self.unexpected(&other)),
        }
    }

    fn set_enabled(&self, enabled: bool) -> Result<(), HostError> {
        self.command(Request::SetEnabled(enabled))
    }

    fn state(&self) -> Result<ServiceState, HostError> {
        match self.ask(Request::State)? {
            Response::State(state) => Ok(state),
            other => Err(self.unexpected(&other)),
        }
    }

    fn reload(&self) -> Result<(), HostError> {
        self.command(Request::Reload)
    }

    fn stop(&self) -> Result<(), HostError> {
        self.command(Request::Stop)
    }

    fn start(&self) -> Result<(), HostError> {
        self.command(Request::Start)
    }

    fn refresh(&self) -> Result<(), HostError> {
        self.command(Request::Refresh)
    }

    fn set_updates(&self, on: bool) -> Result<(), HostError> {
        self.command(Request::SetUpdates(on))
    }

    fn mark_run(&self) -> Option<RunMark> {
        let RunReport { ended, written, .. } = self.report_since(u64::MAX)?;
        Some(RunMark { ended, restarts: 0, output: written })
    }

    fn end_since(&self, mark: &RunMark) -> Option<RunEnd> {
        let RunReport { ended, last_end, .. } = self.report_since(u64::MAX)?;
        last_end.filter(|_| ended > mark.ended)
    }

    fn lines_since(&self, mark: &RunMark) -> Vec<String> {
        self.report_since(mark.output).map(|report| report.lines).unwrap_or_default()
    }
}
