//! One plain HTTP request to this host itself. The response may be hostile, so everything is bounded.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const MAX_HEAD_BYTES: usize = 16 * 1024;
const MAX_BODY_BYTES: usize = 1024;
const MAX_EXCERPT_CHARS: usize = 200;
/// The body only explains the status, so it is not waited for long.
const BODY_WITHIN: Duration = Duration::from_millis(500);

/// A response, with the connection still open.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// The start of the body in one line; empty with status 200.
    pub(super) excerpt: String,
    connection: TcpStream,
}

impl Reply {
    /// The local and the remote port, by which the kernel lists the connection.
    pub(super) fn ports(&self) -> io::Result<(u16, u16)> {
        Ok((self.connection.local_addr()?.port(), self.connection.peer_addr()?.port()))
    }
}

/// Requests an `http://` address on this host.
pub(super) fn get(url: &str, within: Duration) -> io::Result<Reply> {
    let until = Instant::now() + within;
    let (host, addresses, path) = parts(url).ok_or_else(|| other("it is not an address on this host"))?;
    let mut connection = connect(&addresses, until)?;
    connection.set_write_timeout(Some(left(until)?))?;
    let agent = concat!("refit-update/", env!("CARGO_PKG_VERSION"));
    write!(connection, "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: {agent}\r\nAccept: */*\r\n\r\n")?;
    let (head, mut body) = head(&mut connection, until)?;
    let status = status(&head).ok_or_else(|| other("what it answers is not HTTP"))?;
    let excerpt = match status {
        200 => String::new(),
        _ => {
            let wanted = length(&head).unwrap_or(MAX_BODY_BYTES).min(MAX_BODY_BYTES);
            let until = until.min(Instant::now() + BODY_WITHIN);
            while body.len() < wanted && !body.ends_with(b"\r\n0\r\n\r\n") {
                match more(&mut connection, &mut body, until) {
                    Ok(0) | Err(_) => break,
                    Ok(_) => {}
                }
            }
            excerpt(&body[..body.len().min(wanted)], is_chunked(&head))
        }
    };
    Ok(Reply { status, excerpt, connection })
}

fn other(reason: &'static str) -> io::Error {
    io::Error::other(reason)
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::Error::new(io::ErrorKind::TimedOut, "it is silent")) } else { Ok(left) }
}

/// The host as the address names it, its socket addresses, and the path; nothing for an address of another host.
fn parts(url: &str) -> Option<(&str, Vec<SocketAddr>, &str)> {
    let rest = url.strip_prefix("http://")?;
    let rest = rest.split('#').next()?;
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let path = if path.is_empty() { "/" } else { path };
    if path.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return None;
    }
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !name.starts_with('[') || name.ends_with(']') => (name, port.parse().ok()?),
        _ => (host, 80),
    };
    let (four, six) =
        (SocketAddr::from((Ipv4Addr::LOCALHOST, port)), SocketAddr::from((Ipv6Addr::LOCALHOST, port)));
    let addresses = match name {
        "127.0.0.1" => vec![four],
        "[::1]" => vec![six],
        "localhost" => vec![four, six],
        _ => return None,
    };
    Some((host, addresses, path))
}

fn connect(addresses: &[SocketAddr], until: Instant) -> io::Result<TcpStream> {
    let mut last = other("it is no address");
    for address in addresses {
        match TcpStream::connect_timeout(address, left(until)?) {
            Ok(connection) => return Ok(connection),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Everything up to the empty line, and the part of the body that came with it.
fn head(connection: &mut TcpStream, until: Instant) -> io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let body = bytes.split_off(end + 4);
            return Ok((String::from_utf8_lossy(&bytes).into_owned(), body));
        }
        if bytes.len() > MAX_HEAD_BYTES {
            return Err(other("the head of its answer is too long"));
        }
        if more(connection, &mut bytes, until)? == 0 {
            return Err(other("it hung up before it had answered"));
        }
    }
}

fn more(connection: &mut TcpStream, bytes: &mut Vec<u8>, until: Instant) -> io::Result<usize> {
    let mut buffer = [0; 4096];
    loop {
        connection.set_read_timeout(Some(left(until)?))?;
        match connection.read(&mut buffer) {
            Ok(count) => {
                bytes.extend_from_slice(&buffer[..count]);
                return Ok(count);
            }
            // Timeouts end in `left`.
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
}

fn status(head: &str) -> Option<u16> {
    let (version, rest) = head.lines().next()?.split_once(' ')?;
    let code = rest.split(' ').next()?;
    let is_code = version.starts_with("HTTP/1.") && code.len() == 3;
    code.parse().ok().filter(|_| is_code)
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut headers = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    headers.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

fn length(head: &str) -> Option<usize> {
    header(head, "content-length")?.parse().ok()
}

fn is_chunked(head: &str) -> bool {
    header(head, "transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"))
}

/// The `status` of a JSON object, or the start of any other text.
fn excerpt(body: &[u8], is_chunked: bool) -> String {
    let text = String::from_utf8_lossy(body);
    // Explanations fit into one chunk.
    let text = match text.split_once("\r\n").filter(|_| is_chunked) {
        Some((_, chunk)) => chunk.strip_suffix("\r\n0\r\n\r\n").unwrap_or(chunk),
        None => &text,
    };
    let json = serde_json::from_str::<serde_json::Value>(text).ok();
    let status = json.as_ref().and_then(|json| json.get("status")?.as_str());
    one_line(status.unwrap_or(text), MAX_EXCERPT_CHARS)
}

/// The start of a text, without characters that would break a log line.
pub(super) fn one_line(text: &str, most: usize) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(most * 4).collect();
    clean.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_on_this_host_are_asked() {
        let four = SocketAddr::from((Ipv4Addr::LOCALHOST, 3000));
        let six = SocketAddr::from((Ipv6Addr::LOCALHOST, 3000));
        for (url, expected) in [
            ("http://127.0.0.1:3000/readyz", Some(("127.0.0.1:3000", vec![four], "/readyz"))),
            ("http://localhost:3000", Some(("localhost:3000", vec![four, six], "/"))),
            ("http://[::1]:3000/a?b#c", Some(("[::1]:3000", vec![six], "/a?b"))),
            ("http://[::1]", Some(("[::1]", vec![SocketAddr::from((Ipv6Addr::LOCALHOST, 80))], "/"))),
            ("http://localhost123/", None),
            ("http://127.0.0.1:/", None),
            ("http://127.0.0.1:99999/", None),
            ("http://127.0.0.1:1/a b", None),
            ("http://user@127.0.0.1/", None),
            ("http://example.com:3000/", None),
            ("https://127.0.0.1:3000/", None),
        ] {
            assert_eq!(parts(url), expected, "{url}");
        }
    }

    #[test]
    fn what_explains_is_short_and_in_one_line() {
        assert_eq!(excerpt(b"{\"status\":\"teleport is starting\"}", false), "teleport is starting");
        assert_eq!(excerpt(b"11\r\n{\"status\":\"slow\"}\r\n0\r\n\r\n", true), "slow");
        assert_eq!(excerpt(b"not\r\n\x1b[31m json \xff", false), "not [31m json \u{fffd}");
        assert_eq!(excerpt(&b"x ".repeat(500), false).len(), MAX_EXCERPT_CHARS);
    }

    #[test]
    fn only_http_is_understood() {
        assert_eq!(status("HTTP/1.0 503 Service Unavailable\r\n"), Some(503));
        assert_eq!(status("HTTP/1.1 200\r\n"), Some(200));
        for bad in ["", "SSH-2.0-OpenSSH", "HTTP/2 200 OK", "HTTP/1.1 20 OK", "HTTP/1.1 OK 200", "ICY 200 OK"]
        {
            assert_eq!(status(bad), None, "{bad}");
        }
    }
}
