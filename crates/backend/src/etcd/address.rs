//! Parses `etcd://` addresses. No I/O: credentials and TLS files are only named here, and read when connecting.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;

use super::redact::{Secret, redacted};
use crate::{Error, Key, Result};

const SCHEME: &str = "etcd://";
const DEFAULT_PORT: u16 = 2379;
const DEFAULT_PREFIX: &str = "/refit";

/// Longer prefixes would push a transaction that is within the portable limits over etcd's own.
const MAX_PREFIX_BYTES: usize = 256;

/// Endpoints and credentials of an etcd cluster, validated before the first connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdAddress {
    pub(super) hosts: Vec<Host>,
    pub(super) prefix: String,
    pub(super) user: Option<User>,
    pub(super) tls: Option<TlsFiles>,
}

/// One member of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    /// Without the brackets of an IPv6 address: the name that a certificate is for.
    pub(super) name: String,
    pub(super) port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) password: Password,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Password {
    Given(Secret),
    /// Read again for each login, so that the password can change while the server runs.
    File(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TlsFiles {
    pub(super) ca: PathBuf,
    pub(super) identity: Option<(PathBuf, PathBuf)>,
}

impl EtcdAddress {
    /// Takes `etcd://[user[:password]@]host[:port],…[/prefix][?ca=FILE&cert=FILE&key=FILE&tls=true&password_file=FILE]`.
    pub fn parse(address: &str) -> Result<Self> {
        parse(address).map_err(|error| Error::BadAddress(format!("{}: {error}", redacted(address))))
    }

    /// The members' names and ports, as people write them.
    pub(super) fn hosts(&self) -> String {
        self.hosts.iter().map(Host::to_string).collect::<Vec<_>>().join(",")
    }

    pub(super) fn error(&self, reason: impl fmt::Display) -> Error {
        Error::BadAddress(format!("{self}: {reason}"))
    }
}

impl FromStr for EtcdAddress {
    type Err = Error;

    fn from_str(address: &str) -> Result<Self> {
        Self::parse(address)
    }
}

impl fmt::Display for EtcdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SCHEME)?;
        if let Some(user) = &self.user {
            write!(f, "{}@", user.name)?;
        }
        write!(f, "{}{}", self.hosts(), self.prefix)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.contains(':') {
            true => write!(f, "[{}]:{}", self.name, self.port),
            false => write!(f, "{}:{}", self.name, self.port),
        }
    }
}

type Parsed<T> = std::result::Result<T, String>;

fn parse(address: &str) -> Parsed<EtcdAddress> {
    let rest = address.strip_prefix(SCHEME).ok_or_else(|| format!("it must start with {SCHEME}"))?;
    let (credentials, rest) = match rest.rsplit_once('@') {
        Some((credentials, rest)) => (Some(credentials), rest),
        None => (None, rest),
    };
    if credentials.is_some_and(|credentials| credentials.contains(['/', '?', '#', '@'])) {
        let how = "write %2F for \"/\", %3F for \"?\", %23 for \"#\" and %40 for \"@\"";
        return Err(format!("it has an \"@\" that does not follow a plain user and password: {how}"));
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (hosts, path) = match rest.find('/') {
        Some(slash) => rest.split_at(slash),
        None => (rest, ""),
    };
    let mut options = Options::parse(query)?;
    let parsed = EtcdAddress {
        hosts: hosts.split(',').map(host).collect::<Parsed<_>>()?,
        prefix: prefix(path)?,
        user: user(credentials, options.file("password_file"))?,
        tls: tls(&mut options)?,
    };
    options.finish()?;
    Ok(parsed)
}

fn host(text: &str) -> Parsed<Host> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (name, port) = rest.split_once(']').ok_or_else(|| format!("{text:?} has no \"]\""))?;
            name.parse::<Ipv6Addr>().map_err(|_| format!("{name:?} is not an IPv6 address"))?;
            match port.strip_prefix(':') {
                Some(port) => (name, Some(port)),
                None if port.is_empty() => (name, None),
                None => return Err(format!("{port:?} after \"]\" is not a port")),
            }
        }
        None if text.matches(':').count() > 1 => {
            return Err(format!("{text:?} is not host:port; an IPv6 address goes in brackets"));
        }
        None => {
            let (name, port) = text.split_once(':').map_or((text, None), |(name, port)| (name, Some(port)));
            if name.is_empty() {
                return Err("a host is missing".into());
            }
            if !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')) {
                return Err(format!("{name:?} is not a host name"));
            }
            (name, port)
        }
    };
    let port = match port.map(|port| (port, port.parse())) {
        None => DEFAULT_PORT,
        Some((_, Ok(0))) => return Err("port 0 cannot be connected to".into()),
        Some((_, Ok(port))) => port,
        Some((port, Err(_))) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => {
            return Err(format!("port {port} is above 65535"));
        }
        Some((port, Err(_))) => return Err(format!("port {port:?} is not a number")),
    };
    Ok(Host { name: name.into(), port })
}

fn prefix(path: &str) -> Parsed<String> {
    if matches!(path, "" | "/") {
        return Ok(DEFAULT_PREFIX.into());
    }
    let path =
        percent_decoded(path).ok_or_else(|| format!("the prefix {path:?} is wrongly percent-encoded"))?;
    if path.len() > MAX_PREFIX_BYTES {
        let length = path.len();
        return Err(format!(
            "a prefix of {length} bytes is too long: at most {MAX_PREFIX_BYTES} are allowed"
        ));
    }
    match Key::new(&path) {
        Ok(_) => Ok(path),
        Err(error) => Err(format!("the prefix {error}")),
    }
}

fn user(credentials: Option<&str>, password_file: Option<PathBuf>) -> Parsed<Option<User>> {
    let Some(credentials) = credentials else {
        return match password_file {
            Some(_) => Err("password_file is given, but no user".into()),
            None => Ok(None),
        };
    };
    let (name, password) = match credentials.split_once(':') {
        Some((name, password)) => (name, Some(password)),
        None => (credentials, None),
    };
    let decode =
        |text, what| percent_decoded(text).ok_or_else(|| format!("the {what} is wrongly percent-encoded"));
    let name = decode(name, "user")?;
    if name.is_empty() {
        return Err("the user before \"@\" is empty".into());
    }
    let password = match (password, password_file) {
        (Some(_), Some(_)) => return Err("it has both a password and password_file".into()),
        (Some(""), None) | (None, None) => {
            return Err(format!("user {name:?} has no password; add :password or password_file=FILE"));
        }
        (Some(password), None) => Password::Given(Secret::new(decode(password, "password")?)),
        (None, Some(file)) => Password::File(file),
    };
    Ok(Some(User { name, password }))
}

fn tls(options: &mut Options) -> Parsed<Option<TlsFiles>> {
    let (ca, cert, key) = (options.file("ca"), options.file("cert"), options.file("key"));
    let files = ca.is_some() || cert.is_some() || key.is_some();
    let wanted = match options.take("tls").as_deref() {
        None => files,
        Some("true") => true,
        Some("false") if files => return Err("tls=false contradicts ca, cert and key".into()),
        Some("false") => false,
        Some(other) => return Err(format!("tls={other:?} is neither true nor false")),
    };
    if !wanted {
        return Ok(None);
    }
    let ca = ca.ok_or("TLS needs ca=FILE: the certificate that the members' certificates are signed with")?;
    let identity = match (cert, key) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        (Some(_), None) => return Err("cert is given, but no key".into()),
        (None, Some(_)) => return Err("key is given, but no cert".into()),
    };
    Ok(Some(TlsFiles { ca, identity }))
}

struct Options(BTreeMap<String, String>);

impl Options {
    fn parse(query: &str) -> Parsed<Self> {
        let mut options = BTreeMap::new();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) =
                option.split_once('=').ok_or("an option has no \"=\"; options are written name=value")?;
            let value = percent_decoded(value).ok_or_else(|| format!("{name} is wrongly percent-encoded"))?;
            if value.is_empty() {
                return Err(format!("{name} is empty"));
            }
            if options.insert(name.to_owned(), value).is_some() {
                return Err(format!("{name} is given twice"));
            }
        }
        Ok(Self(options))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    fn file(&mut self, name: &str) -> Option<PathBuf> {
        self.take(name).map(PathBuf::from)
    }

    fn finish(self) -> Parsed<()> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => {
                let known = "ca, cert, key, tls and password_file";
                Err(format!("{name:?} is not an option of an etcd address; those are {known}"))
            }
        }
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let high = char::from(bytes.next()?).to_digit(16)?;
                let low = char::from(bytes.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(decoded).ok()
}
