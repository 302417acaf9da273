//! A control plane in the test process, and clients with arbitrary certificates.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use jiff::Timestamp;
use refit_authority::Authority;
use refit_backend::{EtcdAddress, EtcdBackend, MemoryBackend};
use refit_identity::{
    Certificate, Identity, PrivateKey, Roles, SERVER_NAME, SigningRequest, client_config,
    pinned_client_config,
};
use refit_proto::dial;
use refit_server::{Release, Server, Settings, StartError};
use refit_testbed::Etcd;
use rustls::pki_types::ServerName;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Request, Status};

pub const STATUS: &str = "/refit.cluster.v1.ClusterService/GetStatus";
pub const HOUR: Duration = Duration::from_secs(3600);
/// No call here takes so long unless it hangs.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// Settings for a server that is in nobody's way.
pub fn settings(data_dir: &Path) -> Settings {
    Settings {
        data_dir: Some(data_dir.into()),
        listen: Some("127.0.0.1:0".into()),
        diag_listen: Some("127.0.0.1:0".into()),
        ..Settings::default()
    }
}

/// This release, in a binary that was not stamped.
pub fn release() -> Release {
    Release::current(env!("CARGO_PKG_VERSION").parse().unwrap())
}

pub async fn start(settings: Settings) -> Result<Server, StartError> {
    start_release(settings, release()).await
}

pub async fn start_release(settings: Settings, release: Release) -> Result<Server, StartError> {
    Server::start(settings.check(Path::new("/nowhere")).unwrap(), release).await
}

/// An etcd store in which nothing is yet.
pub async fn empty_store() -> String {
    static TAKEN: AtomicUsize = AtomicUsize::new(0);
    let number = TAKEN.fetch_add(1, Ordering::Relaxed);
    format!("etcd://{}/test-{}-{number}", Etcd::shared().await.endpoint(), std::process::id())
}

/// The key that a cluster signs with, taken from its store as no client could.
pub async fn authority_in(store: &str) -> Authority {
    let backend = EtcdBackend::connect(&EtcdAddress::parse(store).unwrap()).await.unwrap();
    Authority::load_or_create(&backend, "unused".parse().unwrap(), Timestamp::now()).await.unwrap()
}

/// The authority of some other cluster.
pub async fn stranger(cluster: &str) -> Authority {
    let now = Timestamp::now();
    Authority::load_or_create(&MemoryBackend::default(), cluster.parse().unwrap(), now).await.unwrap()
}

pub fn user(authority: &Authority, roles: impl Into<Roles>, ttl: Duration, now: Timestamp) -> Identity {
    let key = PrivateKey::generate().unwrap();
    let request = SigningRequest::from_pem(&key.signing_request().unwrap()).unwrap();
    let name = "alice".parse().unwrap();
    let certificate = authority.issue_user(&request, &name, &roles.into(), ttl, now).unwrap();
    Identity::new("alice", key, certificate, authority.certificates().cloned()).unwrap()
}

/// The identity of a host that the authority signed, and no server has ever heard of.
pub fn host(authority: &Authority, now: Timestamp) -> Identity {
    let key = PrivateKey::generate().unwrap();
    let request = SigningRequest::from_pem(&key.signing_request().unwrap()).unwrap();
    let id = "6f1b0b5e-0c5a-4bbd-9d7e-2f1f0f6f3a55".parse().unwrap();
    let issued = authority.issue_host(&request, id, refit_types::AgentRole::Node, HOUR, now).unwrap();
    Identity::new("current", key, issued.tls, authority.certificates().cloned()).unwrap()
}

/// The same key and certificate, held by someone who believes the server of another cluster.
pub fn trusting(identity: &Identity, authority: &Authority) -> Identity {
    let (key, certificate) = (identity.key().clone(), identity.certificate().clone());
    let authorities: Vec<Certificate> = authority.certificates().cloned().collect();
    Identity::new("alice", key, certificate, authorities).unwrap()
}

/// A connection that shows `identity`, or no certificate.
pub async fn connect(server: &Server, identity: Option<&Identity>) -> Channel {
    let tls = match identity {
        Some(identity) => client_config(identity).unwrap(),
        None => pinned_client_config(server.ca_pin).unwrap(),
    };
    let name = ServerName::try_from(SERVER_NAME).unwrap();
    dial(&server.local_address().to_string(), name, tls).await.unwrap()
}

/// Calls any method with any bytes.
pub async fn call(channel: &Channel, method: &str, request: Bytes) -> Result<Bytes, Status> {
    let ask = async {
        let mut grpc = Grpc::new(channel.clone());
        grpc.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
        let path = PathAndQuery::try_from(method).unwrap();
        let answer = grpc.unary(Request::new(request), path, Raw).await?;
        Ok(answer.into_inner())
    };
    tokio::time::timeout(ANSWERS_WITHIN, ask).await.expect("an answer in time")
}

/// Opens a stream with any bytes: whether it opens is the answer, for nothing need ever come.
pub async fn open(channel: &Channel, method: &str, request: Bytes) -> Result<(), Status> {
    let ask = async {
        let mut grpc = Grpc::new(channel.clone());
        grpc.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
        let path = PathAndQuery::try_from(method).unwrap();
        grpc.server_streaming(Request::new(request), path, Raw).await.map(drop)
    };
    tokio::time::timeout(ANSWERS_WITHIN, ask).await.expect("an answer in time")
}

/// Messages as the bytes that they are.
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Raw
    }

    fn decoder(&mut self) -> Self {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
