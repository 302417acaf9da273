//! Foreign, expired and otherwise invalid certificates.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use refit_identity::{Identity, PrivateKey, Role, SERVER_NAME, SigningRequest, client_config};
use refit_testbed::eventually;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::Code;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::cluster::{HOUR, STATUS, call, connect, stranger, trusting, user};
use crate::{Cluster, JOIN, every_call, request};

/// How far a certificate is from its end when it is first used.
const LEFT: Duration = Duration::from_secs(8);

fn servers_own(cluster: &Cluster) -> Identity {
    let key = PrivateKey::generate().unwrap();
    let signing = SigningRequest::from_pem(&key.signing_request().unwrap()).unwrap();
    let id = "a-server".parse().unwrap();
    let issued = cluster.authority.issue_server(&signing, &id, &[], HOUR, Timestamp::now());
    Identity::new("server", key, issued.unwrap(), cluster.authority.certificates().cloned()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_method_answers_whoever_cannot_prove_who_they_are() {
    let cluster = Cluster::start().await;
    let now = Timestamp::now();
    let admin_at = |now| user(&cluster.authority, Role::Admin, HOUR, now);
    let (over, to_come) = (admin_at(now - 2 * HOUR), admin_at(now + HOUR));
    let [elsewhere, namesake] = [stranger("elsewhere").await, stranger("walked").await];
    let of = |authority| trusting(&user(authority, Role::Admin, HOUR, now), &cluster.authority);

    let ended = over.expires().to_string();
    let begins = to_come.certificate().not_before().to_string();
    let shown: [(Option<Identity>, &[&str]); 6] = [
        (None, &["no client certificate", "sign in", "walked"]),
        (Some(of(&elsewhere)), &["elsewhere", "walked"]),
        (Some(of(&namesake)), &["the authority of walked did not sign it"]),
        (Some(over), &["expired", &ended]),
        (Some(to_come), &["valid only from", &begins]),
        (Some(servers_own(&cluster)), &["a server's certificate cannot be used to sign in"]),
    ];
    for (identity, words) in &shown {
        let channel = connect(&cluster.server, identity.as_ref()).await;
        for (method, kind) in every_call().into_iter().filter(|(method, _)| method != JOIN) {
            let refused = call(&channel, &method, request(kind)).await.expect_err(&method);
            assert_eq!(refused.code(), Code::Unauthenticated, "{method}: {refused}");
            for word in *words {
                assert!(refused.message().contains(word), "{method}: {word:?} is not in {refused}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_method_that_is_not_in_the_table_is_open_to_nobody() {
    let cluster = Cluster::start().await;
    let admin = user(&cluster.authority, Role::Admin, HOUR, Timestamp::now());
    for identity in [Some(&admin), None] {
        let channel = connect(&cluster.server, identity).await;
        for path in ["/refit.cluster.v1.ClusterService/Reboot", "/grpc.health.v1.Health/Check", "/", "//x"] {
            let refused = call(&channel, path, request(None)).await.expect_err(path);
            assert_eq!(refused.code(), Code::Unimplemented, "{path}: {refused}");
        }
        for path in [format!("{STATUS}/"), STATUS.to_lowercase(), STATUS.replacen('/', "//", 1)] {
            let refused = call(&channel, &path, request(None)).await.expect_err(&path);
            assert_eq!(refused.code(), Code::Unimplemented, "{path}: {refused}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_ends_while_its_connection_is_open_is_refused_there() {
    let cluster = Cluster::start().await;
    let minute = Duration::from_secs(60);
    let signed = Timestamp::now() - (minute - LEFT);
    let identity = user(&cluster.authority, Role::Admin, minute, signed);
    let connections = Arc::new(AtomicUsize::new(0));
    let channel = counted(&cluster, &identity, &connections).await;

    call(&channel, STATUS, request(None)).await.expect("the identity is good at first");
    let ask = || call(&channel, STATUS, request(None));
    eventually("the identity is refused", LEFT * 4, async || ask().await.is_err()).await;
    let refused = ask().await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    assert!(refused.message().contains("expired"), "{refused}");
    assert!(Timestamp::now() >= identity.expires(), "refused before its time");
    assert_eq!(connections.load(Ordering::Relaxed), 1, "it was all one connection");
}

/// A channel that counts how often it had to connect.
async fn counted(cluster: &Cluster, identity: &Identity, connections: &Arc<AtomicUsize>) -> Channel {
    let mut tls = client_config(identity).unwrap();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let connector = TlsConnector::from(Arc::new(tls));
    let address = cluster.server.local_address();
    let connections = connections.clone();
    let connect = tower::service_fn(move |_: Uri| {
        let connector = connector.clone();
        connections.fetch_add(1, Ordering::Relaxed);
        async move {
            let stream = TcpStream::connect(address).await?;
            let name = ServerName::try_from(SERVER_NAME).unwrap();
            Ok::<_, std::io::Error>(TokioIo::new(connector.connect(name, stream).await?))
        }
    });
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    endpoint.connect_with_connector(connect).await.unwrap()
}
