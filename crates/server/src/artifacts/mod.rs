//! Serves the archives that updaters download: regular files of one directory, without listings.

mod body;
mod files;
mod published;
mod range;

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{
    ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, RANGE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822::{DateTimeParser, DateTimePrinter};
use tokio::sync::Semaphore;

pub(crate) use crate::artifacts::published::{Missing, Published, PublishedError, PublishedVersions};
use crate::artifacts::range::{Asked, Span};
use crate::find::none_match;
use crate::metrics::Metrics;

/// Below this everything is a path in the directory.
pub(crate) const PREFIX: &str = "/v1/artifacts/";

/// Each takes a file besides its connection, of which a process has commonly 20,000.
const MOST_DOWNLOADS: usize = 1000;
/// A client that reads nothing for so long loses its slot.
const TAKES_WITHIN: Duration = Duration::from_secs(60);
/// `Retry-After` in seconds when all slots are taken.
const COME_BACK_AFTER: &str = "15";

/// Serves the files of a directory to anyone.
#[derive(Debug)]
pub(crate) struct Artifacts {
    directory: PathBuf,
    metrics: Arc<Metrics>,
    room: Arc<Semaphore>,
    takes_within: Duration,
}

impl Artifacts {
    pub(crate) fn new(directory: PathBuf, metrics: Arc<Metrics>) -> Self {
        let room = Arc::new(Semaphore::new(MOST_DOWNLOADS));
        Self { directory, metrics, room, takes_within: TAKES_WITHIN }
    }

    /// Answers a request for a path below [`PREFIX`].
    pub(crate) async fn respond(&self, request: &Parts) -> Response<Body> {
        let mut response = self.answer(request).await;
        let headers = response.headers_mut();
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        self.metrics.artifact(response.status());
        response
    }

    async fn answer(&self, request: &Parts) -> Response<Body> {
        let is_head = request.method == Method::HEAD;
        if !is_head && request.method != Method::GET {
            let allowed = (ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refusal(
                StatusCode::METHOD_NOT_ALLOWED,
                "only GET and HEAD are answered here\n",
                [allowed],
            );
        }
        let not_found = || refusal(StatusCode::NOT_FOUND, "not found\n", []);
        let path = request.uri.path().strip_prefix(PREFIX).and_then(files::path);
        let Some(path) = path else { return not_found() };
        let kind = content_type(path.as_os_str().as_encoded_bytes());
        let directory = self.directory.clone();
        let opened = tokio::task::spawn_blocking(move || files::open(&directory, &path)).await;
        let (file, metadata) = match opened.map_err(io::Error::other).flatten() {
            Ok(Some(opened)) => opened,
            Ok(None) => return not_found(),
            Err(error) => {
                tracing::warn!(%error, path = request.uri.path(), "could not read an archive");
                let why = "the file cannot be read; the server's log says why\n";
                return refusal(StatusCode::INTERNAL_SERVER_ERROR, why, []);
            }
        };

        let asked = &request.headers;
        let state = State::of(&metadata);
        let mut headers = state.headers();
        if state.is_known_to(asked) {
            return answer(StatusCode::NOT_MODIFIED, headers, Body::empty());
        }
        let size = metadata.len();
        // A range is asked of what GET gives; HEAD tells of the whole.
        let asked = if is_head { Asked::Whole } else { state.range_of(asked, size) };
        let (status, span) = match asked {
            Asked::Whole => (StatusCode::OK, Span::whole(size)),
            Asked::Part(span) => (StatusCode::PARTIAL_CONTENT, span),
            Asked::Beyond => {
                let range = (CONTENT_RANGE, text(format!("bytes */{size}")));
                return refusal(StatusCode::RANGE_NOT_SATISFIABLE, "the file ends before that\n", [range]);
            }
        };
        if status == StatusCode::PARTIAL_CONTENT {
            headers.insert(CONTENT_RANGE, text(format!("bytes {}-{}/{size}", span.start, span.end - 1)));
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(span.len()));
        if is_head || span.len() == 0 {
            return answer(status, headers, Body::empty());
        }
        let Ok(permit) = self.room.clone().try_acquire_owned() else {
            let later = (RETRY_AFTER, HeaderValue::from_static(COME_BACK_AFTER));
            let why = "too many downloads are under way; try again later\n";
            return refusal(StatusCode::SERVICE_UNAVAILABLE, why, [later]);
        };
        answer(status, headers, body::stream(file, &metadata, span, self.takes_within, permit))
    }
}

/// Which content a file has, as far as can be told without reading it.
struct State {
    tag: String,
    modified: Option<Timestamp>,
}

impl State {
    fn of(metadata: &Metadata) -> Self {
        let nanoseconds = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
        Self {
            tag: format!("\"{:x}-{nanoseconds:x}-{:x}\"", metadata.len(), metadata.ino()),
            modified: Timestamp::from_second(metadata.mtime()).ok(),
        }
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(ETAG, text(self.tag.clone()));
        let modified =
            self.modified.and_then(|at| DateTimePrinter::new().timestamp_to_rfc9110_string(&at).ok());
        if let Some(modified) = modified {
            headers.insert(LAST_MODIFIED, text(modified));
        }
        headers
    }

    fn is_known_to(&self, asked: &HeaderMap) -> bool {
        if asked.contains_key(IF_NONE_MATCH) {
            return none_match(asked, self.tag.as_bytes());
        }
        let since = asked.get(IF_MODIFIED_SINCE).and_then(|since| {
            let since = DateTimeParser::new().parse_timestamp(since.to_str().ok()?).ok()?;
            Some(self.modified? <= since)
        });
        since.unwrap_or(false)
    }

    /// A part is given only of the content that the client has the rest of. A date does not tell that: two
    /// contents may have the same second.
    fn range_of(&self, asked: &HeaderMap, size: u64) -> Asked {
        let same = asked.get(IF_RANGE).is_none_or(|tag| tag.as_bytes() == self.tag.as_bytes());
        let mut ranges = asked.get_all(RANGE).iter();
        match (ranges.next(), ranges.next()) {
            (Some(range), None) if same => {
                range.to_str().map_or(Asked::Whole, |range| range::asked(range, size))
            }
            _ => Asked::Whole,
        }
    }
}

fn content_type(name: &[u8]) -> &'static str {
    let ends_with = |end: &str| name.to_ascii_lowercase().ends_with(end.as_bytes());
    if ends_with(".tar.gz") || ends_with(".tgz") {
        "application/gzip"
    } else if ends_with(".sha256") {
        "text/plain; charset=utf-8"
    } else {
        "application/octet-stream"
    }
}

/// Text that this module made, of which nothing is out of place in a header.
fn text(text: String) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

fn refusal<const N: usize>(
    status: StatusCode,
    why: &'static str,
    with: [(HeaderName, HeaderValue); N],
) -> Response<Body> {
    let mut headers: HeaderMap = with.into_iter().collect();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer(status, headers, Body::from(why))
}

fn answer(status: StatusCode, headers: HeaderMap, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

#[cfg(test)]
mod tests;
