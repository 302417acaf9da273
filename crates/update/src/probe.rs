//! The agent of this host, asked by what its profile says.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use refit_pki::{CaPin, Certificate};
use refit_types::Version;
use serde::Deserialize;

use crate::host::{Agent, Condition, HostError};
use crate::profile::Readiness;
use crate::{IdentityFacts, Layout, Profile};

/// An agent that works answers at once.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Far more than an answer needs.
const MAX_ANSWER_BYTES: u64 = 64 * 1024;
/// A binary that is asked for its version says it and ends.
const VERSION_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The agent of this host.
#[derive(Debug, Clone)]
pub struct HostAgent {
    socket: Option<PathBuf>,
    trust: PathBuf,
    version_arguments: Vec<String>,
}

/// What the socket answers, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Said {
    version: Version,
    started_at: Timestamp,
    connected: bool,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    identity_expires: Option<Timestamp>,
    #[serde(default)]
    identity_issuer: Option<String>,
}

impl HostAgent {
    /// The agent of that profile.
    pub fn new(layout: &Layout, profile: &Profile) -> Self {
        let socket = match &profile.readiness {
            Readiness::Socket(path) => Some(layout.data().join(path)),
            Readiness::Http { .. } => None,
        };
        Self {
            socket,
            trust: layout.data().join("trust.pem"),
            version_arguments: profile.version_arguments.clone(),
        }
    }

    fn ask(&self) -> io::Result<Said> {
        let path = self.socket.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        let mut line = Vec::new();
        stream.take(MAX_ANSWER_BYTES).read_to_end(&mut line)?;
        serde_json::from_slice(&line).map_err(io::Error::other)
    }
}

impl Agent for HostAgent {
    fn version_of(&self, binary: &Path) -> Result<Version, HostError> {
        let output = output_within(binary, &self.version_arguments)?;
        let text = String::from_utf8_lossy(&output);
        let version = text
            .split_whitespace()
            .find_map(|word| word.trim_matches(|c: char| !c.is_ascii_alphanumeric()).parse::<Version>().ok());
        version.ok_or_else(|| {
            let said: String = text.chars().take(120).collect();
            HostError(format!("{} does not say its version: {said:?}", binary.display()))
        })
    }

    fn condition(&self) -> Option<Condition> {
        let Said { version, started_at, connected, reason, .. } = self.ask().ok()?;
        Some(Condition { version, started_at, connected, reason })
    }

    fn identity(&self) -> IdentityFacts {
        match self.ask() {
            Ok(said) => IdentityFacts { valid_until: said.identity_expires, issuer: said.identity_issuer },
            Err(_) => IdentityFacts::default(),
        }
    }

    fn trusted_issuers(&self) -> Vec<String> {
        trusted_authorities(&self.trust).iter().map(|authority| CaPin::of(authority).to_string()).collect()
    }
}

/// The authorities that the agent trusts, as it wrote them down.
pub fn trusted_authorities(path: &Path) -> Vec<Certificate> {
    const END: &str = "-----END CERTIFICATE-----";
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let blocks = text.split_inclusive(END).filter(|block| block.contains(END));
    blocks.filter_map(|block| Certificate::from_pem(block.trim_start()).ok()).collect()
}

/// What a program prints, if it ends well and soon.
fn output_within(program: &Path, arguments: &[String]) -> Result<Vec<u8>, HostError> {
    let failed = |error: io::Error| HostError(format!("{} cannot be run: {error}", program.display()));
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let end = Instant::now() + VERSION_WITHIN;
    let status = loop {
        match child.try_wait().map_err(failed)? {
            Some(status) => break status,
            None if Instant::now() > end => {
                let _ = child.kill();
                let _ = child.wait();
                let seconds = VERSION_WITHIN.as_secs();
                return Err(HostError(format!(
                    "{} did not say its version in {seconds} s",
                    program.display()
                )));
            }
            None => std::thread::sleep(LOOK_EVERY),
        }
    };
    if !status.success() {
        return Err(HostError(format!("{} does not run: {status}", program.display())));
    }
    let mut output = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(MAX_ANSWER_BYTES).read_to_end(&mut output).map_err(failed)?;
    }
    Ok(output)
}
