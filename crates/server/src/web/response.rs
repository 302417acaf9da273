//! Dashboard responses: rendered pages, refusals, redirects and the security headers of all of them.

use std::time::Duration;

use askama::Template;
use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use tonic::{Code, Status};

use super::Web;
use super::format::Moment;
use super::request::PageRequest;

/// No external and no inline content: a hostile host name can never become a script.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The frame of every page.
pub(super) struct Frame {
    pub(super) title: String,
    pub(super) cluster: String,
    /// Which one of the pages, for the navigation.
    pub(super) page: &'static str,
    pub(super) who: Option<Who>,
    /// Whether only the main part was requested.
    pub(super) fragment: bool,
    /// The version of stylesheet and script.
    pub(super) assets: &'static str,
}

/// The user of a page.
pub(super) struct Who {
    pub(super) name: String,
    pub(super) roles: String,
    /// The token that each of their forms carries.
    pub(super) token: String,
    pub(super) until: Moment,
}

/// Why a request was refused.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Nobody is signed in.
    SignIn,
    /// An invalid code, a form of another session, or an action that is not allowed.
    Forbidden(String),
    NotFound(String),
    Bad(String),
    /// The request cannot be served now.
    Conflict(String),
    TooMany(Duration),
    Method,
    Unavailable(String),
}

#[derive(Template)]
#[template(path = "refused.html")]
struct Refused {
    frame: Frame,
    heading: &'static str,
    message: String,
    sign_in: bool,
}

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::SignIn => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Bad(_) => StatusCode::BAD_REQUEST,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn heading(&self) -> &'static str {
        match self {
            Self::SignIn => "Sign in",
            Self::Forbidden(_) => "Not allowed",
            Self::NotFound(_) => "Not found",
            Self::Bad(_) | Self::Method => "Not understood",
            Self::Conflict(_) => "Not done",
            Self::TooMany(_) => "Too many attempts",
            Self::Unavailable(_) => "Not available now",
        }
    }

    fn message(&self) -> String {
        match self {
            Self::SignIn => String::new(),
            Self::TooMany(wait) => format!("Try again in {} seconds.", wait.as_secs() + 1),
            Self::Method => "This page is read, or its forms are sent; nothing else.".into(),
            Self::Forbidden(text)
            | Self::NotFound(text)
            | Self::Bad(text)
            | Self::Conflict(text)
            | Self::Unavailable(text) => text.clone(),
        }
    }

    /// The error page.
    pub(super) fn page(self, web: &Web, request: &PageRequest) -> Response<Body> {
        let frame = request.frame(web, "refused", self.heading());
        let sign_in = matches!(self, Self::SignIn);
        let refused = Refused { frame, heading: self.heading(), message: self.message(), sign_in };
        let mut response = rendered(&refused).unwrap_or_else(|refusal| refusal.bare());
        *response.status_mut() = self.status();
        if let Self::TooMany(wait) = self {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
        }
        response
    }

    /// The same as plain text, for requests without a parsed session.
    pub(super) fn bare(self) -> Response<Body> {
        let mut response = Response::new(Body::from(format!("{}: {}\n", self.heading(), self.message())));
        *response.status_mut() = self.status();
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        response
    }
}

impl From<refit_backend::Error> for Refusal {
    fn from(error: refit_backend::Error) -> Self {
        tracing::warn!(%error, "the dashboard could not reach the store");
        Self::Unavailable("The store does not answer; try again in a moment.".into())
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        let message = sentence(status.message());
        match status.code() {
            Code::PermissionDenied | Code::Unauthenticated => Self::Forbidden(message),
            Code::NotFound | Code::Unimplemented => Self::NotFound(message),
            Code::InvalidArgument | Code::OutOfRange => Self::Bad(message),
            Code::FailedPrecondition | Code::Aborted | Code::AlreadyExists => Self::Conflict(message),
            _ => Self::Unavailable(message),
        }
    }
}

/// An error message as a sentence.
pub(super) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    let end = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{first}{}{end}", letters.as_str())
}

/// Renders a page.
pub(super) fn rendered(page: &impl Template) -> Result<Response<Body>, Refusal> {
    let html = page.render().map_err(|error| {
        tracing::error!(%error, "could not render a page of the dashboard");
        Refusal::Unavailable("This page could not be made.".into())
    })?;
    let mut response = Response::new(Body::from(html));
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, html);
    Ok(response)
}

/// Redirects to another page with GET.
pub(super) fn redirect(to: &str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let to = HeaderValue::try_from(to).unwrap_or(HeaderValue::from_static("/web/"));
    response.headers_mut().insert(header::LOCATION, to);
    response
}

/// Adds the security headers of all responses: no referrer leaves the cluster, and no page is cached.
pub(super) fn with_headers(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
