//! The readiness socket: what the agent reports of itself to `refit agent status` and to the updater.

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
/// A working agent answers at once; one that is stopped or hangs never does.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Far more than an answer needs.
const MAX_ANSWER_BYTES: u64 = 64 * 1024;
/// Most likely out of file descriptors: wait for some to close.
const AFTER_FAILED_ACCEPT: Duration = Duration::from_millis(200);

/// The state of the agent, for `refit agent status` and for the updater, which takes it as the proof that the
/// version it installed works. The two may be of different versions: unknown fields are passed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// What runs.
    pub version: Version,
    /// When this process image started: after a reload, if that succeeded.
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

/// Why the socket cannot be created.
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

/// Why there is no answer. Each variant needs another remedy.
#[derive(Debug, thiserror::Error)]
pub enum ReadinessError {
    /// No process listens.
    #[error("no agent is running: nothing listens on {path}", path = .0.display())]
    NotRunning(PathBuf),
    /// One does, and says nothing.
    #[error("the agent does not answer: {path} was silent for {seconds}s", path = .path.display(),
        seconds = .within.as_secs())]
    Silent {
        /// The socket.
        path: PathBuf,
        /// For how long.
        within: Duration,
    },
    /// It ended, or re-executed, before it answered.
    #[error("the agent ended or reloaded before it answered on {path}; try again", path = .0.display())]
    Interrupted(PathBuf),
    /// Another program answers, or an agent of an incompatible version.
    #[error("cannot understand the answer on {path}: {problem}; is it an agent of another version?", path = .path.display())]
    Invalid {
        /// The socket.
        path: PathBuf,
        /// What is wrong with the answer.
        problem: String,
    },
    /// The socket may not be used.
    #[error("cannot connect to the agent on {path}: {source}", path = .path.display())]
    Refused {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// The socket on which the agent reports its readiness. Dropping it removes the file, if it is still the same.
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

    /// Answers every connection with the readiness of that moment, until it is dropped.
    pub async fn serve(self, readiness: watch::Receiver<Readiness>) {
        loop {
            let mut client = match self.listener.accept().await {
                Ok((client, _)) => client,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection on the readiness socket");
                    tokio::time::sleep(AFTER_FAILED_ACCEPT).await;
                    continue;
                }
            };
            let Ok(mut line) = serde_json::to_vec(&*readiness.borrow()) else { continue };
            line.push(b'\n');
            // It fits the socket's buffer: no one has to read it for this to end.
            let _ = tokio::time::timeout(ANSWER_WITHIN, client.write_all(&line)).await;
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

/// Reads the readiness of the agent behind that socket.
pub async fn query_readiness(path: &Path) -> Result<Readiness, ReadinessError> {
    let silent = || ReadinessError::Silent { path: path.into(), within: ANSWER_WITHIN };
    let answer = tokio::time::timeout(ANSWER_WITHIN, read_answer(path)).await.map_err(|_| silent())?;
    let line = answer.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ReadinessError::NotRunning(path.into()),
        // The backlog is full: the agent accepts no connections.
        io::ErrorKind::WouldBlock => silent(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => {
            ReadinessError::Interrupted(path.into())
        }
        _ => ReadinessError::Refused { path: path.into(), source },
    })?;
    if line.is_empty() {
        return Err(ReadinessError::Interrupted(path.into()));
    }
    serde_json::from_slice(&line)
        .map_err(|error| ReadinessError::Invalid { path: path.into(), problem: error.to_string() })
}

async fn read_answer(path: &Path) -> io::Result<Vec<u8>> {
    let stream = UnixStream::connect(path).await?;
    let mut line = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut line).await?;
    Ok(line)
}
