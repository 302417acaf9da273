//! The seam to the network: where archives come from, and how a download fails.

use std::error::Error;
use std::io::Read;
use std::time::Duration;

use super::Patience;

/// A file that is being downloaded.
pub struct Transfer {
    /// Its bytes, from `starts_at` on.
    pub body: Box<dyn Read + Send>,
    /// How long the whole file is, if the server said so.
    pub total: Option<u64>,
    /// The ETag of the content.
    pub etag: Option<String>,
    /// The offset of the body: 0 if the server ignored the range.
    pub starts_at: u64,
}

/// Where archives come from: a seam, so that tests can inject network errors.
pub trait Source: Send + Sync {
    /// Opens a file from an offset on. Its body fails when the patience is over.
    fn open(&self, url: &str, from: u64, patience: &Patience) -> Result<Transfer, SourceError>;

    /// Like `open`, but the server starts at 0 if the file no longer has that `etag`.
    fn resume(&self, url: &str, from: u64, etag: &str, patience: &Patience) -> Result<Transfer, SourceError> {
        let _ = etag;
        self.open(url, from, patience)
    }

    /// Waits before the next try, after `failures` failed ones.
    fn pause(&self, failures: u32, patience: &Patience) -> Result<(), SourceErrorKind> {
        patience.sleep(pause_after(Duration::from_secs(1), failures))
    }
}

/// Doubles with each failure up to a minute, with jitter over the upper half, so that hosts that lost the same server do
/// not return at the same time.
pub(super) fn pause_after(first: Duration, failures: u32) -> Duration {
    let whole = first.saturating_mul(1 << failures.saturating_sub(1).min(6)).min(Duration::from_secs(60));
    whole.mul_f64(rand::random_range(0.5..=1.0))
}

/// A download that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{url}: {kind}")]
pub struct SourceError {
    /// The address, without query string and credentials.
    pub url: String,
    /// Why.
    pub kind: SourceErrorKind,
}

/// Why a download failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceErrorKind {
    /// The address is invalid, or not HTTPS.
    #[error("not an address to download from: {0}")]
    Address(String),
    /// The server responded with an error status.
    #[error("the server answered with status {0}")]
    Status(u16),
    /// The redirect is not followed.
    #[error("the server's redirect is not followed: {0}")]
    Redirect(&'static str),
    /// The server's certificate is not trusted.
    #[error("the server is not trusted: {0}; check the certificate authority (--ca-pin) and the clock")]
    Untrusted(String),
    /// The server does not respond.
    #[error("no answer: {0}; check the network and the proxy's address")]
    Unreachable(String),
    /// The transfer was interrupted.
    #[error("the download broke off: {0}")]
    Interrupted(String),
    /// The response violates the protocol.
    #[error("the server's answer cannot be used: {0}")]
    InvalidResponse(String),
    /// An interrupted download cannot be resumed, because the file has changed.
    #[error("the file changed while it was downloaded: it has to begin anew")]
    Changed,
    /// An interrupted download cannot be resumed, because the server does not support ranges.
    #[error("the server cannot go on where a download broke off: it has to begin anew")]
    NoRanges,
    /// The server sends too slowly.
    #[error("only {bytes} bytes came in {} s of waiting, and a download needs {least}: the server or the network is too slow", .waited.as_secs())]
    TooSlow {
        /// What came.
        bytes: u64,
        /// While so long was waited.
        waited: Duration,
        /// What should have come.
        least: u64,
    },
    /// It takes too long in all.
    #[error("it was not complete within {0:?}")]
    TooLong(Duration),
    /// A person's command needs the host.
    #[error("a command of an operator ended the download")]
    Stopped,
    /// The reader no longer wants the rest.
    #[error("the download was given up")]
    GivenUp,
}

impl SourceError {
    /// An error for an address, without the parts of it that may be secret.
    pub fn new(url: &str, kind: SourceErrorKind) -> Self {
        Self { url: redacted(url), kind }
    }

    /// Whether a retry of the same request may succeed.
    pub fn is_transient(&self) -> bool {
        match &self.kind {
            SourceErrorKind::Unreachable(_) | SourceErrorKind::Interrupted(_) => true,
            SourceErrorKind::Status(status) => matches!(status, 408 | 425 | 429 | 500..),
            _ => false,
        }
    }

    /// Whether a download from the first byte may succeed where a resume cannot.
    pub fn needs_restart(&self) -> bool {
        matches!(self.kind, SourceErrorKind::Changed | SourceErrorKind::NoRanges)
    }
}

/// An address without credentials, query and fragment, which may be secret.
pub(crate) fn redacted(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let bare = &url[..end];
    let Some((scheme, rest)) = bare.split_once("://") else { return bare.to_owned() };
    let (authority, path) = rest.split_at(rest.find(['/', '\\']).unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or(authority);
    format!("{scheme}://{host}{path}")
}

/// The text of the innermost error: outer ones may contain the address.
pub(super) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = wrapped(cause) {
        cause = next;
    }
    cause.to_string()
}

/// The error that another wraps. `source()` of an I/O error skips the error that it was made from.
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
