//! systemd's notification protocol, for the service's state.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

/// Where systemd says that it listens.
pub(crate) const SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";

/// Notifies systemd of the state of the service (sd_notify); does nothing when systemd did not ask for it.
///
/// A message that cannot be sent is logged and never holds the agent up.
#[derive(Debug)]
pub struct Notify {
    target: Option<(UnixDatagram, SocketAddr)>,
}

impl Notify {
    /// As `NOTIFY_SOCKET` says. The variable stays, because a re-executed agent needs it too.
    pub fn from_env() -> Self {
        Self::to(std::env::var_os(SOCKET_VARIABLE).as_deref())
    }

    /// To the socket of that name: a path, or `@` and an abstract name.
    pub fn to(socket: Option<&OsStr>) -> Self {
        let Some(socket) = socket.filter(|socket| !socket.is_empty()) else { return Self { target: None } };
        let target = open(socket);
        if let Err(error) = &target {
            tracing::warn!(socket = %socket.display(), %error, "cannot notify systemd");
        }
        Self { target: target.ok() }
    }

    /// The agent works; after a reload too.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// The agent is about to re-execute; [`Notify::ready`] of the next image ends it.
    pub fn reloading(&self) {
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_microseconds()));
    }

    /// The agent is about to end.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// What `systemctl status` shows.
    pub fn status(&self, text: &str) {
        self.send(&format!("STATUS={}", one_line(text)));
    }

    fn send(&self, message: &str) {
        let Some((socket, address)) = &self.target else { return };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            tracing::debug!(%error, "cannot notify systemd");
        }
    }
}

fn open(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(name)?,
        _ => return Err(io::Error::new(io::ErrorKind::Unsupported, "neither a path nor an abstract name")),
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

/// A line break would begin another assignment.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

fn monotonic_microseconds() -> i128 {
    let now = clock_gettime(ClockId::Monotonic);
    i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 512];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    fn notifies(name: &OsStr, socket: &UnixDatagram) {
        socket.set_nonblocking(true).unwrap();
        let notify = Notify::to(Some(name));
        notify.ready("connected to\nREADY=0");
        assert_eq!(receive(socket), "READY=1\nSTATUS=connected to READY=0");
        let before = monotonic_microseconds();
        notify.reloading();
        let message = receive(socket);
        let at: i128 = message.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap().parse().unwrap();
        assert!(at >= before && at <= monotonic_microseconds(), "{message}");
        notify.status("lost");
        assert_eq!(receive(socket), "STATUS=lost");
        notify.stopping();
        assert_eq!(receive(socket), "STOPPING=1");
    }

    #[test]
    fn systemd_hears_of_every_step() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        notifies(path.as_os_str(), &UnixDatagram::bind(&path).unwrap());

        let name = format!("refit-agent-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        notifies(OsStr::new(&format!("@{name}")), &UnixDatagram::bind_addr(&address).unwrap());
    }

    #[test]
    fn an_absent_socket_is_no_error() {
        for absent in [None, Some(""), Some("/no/such/socket"), Some("vsock:2:1"), Some("relative")] {
            let notify = Notify::to(absent.map(OsStr::new));
            notify.ready("x");
            notify.stopping();
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("full");
        let _never_read = UnixDatagram::bind(&path).unwrap();
        let notify = Notify::to(Some(path.as_os_str()));
        (0..10_000).for_each(|n| notify.status(&n.to_string()));
    }
}
