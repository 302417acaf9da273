//! The TLS listener: accepts connections, bounds them, serves HTTP/1.1 and HTTP/2, and drains on shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::connection::Peer;
use crate::dispatch::Dispatch;

/// Time limit of a TLS handshake.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
const HEADERS_WITHIN: Duration = Duration::from_secs(10);
/// Detects peers that vanished without closing the connection.
const PING_EVERY: Duration = Duration::from_secs(30);
/// Open connections: each takes a file, and a process has commonly 20,000 of those.
const MAX_CONNECTIONS: usize = 18_000;
/// Calls under way on one connection.
const MAX_STREAMS: u32 = 200;
/// What a connection of HTTP/1.1 may make the server hold: the headers of a request, or unsent answers.
const MAX_BUFFER: usize = 64 * 1024;
/// How long calls under way may take to end once the server stops.
const DRAIN_WITHIN: Duration = Duration::from_secs(10);
/// The pause after a failed accept, for example for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The TLS port.
pub(crate) struct Listener {
    pub(crate) socket: TcpListener,
    pub(crate) tls: TlsAcceptor,
    pub(crate) dispatch: Arc<Dispatch>,
}

impl Listener {
    /// Serves until it is told to stop, then lets calls under way end.
    pub(crate) async fn serve(self, mut stop: watch::Receiver<bool>) {
        let graceful = GracefulShutdown::new();
        let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                accepted = accept(&self.socket, &free) => accepted,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            let (stream, address, permit) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (tls, dispatch) = (self.tls.clone(), self.dispatch.clone());
            let watcher = graceful.watcher();
            tokio::spawn(async move {
                dispatch.metrics.connections.inc();
                if let Err(error) = connection(stream, address, tls, &dispatch, watcher).await {
                    tracing::debug!(%error, %address, "a connection ended");
                }
                dispatch.metrics.connections.dec();
                drop(permit);
            });
        }
        drop(self.socket);
        if tokio::time::timeout(DRAIN_WITHIN, graceful.shutdown()).await.is_err() {
            tracing::warn!("some calls did not end within {DRAIN_WITHIN:?} and were cut off");
        }
    }
}

async fn accept(
    socket: &TcpListener,
    free: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let permit = free.clone().acquire_owned().await.map_err(std::io::Error::other)?;
    let (stream, address) = socket.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, address, permit))
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

async fn connection(
    stream: TcpStream,
    address: SocketAddr,
    tls: TlsAcceptor,
    dispatch: &Arc<Dispatch>,
    watcher: hyper_util::server::graceful::Watcher,
) -> Result<(), BoxError> {
    let stream = tokio::time::timeout(HANDSHAKE_WITHIN, tls.accept(stream)).await??;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let peer = Arc::new(Peer::new(address, chain));
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let dispatch = dispatch.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| dispatch.answer(&peer, request));
    let stream = TokioIo::new(stream);
    // HTTP/2 over TLS is negotiated by ALPN: the protocol need not be detected.
    if is_http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_EVERY)
            .max_concurrent_streams(MAX_STREAMS);
        watcher.watch(builder.serve_connection(stream, service)).await?;
    } else {
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEADERS_WITHIN).max_buf_size(MAX_BUFFER);
        watcher.watch(builder.serve_connection(stream, service)).await?;
    }
    Ok(())
}
