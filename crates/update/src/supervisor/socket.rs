//! The control socket of the supervisor: accepts connections and forwards their requests to the main loop.

use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::protocol::{Request, Response};
use super::{Input, SupervisorError};

/// The kernel keeps 108 bytes for a socket's path, with a zero at the end.
const LONGEST_SOCKET_PATH: usize = 107;
/// How long a client may take to send its request, or to read the response.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a request may take: longer than an agent may take to stop.
const RESPONSE_WITHIN: Duration = Duration::from_secs(60);
/// Far more than a request needs.
const MAX_REQUEST_BYTES: usize = 4096;
/// Connections served at the same time; others wait.
const LISTENERS: usize = 8;
/// The delay after a failed accept, most likely for lack of file descriptors.
const AFTER_FAILED_ACCEPT: Duration = Duration::from_millis(200);

/// The socket of a supervisor. Its file is removed on drop, if it is still the same.
#[derive(Debug)]
pub(super) struct ControlSocket {
    path: PathBuf,
    listener: Arc<UnixListener>,
    identity: (u64, u64),
}

impl ControlSocket {
    /// Listens, in place of a socket that an earlier supervisor left. The caller holds the supervisor's lock.
    pub(super) fn bind(path: &Path) -> Result<Self, SupervisorError> {
        let length = path.as_os_str().as_bytes().len();
        if length > LONGEST_SOCKET_PATH {
            return Err(SupervisorError::TooLong { path: path.into(), length, most: LONGEST_SOCKET_PATH });
        }
        Self::try_bind(path).map_err(|source| SupervisorError::Disk { path: path.into(), source })
    }

    /// Binds under a temporary name, which is not longer, and renames: no client can connect before the mode is set.
    fn try_bind(path: &Path) -> io::Result<Self> {
        let temporary = path.with_extension("new");
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = Arc::new(UnixListener::bind(&temporary)?);
        fs::set_permissions(&temporary, Permissions::from_mode(0o600))?;
        let made = fs::symlink_metadata(&temporary)?;
        fs::rename(&temporary, path)?;
        Ok(Self { path: path.into(), listener, identity: (made.dev(), made.ino()) })
    }

    /// Forwards requests to the main loop for as long as the process lives.
    pub(super) fn serve(&self, inputs: &Sender<Input>) {
        for _ in 0..LISTENERS {
            let (listener, inputs) = (self.listener.clone(), inputs.clone());
            thread::spawn(move || {
                loop {
                    match listener.accept() {
                        Ok((stream, _)) => {
                            // The client may have gone away.
                            let _ = serve_connection(stream, &inputs);
                        }
                        Err(error) => {
                            tracing::warn!(%error, "a connection to the supervisor was not accepted");
                            thread::sleep(AFTER_FAILED_ACCEPT);
                        }
                    }
                }
            });
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn serve_connection(mut stream: UnixStream, inputs: &Sender<Input>) -> io::Result<()> {
    let answer = match read_request(&mut stream, Instant::now() + PATIENCE) {
        Ok(request) => {
            let (reply, answered) = channel();
            let _ = inputs.send(Input::Request(request, reply));
            let late = || Response::Failed("the supervisor does not respond; see its log".into());
            answered.recv_timeout(RESPONSE_WITHIN).unwrap_or_else(|_| late())
        }
        Err(error) => Response::Failed(error),
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&line)
}

fn read_request(stream: &mut UnixStream, end: Instant) -> Result<Request, String> {
    let (mut line, mut part) = (Vec::new(), [0; 512]);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!("no complete request within {} s", PATIENCE.as_secs()));
        }
        stream.set_read_timeout(Some(left)).map_err(|error| error.to_string())?;
        let count = match stream.read(&mut part) {
            Ok(count) => count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                continue;
            }
            Err(error) => return Err(error.to_string()),
        };
        line.extend_from_slice(&part[..count]);
        if line.len() > MAX_REQUEST_BYTES {
            return Err(format!("a request has at most {MAX_REQUEST_BYTES} bytes"));
        }
        if count == 0 || line.contains(&b'\n') {
            break;
        }
    }
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    serde_json::from_slice(line).map_err(|error| format!("this is not a request: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use super::*;

    fn served() -> (tempfile::TempDir, ControlSocket, Receiver<Input>) {
        let folder = tempfile::tempdir().unwrap();
        let socket = ControlSocket::bind(&folder.path().join("supervisor.sock")).unwrap();
        let (sender, inputs) = channel();
        socket.serve(&sender);
        (folder, socket, inputs)
    }

    fn exchange(socket: &ControlSocket, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(&socket.path).unwrap();
        // The supervisor may have refused before all was written.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn the_socket_is_private_and_goes_with_its_owner() {
        let (folder, socket, _happenings) = served();
        let path = folder.path().join("supervisor.sock");
        assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let next = ControlSocket::bind(&path).unwrap();
        drop(socket);
        assert!(path.exists(), "it is another's by now");
        drop(next);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_path_that_is_too_long_is_named() {
        let path = Path::new("/tmp").join("d".repeat(90)).join("supervisor.sock");
        let error = ControlSocket::bind(&path).unwrap_err().to_string();
        assert!(error.contains("is 111 bytes long") && error.contains("may have 107"), "{error}");
    }

    #[test]
    fn what_cannot_be_understood_is_refused_and_nobody_else_suffers() {
        let (_folder, socket, inputs) = served();
        let stuck: Vec<_> = (0..LISTENERS - 1).map(|_| UnixStream::connect(&socket.path).unwrap()).collect();
        for garbage in [&b"{"[..], b"", b"\n", b"\"dance\"", b"{\"set_updates\":1}", b"\xff\xfe\n"] {
            let answer = exchange(&socket, garbage);
            assert!(answer.starts_with(r#"{"failed":"this is not a request"#), "{garbage:?}: {answer}");
        }
        let huge = exchange(&socket, &vec![b' '; 2 * MAX_REQUEST_BYTES]);
        assert!(huge.is_empty() || huge.contains("at most 4096 bytes"), "{huge}");
        let answering = thread::spawn(move || match inputs.recv().unwrap() {
            Input::Request(request, reply) => {
                assert_eq!(request, Request::Refresh);
                reply.send(Response::Done).unwrap();
            }
            Input::Signal(signal) => panic!("{signal}"),
        });
        assert_eq!(exchange(&socket, b"\"refresh\"\n"), "\"done\"\n");
        answering.join().unwrap();
        drop(stuck);
    }
}
