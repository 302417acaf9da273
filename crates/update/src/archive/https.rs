//! Transfers over HTTPS: redirects, ranges, timeouts, and which errors are worth a retry.

use std::error::Error;
use std::fmt;
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use reqwest::blocking::{Client, Request, Response};
use reqwest::header::{ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, IF_RANGE, RANGE};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{StatusCode, Url};

use super::patience::LOOK_EVERY;
use super::source::{innermost, pause_after, wrapped};
use super::{Patience, Source, SourceError, SourceErrorKind, Transfer};

const MAX_REDIRECTS: usize = 5;
const MAX_HEADERS: usize = 64;
const MAX_ETAG: usize = 256;
const CHUNK: usize = 32 * 1024;
/// Chunks that may wait for the reader of a body: the bound of the memory.
const WAITING: usize = 4;

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

    fn get(
        &self,
        url: &str,
        from: u64,
        etag: Option<&str>,
        patience: &Patience,
    ) -> Result<Transfer, SourceError> {
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
        let request = request.build().map_err(|error| failed(self.classify(&error)))?;
        let (sender, parts) = sync_channel(WAITING);
        let client = self.client.clone();
        thread::Builder::new()
            .name("transfer".into())
            .spawn(move || transfer(&client, request, &sender))
            .map_err(|error| failed(SourceErrorKind::Unreachable(error.to_string())))?;
        self.receive(parts, from, patience).map_err(failed)
    }

    fn receive(
        &self,
        parts: Receiver<Part>,
        from: u64,
        patience: &Patience,
    ) -> Result<Transfer, SourceErrorKind> {
        let (status, headers) = loop {
            match parts.recv_timeout(LOOK_EVERY) {
                Ok(Part::Head(status, headers)) => break (status, headers),
                Ok(Part::Unanswered(error)) => return Err(self.classify(&error)),
                Err(RecvTimeoutError::Timeout) => patience.check()?,
                Ok(_) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(SourceErrorKind::Unreachable("the transfer ended unexpectedly".into()));
                }
            }
        };
        let headers = &headers;
        let etag = text(headers, ETAG.as_str()).filter(|etag| etag.len() <= MAX_ETAG).map(String::from);
        let length = text(headers, CONTENT_LENGTH.as_str()).and_then(|length| length.parse().ok());
        let (starts_at, total) = match status {
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
        let body = Body {
            parts,
            chunk: Vec::new(),
            at: 0,
            ended: false,
            silence: self.options.silence,
            patience: patience.clone(),
        };
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
    fn open(&self, url: &str, from: u64, patience: &Patience) -> Result<Transfer, SourceError> {
        self.get(url, from, None, patience)
    }

    fn resume(&self, url: &str, from: u64, etag: &str, patience: &Patience) -> Result<Transfer, SourceError> {
        self.get(url, from, Some(etag), patience)
    }

    fn pause(&self, failures: u32, patience: &Patience) -> Result<(), SourceErrorKind> {
        patience.sleep(pause_after(self.options.pause, failures))
    }
}

/// What a transfer's own thread has to tell.
enum Part {
    /// The server answers.
    Head(StatusCode, HeaderMap),
    /// It does not.
    Unanswered(reqwest::Error),
    /// Some of the body.
    Bytes(Vec<u8>),
    /// All of the body has come.
    End,
    /// The body broke off.
    Broken(io::Error),
}

/// Carries a request out in a thread of its own: whoever waits for it can give up at any moment, and is not bound to the
/// time-outs of the network. The thread ends with the transfer, or soon after nobody reads it.
fn transfer(client: &Client, request: Request, parts: &SyncSender<Part>) {
    let mut response = match client.execute(request) {
        Ok(response) => response,
        Err(error) => return drop(parts.send(Part::Unanswered(error))),
    };
    let mut part = Part::Head(response.status(), response.headers().clone());
    while parts.send(part).is_ok() {
        part = next_part(&mut response);
        if let Part::End | Part::Broken(_) = part {
            return drop(parts.send(part));
        }
    }
}

fn next_part(response: &mut Response) -> Part {
    let mut chunk = vec![0; CHUNK];
    match response.read(&mut chunk) {
        Ok(0) => Part::End,
        Ok(bytes) => {
            chunk.truncate(bytes);
            Part::Bytes(chunk)
        }
        Err(error) => Part::Broken(error),
    }
}

/// The body of a transfer, as its reader sees it.
struct Body {
    parts: Receiver<Part>,
    chunk: Vec<u8>,
    at: usize,
    ended: bool,
    silence: Duration,
    patience: Patience,
}

impl Body {
    fn broken(&self, error: &io::Error) -> io::Error {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<reqwest::Error>());
        if inner.is_some_and(reqwest::Error::is_timeout) {
            return io::Error::new(io::ErrorKind::TimedOut, format!("nothing came for {:?}", self.silence));
        }
        io::Error::new(error.kind(), innermost(error))
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.patience.check().map_err(io::Error::other)?;
        while self.at == self.chunk.len() && !self.ended {
            match self.parts.recv_timeout(LOOK_EVERY) {
                Ok(Part::Bytes(chunk)) => (self.chunk, self.at) = (chunk, 0),
                Ok(Part::Broken(error)) => return Err(self.broken(&error)),
                Err(RecvTimeoutError::Timeout) => self.patience.check().map_err(io::Error::other)?,
                Ok(Part::End) => self.ended = true,
                Ok(Part::Head(..) | Part::Unanswered(_)) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("the transfer ended unexpectedly"));
                }
            }
        }
        let bytes = buffer.len().min(self.chunk.len() - self.at);
        buffer[..bytes].copy_from_slice(&self.chunk[self.at..self.at + bytes]);
        self.at += bytes;
        Ok(bytes)
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
