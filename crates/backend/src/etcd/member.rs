//! The gRPC connection to one etcd member: TLS, keepalive, flow-control windows and request headers.

use std::time::Duration;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};

use super::address::{EtcdAddress, Host, TlsFiles};
use super::proto::etcdserverpb::auth_client::AuthClient;
use super::proto::etcdserverpb::kv_client::KvClient;
use super::proto::etcdserverpb::lease_client::LeaseClient;
use super::proto::etcdserverpb::watch_client::WatchClient;
use crate::Result;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// etcd hangs up on peers that ping more often than every five seconds.
const PING_EVERY: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// The flow-control window of a connection is far larger than that of its streams, so that watches that are not read
/// do not block requests on the same connection.
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;

/// A page can hold a thousand large values.
const MAX_MESSAGE: usize = i32::MAX as usize;

pub(super) type Token = MetadataValue<Ascii>;
type Intercepted = InterceptedService<Channel, Headers>;

/// One etcd server of the cluster; connected to when it is first asked.
pub(super) struct Member {
    pub(super) name: String,
    channel: Channel,
}

impl Member {
    pub(super) async fn all_of(address: &EtcdAddress) -> Result<Vec<Self>> {
        let tls = match &address.tls {
            Some(files) => Some(read_tls(address, files).await?),
            None => None,
        };
        address.hosts.iter().map(|host| Self::new(address, host, tls.clone())).collect()
    }

    fn new(address: &EtcdAddress, host: &Host, tls: Option<ClientTlsConfig>) -> Result<Self> {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let mut endpoint = Endpoint::from_shared(format!("{scheme}://{host}"))
            .map_err(|error| address.error(format_args!("{host} is not a host: {error}")))?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        if let Some(tls) = tls {
            let tls = tls.domain_name(&host.name).timeout(CONNECT_TIMEOUT);
            endpoint = endpoint.tls_config(tls).map_err(|error| address.error(in_full(&error)))?;
        }
        Ok(Self { name: host.to_string(), channel: endpoint.connect_lazy() })
    }

    pub(super) fn session(&self, index: usize, token: Option<Token>) -> Session {
        Session { index, channel: self.channel.clone(), headers: Headers { token } }
    }

    pub(super) fn auth(&self) -> AuthClient<Channel> {
        AuthClient::new(self.channel.clone())
    }
}

/// A member together with the token of a logged-in user.
pub(super) struct Session {
    /// Which of the members it is.
    pub(super) index: usize,
    channel: Channel,
    headers: Headers,
}

impl Session {
    pub(super) fn kv(self) -> KvClient<Intercepted> {
        KvClient::with_interceptor(self.channel, self.headers)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE)
    }

    pub(super) fn lease(self) -> LeaseClient<Intercepted> {
        LeaseClient::with_interceptor(self.channel, self.headers)
    }

    pub(super) fn watch(self) -> WatchClient<Intercepted> {
        WatchClient::with_interceptor(self.channel, self.headers).max_decoding_message_size(MAX_MESSAGE)
    }
}

#[derive(Clone)]
pub(super) struct Headers {
    token: Option<Token>,
}

impl Interceptor for Headers {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        // A member that is partitioned from the others then refuses at once instead of hanging.
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        Ok(request)
    }
}

async fn read_tls(address: &EtcdAddress, files: &TlsFiles) -> Result<ClientTlsConfig> {
    let read = async |option: &str, path: &std::path::Path| {
        let refuse = |reason: String| address.error(format_args!("{option}={}: {reason}", path.display()));
        let pem = tokio::fs::read_to_string(path).await.map_err(|error| refuse(error.to_string()))?;
        match pem.contains("-----BEGIN ") {
            true => Ok(pem),
            false => Err(refuse("this is not a PEM file".into())),
        }
    };
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read("ca", &files.ca).await?));
    if let Some((cert, key)) = &files.identity {
        tls = tls.identity(Identity::from_pem(read("cert", cert).await?, read("key", key).await?));
    }
    Ok(tls)
}

fn in_full(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", in_full(source)),
        None => error.to_string(),
    }
}
