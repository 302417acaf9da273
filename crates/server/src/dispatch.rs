use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, header};
use jiff::Timestamp;
use tonic::Code;
use tower::ServiceExt;

use crate::access::{Caller, ROWS};
use crate::authorities::Authorities;
use crate::connection::Peer;
use crate::metrics::Metrics;

/// Everything that the TLS port serves. gRPC goes past the table of who may do what; the rest is public.
pub(crate) struct Dispatch {
    pub(crate) grpc: Router,
    pub(crate) public: Router,
    pub(crate) authorities: Arc<Authorities>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) now: fn() -> Timestamp,
}

impl Dispatch {
    pub(crate) async fn answer(&self, peer: &Arc<Peer>, request: Request<Body>) -> Response<Body> {
        if !is_grpc(&request) {
            return infallible(self.public.clone().oneshot(request).await);
        }
        let path = request.uri().path().to_owned();
        let response = self.answer_grpc(peer, &path, request).await;
        let known = ROWS.iter().find(|row| row.method == path);
        self.metrics.request(known.map_or("unknown", |row| row.method), code(&response));
        response
    }

    async fn answer_grpc(&self, peer: &Arc<Peer>, path: &str, mut request: Request<Body>) -> Response<Body> {
        let principal = || peer.principal(&self.authorities.current().trust, (self.now)());
        match Caller::authorize(path, peer, principal) {
            Ok(caller) => {
                request.extensions_mut().insert(caller);
                infallible(self.grpc.clone().oneshot(request).await)
            }
            Err(status) => status.into_http(),
        }
    }
}

fn is_grpc(request: &Request<Body>) -> bool {
    let kind = request.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// An error stands in the headers; a call that went well says so only at its end.
fn code(response: &Response<Body>) -> i32 {
    let status = response.headers().get("grpc-status");
    status.map_or(Code::Ok, |status| Code::from_bytes(status.as_bytes())) as i32
}

fn infallible<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
        Err(never) => match never {},
    }
}
