//! Transfers over HTTPS: redirects, ranges, timeouts, and which errors are worth a retry.

use std::error::Error;
use std::fmt;
use std::io::{self, Read};
use std::time::Duration;

use reqwest::blocking::{Client, Response};
use reqwest::header::{ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, IF_RANGE, RANGE};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{StatusCode, Url};

use super::source::{innermost, pause_after, wrapped};
use super::{Source, SourceError, SourceErrorKind, Transfer};

const MAX_REDIRECTS: usize = 5;
const MAX_HEADERS: usize = 64;
const MAX_ETAG: usize = 256;

/// The timeouts of a download.
#[derive(Debug, Clone)]
pub struct HttpsOptions {
    /// For making a connection.
    pub connect: Duration,
    /// For the next byte.
    pub silence: Duration,
    /// The first pause after a failure; later ones are longer.
    pub pause: Duration,
    /// For tests: allows HTTP to loopback, and ignores proxies.
    pub http_on_loopback: bool,
}

impl Default for HttpsOptions {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            silence: Duration::from_secs(30),
            pause: Duration::from_secs(1),
            http_on_loopback: false,
        }
    }
}

/// Files over HTTPS, and over nothing else.
#[derive(Debug)]
pub struct HttpsSource {
    client: Client,
    options: HttpsOptions,
}

impl HttpsSource {
    /// A client with that TLS configuration. Must not be made, used or dropped inside an async runtime.
    pub fn new(mut tls: rustls::ClientConfig, options: HttpsOptions) -> Result<Self, SourceError> {
        // There is one stream at a time, so HTTP/2 would only add its flow control.
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let loopback = options.http_on_loopback;
        let mut builder = Client::builder()
            .tls_backend_preconfigured(tls)
            .http1_only()
            .http1_max_headers(MAX_HEADERS)
            .connect_timeout(options.connect)
            .timeout(options.silence)
            .redirect(Policy::custom(move |attempt| follow(attempt, loopback)))
            .retry(reqwest::retry::never())
            .referer(false)
            .user_agent(concat!("refit-update/", env!("CARGO_PKG_VERSION")));
        if loopback {
            builder = builder.no_proxy();
        }
        let client = builder
            .build()
            .map_err(|error| SourceError::new("https", SourceErrorKind::Address(innermost(&error))))?;
        Ok(Self { client, options })
    }

    fn get(&self, url: &str, from: u64, etag: Option<&str>) -> Result<Transfer, SourceError> {
        let failed = |kind| SourceError::new(url, kind);
        let parsed = Url::parse(url).map_err(|error| failed(SourceErrorKind::Address(error.to_string())))?;
        if !is_allowed(&parsed, self.options.http_on_loopback) {
            return Err(failed(SourceErrorKind::Address("only https:// is".into())));
        }
        let mut request = self.client.get(parsed).header(ACCEPT_ENCODING, "identity");
        if from > 0 {
            request = request.header(RANGE, format!("bytes={from}-"));
            if let Some(etag) = etag.filter(|etag| !etag.starts_with("W/")) {
                request = request.header(IF_RANGE, etag);
            }
        }
        let response = request.send().map_err(|error| failed(self.classify(&error)))?;
        self.transfer(response, from).map_err(failed)
    }

    fn transfer(&self, response: Response, from: u64) -> Result<Transfer, SourceErrorKind> {
        let headers = response.headers();
        let etag = text(headers, ETAG.as_str()).filter(|etag| etag.len() <= MAX_ETAG).map(String::from);
        let length = text(headers, CONTENT_LENGTH.as_str()).and_then(|length| length.parse().ok());
        let (starts_at, total) = match response.status() {
            StatusCode::OK => (0, length),
            StatusCode::PARTIAL_CONTENT if from > 0 => {
                let range = text(headers, CONTENT_RANGE.as_str()).unwrap_or_default();
                content_range(range)
                    .ok_or_else(|| SourceErrorKind::InvalidResponse("an invalid Content-Range".into()))?
            }
            // The file is shorter now.
            StatusCode::RANGE_NOT_SATISFIABLE if from > 0 => return Err(SourceErrorKind::Changed),
            other if other.is_redirection() => {
                return Err(SourceErrorKind::Redirect("it leads to no address"));
            }
            other => return Err(SourceErrorKind::Status(other.as_u16())),
        };
        let body = Body { response, silence: self.options.silence };
        Ok(Transfer { body: Box::new(body), total, etag, starts_at })
    }

    fn classify(&self, error: &reqwest::Error) -> SourceErrorKind {
        let mut cause: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(error) = cause {
            if let Some(refused) = error.downcast_ref::<RefusedRedirect>() {
                return SourceErrorKind::Redirect(refused.0);
            }
            if let Some(tls @ rustls::Error::InvalidCertificate(_)) = error.downcast_ref() {
                return SourceErrorKind::Untrusted(tls.to_string());
            }
            cause = wrapped(error);
        }
        match error {
            error if error.is_connect() && error.is_timeout() => {
                SourceErrorKind::Unreachable(format!("no connection within {:?}", self.options.connect))
            }
            error if error.is_timeout() => {
                SourceErrorKind::Unreachable(format!("nothing came for {:?}", self.options.silence))
            }
            error => SourceErrorKind::Unreachable(innermost(error)),
        }
    }
}

impl Source for HttpsSource {
    fn open(&self, url: &str, from: u64) -> Result<Transfer, SourceError> {
        self.get(url, from, None)
    }

    fn resume(&self, url: &str, from: u64, etag: &str) -> Result<Transfer, SourceError> {
        self.get(url, from, Some(etag))
    }

    fn pause(&self, failures: u32) {
        std::thread::sleep(pause_after(self.options.pause, failures));
    }
}

struct Body {
    response: Response,
    silence: Duration,
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.response.read(buffer).map_err(|error| {
            let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<reqwest::Error>());
            if inner.is_some_and(reqwest::Error::is_timeout) {
                return io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("nothing came for {:?}", self.silence),
                );
            }
            io::Error::new(error.kind(), innermost(&error))
        })
    }
}

#[derive(Debug)]
struct RefusedRedirect(&'static str);

impl fmt::Display for RefusedRedirect {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}

impl Error for RefusedRedirect {}

fn follow(attempt: Attempt<'_>, loopback: bool) -> reqwest::redirect::Action {
    if attempt.previous().len() > MAX_REDIRECTS {
        return attempt.error(RefusedRedirect("there were more than 5 in a row"));
    }
    if !is_allowed(attempt.url(), loopback) {
        return attempt.error(RefusedRedirect("it does not lead to https://"));
    }
    attempt.follow()
}

fn is_allowed(url: &Url, loopback: bool) -> bool {
    url.scheme() == "https"
        || loopback
            && url.scheme() == "http"
            && matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"))
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// `bytes 5-9/10`: the first byte, and the length of the whole file if it is given.
fn content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let total = if total == "*" { None } else { Some(total.parse::<u64>().ok()?) };
    let whole = first <= last && total.is_none_or(|total| last < total);
    whole.then_some((first, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_or_refused() {
        assert_eq!(content_range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(content_range("bytes 5-9/*"), Some((5, None)));
        for bad in ["", "bytes", "bytes 5-9", "bytes 9-5/10", "bytes 5-10/10", "bytes -5/10", "items 5-9/10"]
        {
            assert_eq!(content_range(bad), None, "{bad}");
        }
    }
}
