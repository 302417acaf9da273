//! The condition of an agent with an HTTP readiness address and a pid file.

use std::path::PathBuf;

use super::ANSWER_WITHIN;
use super::http::{Reply, get};
use super::process::Process;
use crate::host::{Condition, StartId};

/// An agent that reports over HTTP whether it is ready and writes a pid file, as stock Teleport does. Version and start
/// are read from the process itself.
#[derive(Debug, Clone)]
pub(super) struct HttpAgent {
    url: String,
    pid_file: PathBuf,
    versions: PathBuf,
}

impl HttpAgent {
    pub(super) fn new(url: &str, pid_file: PathBuf, versions: PathBuf) -> Self {
        Self { url: url.into(), pid_file, versions }
    }

    /// The process of an agent of an installed version that runs.
    pub(super) fn process(&self) -> Option<u32> {
        let process = Process::named_in(&self.pid_file).ok()?;
        process.version(&self.versions).ok().map(|_| process.pid())
    }

    /// The condition of the agent, or why it is unknown.
    pub(super) fn condition(&self) -> Result<Condition, String> {
        let process = Process::named_in(&self.pid_file)?;
        let version = process.version(&self.versions)?;
        let reason = match get(&self.url, ANSWER_WITHIN) {
            Ok(reply) => self.not_ready_reason(process, &reply),
            Err(error) => Some(format!("{} does not answer: {error}", self.url)),
        };
        if Process::named_in(&self.pid_file)? != process {
            return Err(format!("process {} was replaced while it was asked", process.pid()));
        }
        Ok(Condition { version, start: StartId(process.to_string()), connected: reason.is_none(), reason })
    }

    /// Why the answer does not prove that this process is ready, if it does not. While one process hands its listeners
    /// over to the next, either may answer.
    fn not_ready_reason(&self, process: Process, reply: &Reply) -> Option<String> {
        let ports = reply.ports().ok();
        if ports.and_then(|ports| process.has_far_end(ports)) == Some(false) {
            return Some(format!("at {} another process than {} answers", self.url, process.pid()));
        }
        match (reply.status, reply.excerpt.as_str()) {
            (200, _) => None,
            (status, "") => Some(format!("{} answers {status}", self.url)),
            (status, excerpt) => Some(format!("{} answers {status}: {excerpt}", self.url)),
        }
    }
}
