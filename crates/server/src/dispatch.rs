//! Everything that the TLS port serves: gRPC by the table of methods (`access`), and HTTP by the table of routes
//! (`http_routes`). The listener calls it for every request.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, Response, StatusCode, header};
use futures::FutureExt;
use futures::future::{BoxFuture, Either};
use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};
use jiff::Timestamp;
use refit_resources::Stores;
use tonic::Code;
use tower::ServiceExt;

use crate::access::{Caller, ROWS};
use crate::artifacts::Artifacts;
use crate::authorities::Authorities;
use crate::connection::Peer;
use crate::find::Find;
use crate::http_routes::{Endpoint, Route, route_of};
use crate::metrics::Metrics;
use crate::public_http;
use crate::web::Web;

/// Finds who answers a request, and whether the caller may ask.
pub(crate) struct Dispatch {
    pub(crate) find: Find,
    pub(crate) grpc: Router,
    pub(crate) stores: Stores,
    pub(crate) artifacts: Artifacts,
    pub(crate) web: Arc<Web>,
    pub(crate) authorities: Arc<Authorities>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) now: fn() -> Timestamp,
}

type Answered = Result<Response<Outgoing>, Infallible>;

impl Dispatch {
    /// Answers `find` on the spot, which is what nearly all requests ask for, and anything else in time.
    pub(crate) fn answer(
        self: &Arc<Self>,
        peer: &Arc<Peer>,
        request: Request<Incoming>,
    ) -> Either<Ready<Answered>, BoxFuture<'static, Answered>> {
        if route_of(request.uri().path()).is_some_and(|(route, _)| route.endpoint == Endpoint::Find) {
            let response = self.answer_find(peer, request);
            return Either::Left(ready(Ok(response.map(|bytes| Outgoing::Whole(Some(bytes))))));
        }
        let (dispatch, peer) = (self.clone(), peer.clone());
        let later = async move {
            let response = dispatch.answer_later(&peer, request.map(Body::new)).await;
            Ok(response.map(Outgoing::Streamed))
        };
        Either::Right(later.boxed())
    }

    fn answer_find<T>(&self, peer: &Peer, request: Request<T>) -> Response<Bytes> {
        let response = self.find.respond(peer.address.ip(), &request.into_parts().0);
        self.metrics.find(response.status());
        response
    }

    async fn answer_later(&self, peer: &Arc<Peer>, request: Request<Body>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        if !is_grpc(&request) {
            let Some((route, captured)) = route_of(&path) else { return public_http::not_found() };
            let mut response = self.answer_http(peer, route, captured, request).await;
            if response.status() == StatusCode::METHOD_NOT_ALLOWED
                && let Ok(allow) = HeaderValue::try_from(route.allow())
            {
                response.headers_mut().insert(header::ALLOW, allow);
            }
            return response;
        }
        let response = self.answer_grpc(peer, &path, request).await;
        let known = ROWS.iter().find(|row| row.method == path);
        self.metrics.request(known.map_or("unknown", |row| row.method), code(&response));
        response
    }

    async fn answer_http(
        &self,
        peer: &Arc<Peer>,
        route: &Route,
        captured: &str,
        request: Request<Body>,
    ) -> Response<Body> {
        let principal = || peer.principal(&self.authorities.current().trust, (self.now)());
        if let Err((status, why)) = route.who.check(principal) {
            return public_http::text(status, format!("{why}\n"));
        }
        let method = request.method().clone();
        let response = match route.endpoint {
            // These three refuse other methods themselves, and limit or count that.
            Endpoint::Find => return self.answer_find(peer, request).map(Body::from),
            Endpoint::Artifacts => return self.artifacts.respond(&request.into_parts().0).await,
            Endpoint::Dashboard => return self.web.answer(peer, request).await,
            _ if !route.methods.contains(&method.as_str()) => {
                let why = format!("this path answers {} only\n", route.allow());
                return public_http::text(StatusCode::METHOD_NOT_ALLOWED, why);
            }
            Endpoint::Health => public_http::text(StatusCode::OK, "ok\n"),
            Endpoint::ChannelVersion => {
                public_http::channel(&self.stores, captured, public_http::VERSION).await
            }
            Endpoint::ChannelCritical => {
                public_http::channel(&self.stores, captured, public_http::CRITICAL).await
            }
        };
        match method {
            Method::HEAD => public_http::without_body(response),
            _ => response,
        }
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

/// What is sent back: something short that is all there, or something longer as it comes.
pub(crate) enum Outgoing {
    Whole(Option<Bytes>),
    Streamed(Body),
}

impl HttpBody for Outgoing {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match &mut *self {
            Self::Whole(bytes) => {
                let bytes = bytes.take().filter(|bytes| !bytes.is_empty());
                Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
            Self::Streamed(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Self::Streamed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Streamed(body) => body.size_hint(),
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
