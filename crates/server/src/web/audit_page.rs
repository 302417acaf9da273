//! The audit page: events by filter, the newest first.

use askama::Template;
use axum::body::Body;
use axum::http::Response;
use jiff::{Span, SpanRelativeTo, Timestamp};

use super::Web;
use super::history::Filter;
use super::request::{Fields, PageRequest};
use super::response::{Frame, Refusal, rendered};
use super::rollout_page::Past;

const PAGE: usize = 50;
const FILTERS: [&str; 4] = ["kind", "subject", "actor", "since"];

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    frame: Frame,
    kinds: Vec<(String, bool)>,
    subject: String,
    actor: String,
    since: String,
    error: String,
    is_filtered: bool,
    events: Vec<Past>,
    next: Option<String>,
    first: Option<String>,
}

impl Web {
    pub(super) fn audit_page(&self, request: &PageRequest) -> Result<Response<Body>, Refusal> {
        request.caller("/refit.events.v1.EventService/ListEvents", None)?;
        let query = &request.query;
        let since = since(query, (self.now)());
        let error = since.as_ref().err().cloned().unwrap_or_default();
        let (events, more) = match since {
            Ok(since) => {
                let filter = Filter {
                    kind: query.get("kind").into(),
                    subject: query.get("subject").to_lowercase(),
                    actor: query.get("actor").to_lowercase(),
                    since,
                };
                self.history.page(&filter, query.some("before"), PAGE)
            }
            Err(_) => (Vec::new(), false),
        };
        let here = |before: &str| {
            let mut address = form_urlencoded::Serializer::new(String::new());
            let kept = FILTERS.map(|name| (name, query.get(name)));
            for (name, value) in kept.into_iter().chain([("before", before)]) {
                if !value.is_empty() {
                    address.append_pair(name, value);
                }
            }
            format!("/web/audit?{}", address.finish())
        };
        let kinds = self.history.kinds().into_iter();
        rendered(&AuditPage {
            frame: request.frame(self, "audit", "Audit"),
            kinds: kinds.map(|kind| (kind.clone(), kind == query.get("kind"))).collect(),
            subject: query.get("subject").into(),
            actor: query.get("actor").into(),
            since: query.get("since").into(),
            error,
            is_filtered: FILTERS.iter().any(|name| !query.get(name).is_empty()),
            next: events.last().filter(|_| more).map(|last| here(&last.id)),
            first: query.some("before").map(|_| here("")),
            events: events.iter().map(|event| Past::of(event)).collect(),
        })
    }
}

/// The start of the range: a time ago, like `1h` or `7d`, or a timestamp.
fn since(query: &Fields, now: Timestamp) -> Result<Option<Timestamp>, String> {
    let Some(text) = query.some("since") else { return Ok(None) };
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(Some(at));
    }
    let ago = text.parse::<Span>().and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()));
    let at = ago.and_then(|ago| now.checked_sub(ago));
    at.map(Some).map_err(|_| {
        let text: String = text.chars().take(80).collect();
        format!("{text:?} is not a time; expected something like 1h, 7d or 2026-01-02T03:04:05Z")
    })
}
