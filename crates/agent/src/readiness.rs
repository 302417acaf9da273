use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use refit_identity::CaPin;
use refit_types::{HostId, Version};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

/// The kernel keeps 108 bytes for a socket's path, with a zero at the end.
const LONGEST_SOCKET_PATH: usize = 107;
/// An agent that works answers at once; one that is stopped or wedged never does.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Far more than an answer needs.
const MAX_ANSWER_BYTES: u64 = 64 * 1024;
/// Out of files, most likely: time for some to close.
const AFTER_FAILED_ACCEPT: Duration = Duration::from_millis(200);

/// How the agent is, for `refit agent status` and for the updater, which takes it as the proof that the
/// version it installed works. The two may be of different versions: unknown fields are passed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// What runs.
    pub version: Version,
    /// When this image began to run: later than a reload, if it obeyed.
    pub started_at: Timestamp,
    /// Which process.
    pub pid: u32,
    /// Drawn at the start; as in the heartbeats.
    pub session: String,
    /// Whether the control plane answers.
    pub connected: bool,
    /// Why it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Which host.
    #[serde(default)]
    pub host_id: Option<HostId>,
    /// Of which cluster, once joined.
    #[serde(default)]
    pub cluster: Option<String>,
    /// Until when the identity is good that ends first.
    #[serde(default)]
    pub identity_expires: Option<Timestamp>,
    /// The pin of the authority that issued it: a backup of it is worth nothing once that is not trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_issuer: Option<CaPin>,
}

/// Why the agent cannot tell how it is.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The data directory is too deep.
    #[error(
        "{path} is {length} bytes long, and the path of a socket may have {LONGEST_SOCKET_PATH}: \
         choose a shorter data directory", path = .path.display()
    )]
    TooLong {
        /// The path.
        path: PathBuf,
        /// Its length.
        length: usize,
    },
    /// The disk refused.
    #[error("the socket {path} cannot be made: {source}", path = .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Why there is no answer. The first two are different things to do next.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No process listens.
    #[error("no agent runs here: nobody listens at {path}", path = .0.display())]
    NotRunning(PathBuf),
    /// One does, and says nothing.
    #[error("the agent does not answer: {path} was silent for {seconds}s", path = .path.display(),
        seconds = .within.as_secs())]
    Silent {
        /// Where it was asked.
        path: PathBuf,
        /// For how long.
        within: Duration,
    },
    /// It ended, or re-executed, with the question in its hands.
    #[error("the agent ended or reloaded while it was asked at {path}; ask again", path = .0.display())]
    Interrupted(PathBuf),
    /// It is none of ours, or of a version that speaks otherwise.
    #[error("what answers at {path} is not an agent that this version understands: {problem}", path = .path.display())]
    Garbled {
        /// Where it was asked.
        path: PathBuf,
        /// What is wrong with the answer.
        problem: String,
    },
    /// The socket may not be used.
    #[error("the agent cannot be asked at {path}: {source}", path = .path.display())]
    Refused {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Where the agent tells how it is. The file goes when this does, if it is still the same.
#[derive(Debug)]
pub struct ReadinessSocket {
    path: PathBuf,
    listener: UnixListener,
    identity: (u64, u64),
}

impl ReadinessSocket {
    /// Listens, in place of whatever an earlier agent left there. Call it with the data directory's
    /// [`crate::PidFile`] in hand.
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        let length = path.as_os_str().as_bytes().len();
        if length > LONGEST_SOCKET_PATH {
            return Err(SocketError::TooLong { path: path.into(), length });
        }
        Self::try_bind(path).map_err(|source| SocketError::File { path: path.into(), source })
    }

    /// Made aside (under a name that is no longer), so that nobody finds it before it is private.
    fn try_bind(path: &Path) -> io::Result<Self> {
        let aside = path.with_extension("new");
        match fs::remove_file(&aside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&aside)?;
        fs::set_permissions(&aside, Permissions::from_mode(0o600))?;
        let made = fs::symlink_metadata(&aside)?;
        fs::rename(&aside, path)?;
        Ok(Self { path: path.into(), listener, identity: (made.dev(), made.ino()) })
    }

    /// Answers everyone who connects with what is so at that moment, until it is dropped.
    pub async fn serve(self, readiness: watch::Receiver<Readiness>) {
        loop {
            let mut asking = match self.listener.accept().await {
                Ok((asking, _)) => asking,
                Err(error) => {
                    tracing::warn!(%error, "a question for the agent's readiness was not heard");
                    tokio::time::sleep(AFTER_FAILED_ACCEPT).await;
                    continue;
                }
            };
            let Ok(mut line) = serde_json::to_vec(&*readiness.borrow()) else { continue };
            line.push(b'\n');
            // It fits the socket's buffer: no one has to read it for this to end.
            let _ = tokio::time::timeout(ANSWER_WITHIN, asking.write_all(&line)).await;
        }
    }
}

impl Drop for ReadinessSocket {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Asks the agent behind that socket how it is.
pub async fn ask(path: &Path) -> Result<Readiness, AskError> {
    let silent = || AskError::Silent { path: path.into(), within: ANSWER_WITHIN };
    let answer = tokio::time::timeout(ANSWER_WITHIN, question(path)).await.map_err(|_| silent())?;
    let line = answer.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => AskError::NotRunning(path.into()),
        // Its queue is full of questions that it has not taken.
        io::ErrorKind::WouldBlock => silent(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => AskError::Interrupted(path.into()),
        _ => AskError::Refused { path: path.into(), source },
    })?;
    if line.is_empty() {
        return Err(AskError::Interrupted(path.into()));
    }
    serde_json::from_slice(&line)
        .map_err(|error| AskError::Garbled { path: path.into(), problem: error.to_string() })
}

async fn question(path: &Path) -> io::Result<Vec<u8>> {
    let stream = UnixStream::connect(path).await?;
    let mut line = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut line).await?;
    Ok(line)
}
