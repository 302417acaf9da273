//! The addresses of the control plane, as they are configured and dialled.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use rustls::pki_types::ServerName;

/// The port of the control plane when none is given.
pub const DEFAULT_PORT: u16 = 3080;

/// Where a server of the control plane is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyAddress {
    host: ServerName<'static>,
    port: u16,
}

/// A text that is no such address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not HOST[:PORT]; expected something like refit.example.com:3080 or [2001:db8::1]:3080")]
pub struct NotAProxyAddress {
    found: String,
}

impl ProxyAddress {
    /// The host, as its certificate must name it.
    pub fn host(&self) -> &ServerName<'static> {
        &self.host
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for ProxyAddress {
    type Err = NotAProxyAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| NotAProxyAddress { found: text.chars().take(80).collect() })
    }
}

fn parse(text: &str) -> Option<ProxyAddress> {
    let (host, port) = match text.strip_prefix('[') {
        Some(bracketed) => {
            let (host, rest) = bracketed.split_once(']')?;
            host.parse::<Ipv6Addr>().ok()?;
            (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
        }
        // With more than one colon it could be an IPv6 address with or without a port: it needs brackets.
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = match port {
        None => DEFAULT_PORT,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok()?,
        Some(_) => return None,
    };
    let host = ServerName::try_from(host.to_owned()).ok()?;
    (port != 0).then_some(ProxyAddress { host, port })
}

impl fmt::Display for ProxyAddress {
    /// `HOST:PORT`, as it is dialled.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.host.to_str();
        if host.contains(':') {
            write!(f, "[{host}]:{}", self.port)
        } else {
            write!(f, "{host}:{}", self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_maybe_a_port() {
        for (text, dialled) in [
            ("refit.example.com", "refit.example.com:3080"),
            ("refit.example.com:443", "refit.example.com:443"),
            ("10.0.0.1", "10.0.0.1:3080"),
            ("[2001:db8::1]", "[2001:db8::1]:3080"),
            ("[::1]:9", "[::1]:9"),
            ("localhost:1", "localhost:1"),
        ] {
            assert_eq!(text.parse::<ProxyAddress>().unwrap().to_string(), dialled);
        }
        for bad in [
            "",
            ":3080",
            "a:",
            "a:0",
            "a:65536",
            "a:+1",
            "https://a",
            "a/b",
            "::1",
            "::1:3080",
            "[::1",
            "[a]",
            "[::1]3080",
            "a b",
            "a:1:2",
            "10.0.0.1.",
            "user@a",
        ] {
            assert!(bad.parse::<ProxyAddress>().is_err(), "{bad:?}");
        }
    }
}
