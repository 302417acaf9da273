use std::error::Error;
use std::io::Read;
use std::thread;
use std::time::Duration;

/// A file that is being received.
pub struct Transfer {
    /// Its bytes, from `starts_at` on.
    pub body: Box<dyn Read + Send>,
    /// How long the whole file is, if the server said so.
    pub total: Option<u64>,
    /// What names this content of the file.
    pub etag: Option<String>,
    /// Where the body begins: 0 if the server ignored where it should.
    pub starts_at: u64,
}

/// Where archives come from: a seam, so that faults of a network can be played.
pub trait Source: Send + Sync {
    /// Begins to receive a file from a byte on.
    fn open(&self, url: &str, from: u64) -> Result<Transfer, SourceError>;

    /// Like `open`, for a server that is to begin at the start if the file is no longer the one of that `etag`.
    fn resume(&self, url: &str, from: u64, etag: &str) -> Result<Transfer, SourceError> {
        let _ = etag;
        self.open(url, from)
    }

    /// Waits before a try that follows `failures` failed ones.
    fn pause(&self, failures: u32) {
        thread::sleep(pause_after(Duration::from_secs(1), failures));
    }
}

/// Doubles with each failure up to a minute, and is somewhere in the upper half: hosts that lost the same server
/// do not come back at the same moment.
pub(super) fn pause_after(first: Duration, failures: u32) -> Duration {
    let whole = first.saturating_mul(1 << failures.saturating_sub(1).min(6)).min(Duration::from_secs(60));
    whole.mul_f64(rand::random_range(0.5..=1.0))
}

/// A file that could not be received.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{url}: {kind}")]
pub struct SourceError {
    /// Which one, without query string and credentials.
    pub url: String,
    /// Why.
    pub kind: SourceErrorKind,
}

/// Why a file could not be received.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceErrorKind {
    /// It is no address that may be asked.
    #[error("not an address to download from: {0}")]
    Address(String),
    /// The server answered something else.
    #[error("the server answered with status {0}")]
    Status(u16),
    /// It sent us elsewhere in a way that we do not follow.
    #[error("the server's redirect is not followed: {0}")]
    Redirect(&'static str),
    /// It is not the server that it should be.
    #[error("the server is not trusted: {0}; check the certificate authority (--ca-pin) and the clock")]
    Untrusted(String),
    /// It does not answer.
    #[error("no answer: {0}; check the network and the proxy's address")]
    Unreachable(String),
    /// The answer broke off.
    #[error("the download broke off: {0}")]
    Interrupted(String),
    /// The answer makes no sense.
    #[error("the server's answer cannot be used: {0}")]
    InvalidResponse(String),
    /// A download that broke off cannot go on, because the file is another one now.
    #[error("the file changed while it was downloaded: it has to begin anew")]
    Changed,
    /// A download that broke off cannot go on, because the server begins at the start again.
    #[error("the server cannot go on where a download broke off: it has to begin anew")]
    NoRanges,
    /// Nobody wants the rest.
    #[error("the download was given up")]
    GivenUp,
}

impl SourceError {
    /// An error about an address; what could be secret in it is left out.
    pub fn new(url: &str, kind: SourceErrorKind) -> Self {
        Self { url: redacted(url), kind }
    }

    /// Whether the same request may succeed a little later.
    pub fn is_transient(&self) -> bool {
        match &self.kind {
            SourceErrorKind::Unreachable(_) | SourceErrorKind::Interrupted(_) => true,
            SourceErrorKind::Status(status) => matches!(status, 408 | 425 | 429 | 500..),
            _ => false,
        }
    }

    /// Whether a download from the first byte may succeed where going on cannot.
    pub fn needs_restart(&self) -> bool {
        matches!(self.kind, SourceErrorKind::Changed | SourceErrorKind::NoRanges)
    }
}

/// An address as it may be redacted to anybody.
pub(crate) fn redacted(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let bare = &url[..end];
    let Some((scheme, rest)) = bare.split_once("://") else { return bare.to_owned() };
    let (authority, path) = rest.split_at(rest.find(['/', '\\']).unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or(authority);
    format!("{scheme}://{host}{path}")
}

/// The cause of an error in its own words: what wraps it may show the address.
pub(super) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = wrapped(cause) {
        cause = next;
    }
    cause.to_string()
}

/// What an error wraps. An I/O error hides the error that it was made from.
pub(super) fn wrapped<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    inner.map(|inner| inner as &(dyn Error + 'static)).or_else(|| error.source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_secret_in_an_address_is_not_shown() {
        for (url, expected) in [
            ("https://a.example/x.tar.gz?token=secret", "https://a.example/x.tar.gz"),
            ("https://user:secret@a.example:8443/x#secret", "https://a.example:8443/x"),
            ("https://user:p@secret@a.example/x", "https://a.example/x"),
            ("https://a.example?secret", "https://a.example"),
            ("x?secret", "x"),
        ] {
            assert_eq!(redacted(url), expected);
        }
    }

    #[test]
    fn pauses_grow_differ_and_end() {
        let first = Duration::from_secs(1);
        for failures in 1..40 {
            let whole = first.saturating_mul(1 << (failures - 1).min(6)).min(Duration::from_secs(60));
            let pause = pause_after(first, failures);
            assert!(pause >= whole / 2 && pause <= whole, "{failures}: {pause:?}");
        }
    }
}
