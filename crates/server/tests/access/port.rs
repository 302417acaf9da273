//! Connections to the port that are not valid calls.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use prost::Message;
use refit_identity::{Role, pinned_client_config};
use refit_proto::resources::v1::{Resource, UpsertResourceRequest};
use rustls::pki_types::ServerName;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::Code;

use crate::cluster::{HOUR, STATUS, call, connect, user};
use crate::{Cluster, request};

const IDLERS: usize = 50;
/// Longer than a server waits for a handshake.
const HUNG_UP_WITHIN: Duration = Duration::from_secs(40);

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_too_large_is_refused_and_the_connection_stays_good() {
    let cluster = Cluster::start().await;
    let admin = user(&cluster.authority, Role::Admin, HOUR, Timestamp::now());
    let channel = connect(&cluster.server, Some(&admin)).await;
    let large = |bytes: usize| {
        let resource = Some(Resource { json: " ".repeat(bytes), ..Default::default() });
        Bytes::from(
            UpsertResourceRequest { kind: "channel".into(), resource, ..Default::default() }.encode_to_vec(),
        )
    };
    let upsert = "/refit.resources.v1.ResourceService/UpsertResource";
    let fits = call(&channel, upsert, large(1024 * 1024 - 100)).await.unwrap_err();
    assert_eq!(fits.code(), Code::InvalidArgument, "{fits}");
    for bytes in [1024 * 1024 + 1, 16 * 1024 * 1024] {
        let refused = call(&channel, upsert, large(bytes)).await.unwrap_err();
        assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
        call(&channel, STATUS, request(None)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_says_nothing_or_nonsense_disturbs_nobody() {
    let cluster = Cluster::start().await;
    let address = cluster.server.local_address();
    let mut idle = Vec::new();
    for number in 0..IDLERS {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let said: &[u8] = match number % 4 {
            0 => b"",
            // The beginning of a TLS record, without the rest.
            1 => &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01],
            2 => b"GET /healthz HTTP/1.1\r\nHost: refit\r\n\r\n",
            _ => &[0xff; 512],
        };
        stream.write_all(said).await.unwrap();
        idle.push(stream);
    }
    let admin = user(&cluster.authority, Role::Admin, HOUR, Timestamp::now());
    let channel = connect(&cluster.server, Some(&admin)).await;
    for _ in 0..20 {
        call(&channel, STATUS, request(None)).await.unwrap();
    }
    let all_hung_up = async {
        for stream in &mut idle {
            let mut rest = Vec::new();
            // The server may reset a connection whose bytes it did not read.
            let _ = stream.read_to_end(&mut rest).await;
        }
    };
    tokio::time::timeout(HUNG_UP_WITHIN, all_hung_up).await.expect("the server hangs up on idlers");
    call(&channel, STATUS, request(None)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_inside_tls_is_survived() {
    let cluster = Cluster::start().await;
    let address = cluster.server.local_address();
    let name = ServerName::try_from("localhost").unwrap();
    let said: [&[u8]; 3] =
        [&[0xff; 4096], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnonsense", b"GET /\0 HTTP/9\r\n\r\n"];
    for bytes in said {
        let tls = pinned_client_config(cluster.server.ca_pin).unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let mut stream = TlsConnector::from(Arc::new(tls)).connect(name.clone(), stream).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        let ended = tokio::time::timeout(HUNG_UP_WITHIN, stream.read_to_end(&mut answer)).await;
        assert!(ended.is_ok(), "the server hangs up");
    }
    let admin = user(&cluster.authority, Role::Admin, HOUR, Timestamp::now());
    let channel = connect(&cluster.server, Some(&admin)).await;
    call(&channel, STATUS, request(None)).await.unwrap();
}
