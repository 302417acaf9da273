//! The agent of this host, behind the `Agent` seam: asked over a socket or HTTP, as its profile says.

mod http;
mod http_agent;
mod process;
mod run;

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use refit_identity::{CaPin, Certificate};
use refit_types::{DataDir, Version};
use serde::Deserialize;

use crate::host::{Agent, Condition, Guard, HostError, ProbeError, StartId};
use crate::profile::Readiness;
use crate::{IdentityFacts, Layout, Lock, LockError, Profile};
use http_agent::HttpAgent;
pub(crate) use run::output_of;

/// How long an answer of the agent may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Far more than an answer needs.
const MAX_ANSWER_BYTES: u64 = 64 * 1024;

/// The agent of this host.
#[derive(Debug, Clone)]
pub struct HostAgent {
    source: ReadinessSource,
    pid_file: PathBuf,
    trust: PathBuf,
    version_arguments: Vec<String>,
    /// Why the agent's condition was last unknown: logged when it changes, not at every poll.
    unknown: Arc<Mutex<Option<String>>>,
}

/// Where the agent reports its condition.
#[derive(Debug, Clone)]
enum ReadinessSource {
    Socket(PathBuf),
    Http(HttpAgent),
}

/// The fields of the socket's answer that matter here.
#[derive(Debug, Deserialize)]
struct ReadinessReport {
    version: Version,
    #[serde(default)]
    session: Option<String>,
    #[serde(default)]
    pid: u32,
    #[serde(default)]
    started_at: Option<Timestamp>,
    connected: bool,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    identity_expires: Option<Timestamp>,
    #[serde(default)]
    identity_issuer: Option<String>,
}

impl HostAgent {
    /// The agent of a profile.
    pub fn new(layout: &Layout, profile: &Profile) -> Self {
        let source = match &profile.readiness {
            Readiness::Socket(path) => ReadinessSource::Socket(layout.data().join(path)),
            Readiness::Http { url, pid_file } => {
                let pid_file = match pid_file.is_absolute() {
                    true => layout.outside(pid_file),
                    false => layout.data().join(pid_file),
                };
                ReadinessSource::Http(HttpAgent::new(url, pid_file, layout.versions()))
            }
        };
        Self {
            source,
            pid_file: DataDir::new(layout.data()).agent_pid(),
            trust: DataDir::new(layout.data()).trust(),
            version_arguments: profile.version_arguments.clone(),
            unknown: Arc::default(),
        }
    }

    fn log_unknown(&self, reason: Option<String>) {
        let mut last = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = reason.as_ref().filter(|reason| Some(*reason) != last.as_ref()) {
            tracing::debug!("it is not known how the agent is: {reason}");
        }
        *last = reason;
    }
}

impl Agent for HostAgent {
    fn version_of(&self, binary: &Path) -> Result<Version, ProbeError> {
        let output = run::output_of(binary, &self.version_arguments, run::PATIENCE)?;
        let text = String::from_utf8_lossy(&output);
        let version = text
            .split_whitespace()
            .find_map(|word| word.trim_matches(|c: char| !c.is_ascii_alphanumeric()).parse::<Version>().ok());
        version.ok_or_else(|| {
            let excerpt: String = text.chars().take(120).collect();
            ProbeError::Unusable(format!("{} does not say its version: {excerpt:?}", binary.display()))
        })
    }

    fn condition(&self) -> Option<Condition> {
        let found = match &self.source {
            ReadinessSource::Socket(path) => request_report(path)
                .map(ReadinessReport::into_condition)
                .map_err(|error| format!("{}: {error}", path.display())),
            ReadinessSource::Http(agent) => agent.condition(),
        };
        self.log_unknown(found.as_ref().err().cloned());
        found.ok()
    }

    /// By the lock of the agent's pid file; an agent that is asked over HTTP has none, and is only looked for.
    fn lock_out(&self) -> Result<Guard, HostError> {
        let running = |process: Option<u32>| {
            let process = process.map(|id| format!(" (process {id})")).unwrap_or_default();
            HostError(format!(
                "an agent{process} runs that no service manager of this host has started; stop it, or have \
                 `refit-update supervise` run it"
            ))
        };
        match &self.source {
            ReadinessSource::Socket(_) => match Lock::take_if_possible(&self.pid_file) {
                Ok(lock) => Ok(Box::new(lock)),
                Err(LockError::Held { process, .. }) => Err(running(process)),
                Err(error) => Err(HostError(error.to_string())),
            },
            ReadinessSource::Http(agent) => match agent.process() {
                Some(process) => Err(running(Some(process))),
                None => Ok(Box::new(())),
            },
        }
    }

    /// Nothing for an agent that is asked over HTTP: it does not report its identity.
    fn identity(&self) -> IdentityFacts {
        let report = match &self.source {
            ReadinessSource::Socket(path) => request_report(path).ok(),
            ReadinessSource::Http(_) => None,
        };
        report.map_or_else(IdentityFacts::default, |report| IdentityFacts {
            valid_until: report.identity_expires,
            issuer: report.identity_issuer,
        })
    }

    fn trusted_issuers(&self) -> Vec<String> {
        trusted_authorities(&self.trust).iter().map(|authority| CaPin::of(authority).to_string()).collect()
    }
}

impl ReadinessReport {
    /// The session is drawn at each start and each re-execution. An agent that reports none is known by its process and by
    /// when it says that it started, which is not compared with any other clock.
    fn into_condition(self) -> Condition {
        let Self { version, session, pid, started_at, connected, reason, .. } = self;
        let start = session.unwrap_or_else(|| match started_at {
            Some(started_at) => format!("{pid} {started_at}"),
            None => pid.to_string(),
        });
        Condition { version, start: StartId(start), connected, reason }
    }
}

fn request_report(path: &Path) -> io::Result<ReadinessReport> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(ANSWER_WITHIN))?;
    let mut line = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut line)?;
    serde_json::from_slice(&line).map_err(io::Error::other)
}

/// The authorities in the agent's trust file. Blocks that cannot be read are skipped.
pub fn trusted_authorities(path: &Path) -> Vec<Certificate> {
    const END: &str = "-----END CERTIFICATE-----";
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let blocks = text.split_inclusive(END).filter(|block| block.contains(END));
    blocks.filter_map(|block| Certificate::from_pem(block.trim_start()).ok()).collect()
}
