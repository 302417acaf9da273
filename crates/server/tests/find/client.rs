//! HTTP/1.1 by hand, over TLS, so that anything at all can be sent.

use std::sync::Arc;
use std::time::Duration;

use refit_identity::pinned_client_config;
use refit_server::Server;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

pub struct Client {
    pub stream: TlsStream<TcpStream>,
    unread: Vec<u8>,
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub body: String,
    headers: Vec<(String, String)>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl Client {
    pub async fn connect(server: &Server) -> Self {
        Self::offering(server, &[b"http/1.1"]).await
    }

    /// Offers these protocols in the handshake.
    pub async fn offering(server: &Server, protocols: &[&[u8]]) -> Self {
        let mut tls = pinned_client_config(server.ca_pin).unwrap();
        tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let stream = TcpStream::connect(server.local_address()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await.unwrap();
        Self { stream, unread: Vec::new() }
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    pub async fn ask(&mut self, request: &str) -> Reply {
        self.send(request.as_bytes()).await;
        self.reply(request.starts_with("HEAD")).await
    }

    /// The next answer; one to HEAD has no body whatever its headers say.
    pub async fn reply(&mut self, to_head: bool) -> Reply {
        tokio::time::timeout(ANSWERS_WITHIN, self.read_reply(to_head)).await.expect("an answer in time")
    }

    async fn read_reply(&mut self, to_head: bool) -> Reply {
        let head_ends = loop {
            match self.unread.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                Some(at) => break at,
                None => self.more().await,
            }
        };
        let head: Vec<u8> = self.unread.drain(..head_ends + 4).collect();
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines.filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        let mut reply = Reply { status, headers, body: String::new() };
        let length = reply.header("content-length").map_or(0, |length| length.parse().unwrap());
        let length = if to_head || status == 304 { 0 } else { length };
        while self.unread.len() < length {
            self.more().await;
        }
        reply.body = String::from_utf8(self.unread.drain(..length).collect()).unwrap();
        reply
    }

    async fn more(&mut self) {
        let read = self.stream.read_buf(&mut self.unread).await.unwrap();
        assert!(read > 0, "the server hung up after {:?}", String::from_utf8_lossy(&self.unread));
    }

    /// All that still comes until the server hangs up.
    pub async fn rest(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.unread);
        // It need not say goodbye.
        let _ = self.stream.read_to_end(&mut rest).await;
        rest
    }
}

/// The whole of a body that came over HTTP/2.
pub async fn body(body: tonic::body::Body) -> String {
    let bytes = axum::body::to_bytes(axum::body::Body::new(body), 1 << 20).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}
