//! Emulates a server of an old release by a filtering proxy in front of a current one: it has its own address and a
//! certificate of the same cluster, and drops everything that the old release does not know, in both directions. It can
//! sign as the cluster, so it calls the current server with the identity of its caller.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::{Stream, stream};
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::Timestamp;
use refit_authority::{Authority, ServerCertificate, server_config};
use refit_backend::SharedBackend;
use refit_identity::{
    CaPin, Identity, Principal, PrivateKey, SERVER_NAME, SigningRequest, client_config, pinned_client_config,
};
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tonic::transport::Channel;
use tower::Service;

use crate::{DESCRIPTORS_0_1, Schema};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

const HOUR: Duration = Duration::from_secs(3600);
/// The gRPC status of an unknown method.
const UNIMPLEMENTED: HeaderValue = HeaderValue::from_static("12");
/// A byte that says whether the message is compressed, and its length.
const PREFIX: usize = 5;

/// A server of 0.1, for as long as this lives.
#[derive(Debug)]
pub struct OldServer {
    address: SocketAddr,
    dropped: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

/// What its connections share.
struct Proxy {
    schema: Schema,
    backend: SharedBackend,
    behind: String,
    dropped: Arc<AtomicUsize>,
}

impl OldServer {
    /// Stands in front of the present server at `behind`, whose store is `backend`.
    ///
    /// # Panics
    ///
    /// If no port can be had.
    pub async fn start(behind: &str, backend: SharedBackend) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let dropped = Arc::new(AtomicUsize::new(0));
        let proxy = Arc::new(Proxy {
            schema: Schema::of(DESCRIPTORS_0_1),
            backend,
            behind: behind.into(),
            dropped: dropped.clone(),
        });
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let proxy = proxy.clone();
                tokio::spawn(async move {
                    // The client retries a failed connection.
                    drop(proxy.serve(stream).await);
                });
            }
        });
        Self { address, dropped, accepting }
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// How many fields it has taken out so far because 0.1 does not know them.
    pub fn dropped(&self) -> usize {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for OldServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Proxy {
    async fn serve(self: Arc<Self>, stream: TcpStream) -> Result<(), BoxError> {
        stream.set_nodelay(true)?;
        let stored = Authority::load(self.backend.as_ref()).await?.ok_or("no authority is stored")?;
        let authority = stored.authority();
        let mut tls = server_config(Arc::new(certificate(authority)?))?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let stream = TlsAcceptor::from(Arc::new(tls)).accept(stream).await?;
        let caller = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
        let channel = self.dial(authority, &caller).await?;
        let service = service_fn(move |request| {
            let (proxy, channel) = (self.clone(), channel.clone());
            async move { proxy.pass(channel, request).await }
        });
        http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await?;
        Ok(())
    }

    /// A connection to the current server with the identity of these certificates.
    async fn dial(
        &self,
        authority: &Authority,
        caller: &[CertificateDer<'static>],
    ) -> Result<Channel, BoxError> {
        let tls = match caller {
            [] => pinned_client_config(CaPin::of(authority.server_certificate()))?,
            _ => client_config(&same_caller(authority, caller)?)?,
        };
        Ok(refit_proto::dial(&self.behind, ServerName::try_from(SERVER_NAME)?, tls).await?)
    }

    async fn pass(
        self: Arc<Self>,
        mut channel: Channel,
        request: Request<Incoming>,
    ) -> Result<Response<tonic::body::Body>, io::Error> {
        let path = request.uri().path().to_owned();
        let Some((input, output)) = self.schema.method(&path) else {
            let mut response = Response::new(tonic::body::Body::empty());
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            response.headers_mut().insert("grpc-status", UNIMPLEMENTED);
            return Ok(response);
        };
        let (input, output) = (input.to_owned(), output.to_owned());
        let (parts, body) = request.into_parts();
        let mut passed = Request::new(self.clone().stripped(body, input));
        *passed.method_mut() = parts.method;
        *passed.uri_mut() = path.parse().map_err(io::Error::other)?;
        *passed.headers_mut() = parts.headers;
        futures::future::poll_fn(|context| channel.poll_ready(context)).await.map_err(io::Error::other)?;
        let (parts, body) = channel.call(passed).await.map_err(io::Error::other)?.into_parts();
        Ok(Response::from_parts(parts, self.stripped(body, output)))
    }

    /// The body with only what 0.1 knows of its messages.
    fn stripped<B>(self: Arc<Self>, body: B, message: String) -> tonic::body::Body
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        tonic::body::Body::new(StreamBody::new(self.frames(body, message)))
    }

    fn frames<B>(
        self: Arc<Self>,
        body: B,
        message: String,
    ) -> impl Stream<Item = Result<Frame<Bytes>, io::Error>> + Send
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        stream::unfold((self, body, BytesMut::new(), message), |(proxy, mut body, mut read, message)| async {
            loop {
                let frame = match body.frame().await? {
                    Ok(frame) => frame,
                    Err(error) => return Some((Err(io::Error::other(error)), (proxy, body, read, message))),
                };
                let frame = match frame.into_data() {
                    Ok(data) => {
                        read.extend_from_slice(&data);
                        match proxy.take_messages(&mut read, &message) {
                            Ok(taken) if taken.is_empty() => continue,
                            Ok(taken) => Ok(Frame::data(taken)),
                            Err(error) => Err(error),
                        }
                    }
                    Err(trailers) => Ok(trailers),
                };
                return Some((frame, (proxy, body, read, message)));
            }
        })
    }

    /// The whole messages at the beginning of what was read, with what 0.1 knows of them.
    fn take_messages(&self, read: &mut BytesMut, message: &str) -> Result<Bytes, io::Error> {
        let mut taken = BytesMut::new();
        while let Some((&[compressed, a, b, c, d], _)) = read.split_first_chunk::<PREFIX>() {
            let length = u32::from_be_bytes([a, b, c, d]) as usize;
            if compressed != 0 {
                return Err(io::Error::other("0.1 does not compress"));
            }
            if read.len() < PREFIX + length {
                break;
            }
            read.advance(PREFIX);
            let whole = read.split_to(length);
            let stripped = self.schema.strip(message, &whole);
            let stripped = stripped.map_err(|_| io::Error::other(format!("no {message}")))?;
            self.dropped.fetch_add(stripped.1, Ordering::Relaxed);
            taken.put_u8(0);
            taken.put_u32(u32::try_from(stripped.0.len()).map_err(io::Error::other)?);
            taken.put_slice(&stripped.0);
        }
        Ok(taken.freeze())
    }
}

/// What a server of the cluster shows now.
fn certificate(authority: &Authority) -> Result<ServerCertificate, BoxError> {
    let key = PrivateKey::generate()?;
    let request = SigningRequest::from_pem(&key.signing_request()?)?;
    let signed = authority.issue_server(&request, &"old".parse()?, &[], HOUR, Timestamp::now())?;
    Ok(ServerCertificate::new(&key, &signed, authority)?)
}

/// Another identity of the same principal, if the cluster trusts what it showed.
fn same_caller(authority: &Authority, chain: &[CertificateDer<'static>]) -> Result<Identity, BoxError> {
    let now = Timestamp::now();
    let principal = authority.trust()?.verify_client(chain, now)?;
    let key = PrivateKey::generate()?;
    let request = SigningRequest::from_pem(&key.signing_request()?)?;
    let signed = match &principal {
        Principal::Host { id, role, .. } => authority.issue_host(&request, *id, *role, HOUR, now)?.tls,
        Principal::User { name, roles, .. } => authority.issue_user(&request, name, roles, HOUR, now)?,
        other => return Err(format!("{other:?} does not call servers").into()),
    };
    Ok(Identity::new("passed on", key, signed, authority.certificates().cloned())?)
}
