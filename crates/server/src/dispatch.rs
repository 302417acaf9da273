use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, header};
use futures::FutureExt;
use futures::future::{BoxFuture, Either};
use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};
use jiff::Timestamp;
use tonic::Code;
use tower::ServiceExt;

use crate::access::{Caller, ROWS};
use crate::authorities::Authorities;
use crate::connection::Peer;
use crate::find::Find;
use crate::metrics::Metrics;
use crate::web::Web;

/// Everything that the TLS port serves. gRPC goes past the table of who may do what, and so does the dashboard
/// for whom is signed in; the rest is public.
pub(crate) struct Dispatch {
    pub(crate) find: Find,
    pub(crate) grpc: Router,
    pub(crate) public: Router,
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
        if Find::serves(request.uri()) {
            let (request, _) = request.into_parts();
            let response = self.find.respond(peer.address.ip(), &request);
            self.metrics.find(response.status());
            return Either::Left(ready(Ok(response.map(|bytes| Outgoing::Whole(Some(bytes))))));
        }
        let (dispatch, peer) = (self.clone(), peer.clone());
        let later = async move {
            let response = dispatch.answer_later(&peer, request.map(Body::new)).await;
            Ok(response.map(Outgoing::Streamed))
        };
        Either::Right(later.boxed())
    }

    async fn answer_later(&self, peer: &Arc<Peer>, request: Request<Body>) -> Response<Body> {
        if !is_grpc(&request) {
            if Web::serves(request.uri().path()) {
                return self.web.answer(peer, request).await;
            }
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
