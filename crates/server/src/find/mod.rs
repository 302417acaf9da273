//! The `find` endpoint: the version that a host should run, and whether to update now. It is unauthenticated, and the
//! whole fleet polls it, so a response needs no lock except the limiter's, no task and no access to the store.

mod conditional;
mod document;
mod query;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
};
use axum::http::{Method, Response, StatusCode, request};
use hyper::body::Bytes;
use refit_rollout::Stopped;
use refit_types::{Edition, HostId};

pub(crate) use crate::find::conditional::none_match;
use crate::find::document::Form;
use crate::limiter::{Allowance, Limiter};

/// Ten times the length of a valid query.
const LONGEST_QUERY: usize = 2048;
/// A burst is the allowance of so many seconds, because hosts behind one address poll at the same time.
const BURST_SECONDS: u32 = 20;
/// Some 3 MB when all are taken.
const ADDRESSES: usize = 65_536;

/// The source of answers: from memory, never from the store.
pub(crate) trait Answers: Send + Sync {
    /// The answer for a host that presented this UUID, or for one that presented none that could be read.
    fn answer(&self, host: Option<HostId>) -> Answer;
}

/// One host's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// What it should run: a version in its usual form, which needs no escaping in JSON.
    pub version: Arc<str>,
    /// Whether it should change to it now.
    pub auto_update: bool,
    /// Up to how long it should wait before that.
    pub jitter_seconds: u32,
    /// Which of its attempts this is; 0 is none.
    pub attempt: u64,
    /// Why a new host should not install the version: its rollout is stopped, and no other has ended well.
    pub withheld: Option<Stopped>,
}

/// The endpoint.
pub(crate) struct Find {
    answers: Arc<dyn Answers>,
    form: Form,
    limiter: Option<Limiter>,
}

impl Find {
    /// Serves what `answers` says; `per_second` requests of one address, or as many as come if it is 0.
    pub(crate) fn new(answers: Arc<dyn Answers>, edition: Edition, per_second: u32) -> Self {
        let limiter = (per_second > 0).then(|| {
            Limiter::new(Allowance {
                burst: per_second.saturating_mul(BURST_SECONDS),
                one_every: Duration::from_secs(1) / per_second,
                addresses: ADDRESSES,
            })
        });
        Self { answers, form: Form::new(edition), limiter }
    }

    /// The whole answer to one request.
    pub(crate) fn respond(&self, address: IpAddr, request: &request::Parts) -> Response<Bytes> {
        if let Some(limiter) = &self.limiter
            && let Err(wait) = limiter.take(address, Instant::now())
        {
            let seconds = HeaderValue::from(wait.as_secs() + u64::from(wait.subsec_nanos() > 0));
            return refusal(
                StatusCode::TOO_MANY_REQUESTS,
                "too many requests from this address; try again later\n",
                Some((RETRY_AFTER, seconds)),
            );
        }
        let head = match request.method {
            Method::GET => false,
            Method::HEAD => true,
            _ => {
                let allowed = (ALLOW, HeaderValue::from_static("GET, HEAD"));
                return refusal(StatusCode::METHOD_NOT_ALLOWED, "use GET or HEAD\n", Some(allowed));
            }
        };
        let query = request.uri.query().unwrap_or_default();
        if query.len() > LONGEST_QUERY {
            return refusal(StatusCode::URI_TOO_LONG, "the query is longer than 2 KiB\n", None);
        }
        let answer = self.answers.answer(query::host(query));
        self.show(&answer, head, &request.headers)
    }

    fn show(&self, answer: &Answer, head: bool, asked: &HeaderMap) -> Response<Bytes> {
        let tag = self.form.tag(answer);
        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        if let Ok(tag) = HeaderValue::from_bytes(&tag) {
            headers.insert(ETAG, tag);
        }
        if none_match(asked, &tag) {
            return response(StatusCode::NOT_MODIFIED, headers, Bytes::new());
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut body = self.form.fill(answer);
        if head {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
            body = Bytes::new();
        }
        response(StatusCode::OK, headers, body)
    }
}

fn refusal(
    status: StatusCode,
    why: &'static str,
    with: Option<(HeaderName, HeaderValue)>,
) -> Response<Bytes> {
    let mut headers: HeaderMap = with.into_iter().collect();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response(status, headers, Bytes::from_static(why.as_bytes()))
}

fn response(status: StatusCode, headers: HeaderMap, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use axum::http::header::IF_NONE_MATCH;

    use super::*;

    const KNOWN: &str = "6f1b0b5e-0c5a-4bbd-9d7e-2f1f0f6f3a55";

    /// Has one host update, and no other.
    struct One;

    impl Answers for One {
        fn answer(&self, host: Option<HostId>) -> Answer {
            let known = host.is_some_and(|host| host.to_string() == KNOWN);
            let (jitter_seconds, attempt) = if known { (60, 3) } else { (0, 0) };
            Answer { version: "15.1.1".into(), auto_update: known, jitter_seconds, attempt, withheld: None }
        }
    }

    fn address(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    fn ask(find: &Find, from: u32, query: &str, tag: &str) -> Response<Bytes> {
        let request = Request::get(format!("/webapi/find?{query}")).header(IF_NONE_MATCH, tag).body(());
        find.respond(address(from), &request.unwrap().into_parts().0)
    }

    #[test]
    fn each_host_has_an_answer_of_its_own() {
        let find = Find::new(Arc::new(One), Edition::Enterprise, 0);
        let stranger = ask(&find, 1, "host=00000000-0000-0000-0000-000000000000", "");
        assert_eq!(
            stranger.body(),
            concat!(
                r#"{"server_edition":"enterprise","agent_version":"15.1.1","agent_auto_update":false,"#,
                r#""agent_update_jitter_seconds":0,"edition":"ent","fips":false,"auto_update":{"agent_version":"15.1.1","#,
                r#""agent_auto_update":false,"agent_update_jitter_seconds":0}}"#,
                "\n"
            )
        );
        let known = ask(&find, 1, &format!("host={KNOWN}"), "");
        assert_eq!(
            known.body(),
            concat!(
                r#"{"server_edition":"enterprise","agent_version":"15.1.1","agent_auto_update":true,"#,
                r#""agent_update_jitter_seconds":60,"edition":"ent","fips":false,"auto_update":{"agent_version":"15.1.1","#,
                r#""agent_auto_update":true,"agent_update_jitter_seconds":60},"agent_update_attempt":3}"#,
                "\n"
            )
        );
        let tag_of = |response: &Response<Bytes>| response.headers()[ETAG].to_str().unwrap().to_owned();
        let (old, new) = (tag_of(&stranger), tag_of(&known));
        assert_ne!(old, new);
        assert_eq!(ask(&find, 1, &format!("host={KNOWN}"), &new).status(), StatusCode::NOT_MODIFIED);
        let told = ask(&find, 1, &format!("host={KNOWN}"), &old);
        assert_eq!(
            told.status(),
            StatusCode::OK,
            "what a host had before does not hide that it should update"
        );
        assert_eq!(ask(&find, 1, &format!("update_id={KNOWN}"), &new).status(), StatusCode::NOT_MODIFIED);
    }

    #[test]
    fn two_servers_name_an_answer_alike() {
        let tag = || ask(&Find::new(Arc::new(One), Edition::Oss, 1), 1, "", "").headers()[ETAG].clone();
        assert_eq!(tag(), tag());
    }

    #[test]
    fn addresses_do_not_use_up_each_others_answers() {
        let find = Find::new(Arc::new(One), Edition::Oss, 1);
        for n in 0..3 * ADDRESSES as u32 {
            assert_eq!(ask(&find, n, "", "").status(), StatusCode::OK);
        }
        let statuses: Vec<_> = (0..40).map(|_| ask(&find, u32::MAX, "", "").status()).collect();
        assert_eq!(statuses.iter().filter(|status| **status == StatusCode::OK).count(), 20);
        assert_eq!(statuses[39], StatusCode::TOO_MANY_REQUESTS);
    }
}
