//! Handshakes in memory between clients of `refit-identity` and servers of this crate.

use std::io::{Read, Write};
use std::sync::Arc;

use jiff::Timestamp;
use rcgen::ExtendedKeyUsagePurpose as Purpose;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::ServerName;
use rustls::server::ServerConfig;
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, HandshakeKind, OtherError, ServerConnection,
    SignatureScheme, SupportedProtocolVersion,
};

use super::{HOUR, counterfeit, dns, host_at, odd, server_at, uri, user_at};
use crate::{AnyClientCertificate, Authority, RotationMode, ServerCertificate, server_config};
use refit_identity::{
    AuthError, CaPin, Identity, Phase, PrivateKey, SERVER_NAME, ServerRefused, client_config,
    pinned_client_config,
};

/// rustls brings its own clock to a handshake.
fn now() -> Timestamp {
    Timestamp::now()
}

fn authority(cluster: &str) -> Authority {
    Authority::create(cluster.parse().unwrap(), now()).unwrap()
}

fn user(authority: &Authority) -> Identity {
    user_at(authority, now())
}

fn serving(authority: &Authority) -> Arc<ServerCertificate> {
    let (key, certificate) = server_at(authority, now());
    Arc::new(ServerCertificate::new(&key, &certificate, authority).unwrap())
}

fn server(authority: &Authority) -> Arc<ServerConfig> {
    Arc::new(server_config(serving(authority)).unwrap())
}

type Connected = (ClientConnection, ServerConnection);

/// A whole handshake in memory, dialled by an address that is in no certificate.
fn connect(
    client: impl Into<Arc<ClientConfig>>,
    server: Arc<ServerConfig>,
) -> Result<Connected, rustls::Error> {
    let address = ServerName::try_from("192.0.2.7").unwrap();
    let mut client = ClientConnection::new(client.into(), address)?;
    let mut server = ServerConnection::new(server)?;
    for _ in 0..10 {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        feed(&bytes, |bytes| server.read_tls(bytes).map(|_| ()));
        server.process_new_packets()?;
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        feed(&bytes, |bytes| client.read_tls(bytes).map(|_| ()));
        client.process_new_packets()?;
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok((client, server))
}

fn feed(mut bytes: &[u8], mut read: impl FnMut(&mut &[u8]) -> std::io::Result<()>) {
    while !bytes.is_empty() {
        read(&mut bytes).unwrap();
    }
}

fn refusal(result: Result<Connected, rustls::Error>) -> ServerRefused {
    match result.map(|_| ()) {
        Err(rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(error)))) => {
            error.downcast_ref::<ServerRefused>().unwrap().clone()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_identity_is_known_to_its_cluster() {
    let authority = authority("prod");
    let identity = user(&authority);
    let (mut client, mut server) = connect(client_config(&identity).unwrap(), server(&authority)).unwrap();
    let chain = server.peer_certificates().unwrap();
    assert_eq!(authority.trust().unwrap().verify_client(chain, now()).unwrap(), *identity.principal());

    client.writer().write_all(b"hello").unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    server.read_tls(&mut bytes.as_slice()).unwrap();
    server.process_new_packets().unwrap();
    let mut heard = [0; 5];
    server.reader().read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");
}

fn server_of_version(authority: &Authority, version: &'static SupportedProtocolVersion) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let clients = Arc::new(AnyClientCertificate::new(provider.clone()));
    let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
    Arc::new(builder.with_client_cert_verifier(clients).with_cert_resolver(serving(authority)))
}

#[test]
fn both_versions_of_tls_check_possession() {
    let authority = authority("prod");
    let identity = user(&authority);
    for version in [&TLS12, &TLS13] {
        let server = server_of_version(&authority, version);
        let (client, _) = connect(client_config(&identity).unwrap(), server.clone()).unwrap();
        assert_eq!(client.protocol_version(), Some(version.version));

        let mut thief = pinned_client_config(authority.pin()).unwrap();
        thief.client_auth_cert_resolver = Arc::new(Stolen(identity.clone()));
        let error = connect(thief, server).map(|_| ()).unwrap_err();
        assert_eq!(error, rustls::Error::InvalidCertificate(CertificateError::BadSignature), "{version:?}");
    }
}

/// Somebody's certificate with somebody else's key.
#[derive(Debug)]
struct Stolen(Identity);

impl ResolvesClientCert for Stolen {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let key = PrivateKey::generate().unwrap();
        let key = provider.key_provider.load_private_key(key.der()).unwrap();
        Some(Arc::new(CertifiedKey::new(vec![self.0.certificate().der().clone()], key)))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[test]
fn strangers_and_nobody_get_through_the_handshake_only() {
    let (prod, staging) = (authority("prod"), authority("staging"));
    let trust = prod.trust().unwrap();

    let stranger = user(&staging);
    let mut config = pinned_client_config(prod.pin()).unwrap();
    config.client_auth_cert_resolver = client_config(&stranger).unwrap().client_auth_cert_resolver;
    let (_, connection) = connect(config, server(&prod)).unwrap();
    let error = trust.verify_client(connection.peer_certificates().unwrap(), now()).unwrap_err();
    assert!(matches!(error, AuthError::OtherCluster { .. }), "{error:?}");

    let (_, connection) = connect(pinned_client_config(prod.pin()).unwrap(), server(&prod)).unwrap();
    assert!(connection.peer_certificates().is_none());
}

#[test]
fn a_resumed_session_ends_with_its_certificate() {
    let authority = authority("prod");
    let identity = user(&authority);
    let (client, server) = (Arc::new(client_config(&identity).unwrap()), server(&authority));
    connect(client.clone(), server.clone()).unwrap();
    let (_, resumed) = connect(client, server).unwrap();
    assert_eq!(resumed.handshake_kind(), Some(HandshakeKind::Resumed));
    let chain = resumed.peer_certificates().unwrap();
    let trust = authority.trust().unwrap();
    trust.verify_client(chain, now()).unwrap();
    let late = now().checked_add(HOUR * 2).unwrap();
    assert!(matches!(trust.verify_client(chain, late), Err(AuthError::Expired { .. })));
}

#[test]
fn a_client_speaks_only_to_its_own_cluster() {
    let identity = user(&authority("prod"));
    let refused = refusal(connect(client_config(&identity).unwrap(), server(&authority("staging"))));
    let expected = ServerRefused::OtherAuthority {
        cluster: "cluster prod".into(),
        claimed: Some("staging".parse().unwrap()),
    };
    assert_eq!(refused, expected);
    assert!(refused.to_string().contains("calls itself staging"), "{refused}");
    let refused = refusal(connect(client_config(&identity).unwrap(), server(&authority("prod"))));
    assert!(matches!(refused, ServerRefused::OtherAuthority { .. }), "{refused:?}");
}

#[test]
fn a_pin_finds_its_cluster_and_no_other() {
    let (prod, staging) = (authority("prod"), authority("staging"));
    connect(pinned_client_config(prod.pin()).unwrap(), server(&prod)).unwrap();

    let refused = refusal(connect(pinned_client_config(staging.pin()).unwrap(), server(&prod)));
    assert_eq!(refused, ServerRefused::Pin { expected: staging.pin(), presented: vec![prod.pin()] });

    // The pinned authority's certificate is public: sending it along proves nothing.
    for (signer, names) in [(&staging, "staging"), (&authority("prod"), "prod")] {
        let (key, certificate) = server_at(signer, now());
        let liar = Arc::new(ServerCertificate::new(&key, &certificate, &prod).unwrap());
        let liar = Arc::new(server_config(liar).unwrap());
        let refused = refusal(connect(pinned_client_config(prod.pin()).unwrap(), liar));
        assert!(matches!(refused, ServerRefused::OtherAuthority { .. }), "{names}: {refused:?}");
    }

    // The pinned key in a certificate that the pinned authority did not write.
    let (key, certificate) = server_at(&prod, now());
    for by in [&staging, &authority("prod")] {
        let shown = ServerCertificate::new(&key, &certificate, &counterfeit(&prod, by)).unwrap();
        let config = Arc::new(server_config(Arc::new(shown)).unwrap());
        let refused = refusal(connect(pinned_client_config(prod.pin()).unwrap(), config));
        assert!(matches!(refused, ServerRefused::Pin { .. }), "{refused:?}");
    }

    // The pin of a server's own key is not the pin of an authority.
    let (key, certificate) = server_at(&prod, now());
    let shown = Arc::new(ServerCertificate::new(&key, &certificate, &prod).unwrap());
    let config = Arc::new(server_config(shown).unwrap());
    let refused = refusal(connect(pinned_client_config(CaPin::of(&certificate)).unwrap(), config));
    assert!(matches!(refused, ServerRefused::Pin { .. }), "{refused:?}");
}

#[test]
fn only_servers_are_taken_for_servers() {
    let authority = authority("prod");
    let identity = user(&authority);
    let server_uri = || uri("refit://prod/server/s1");
    let impostors = [
        (identity.key().clone(), identity.certificate().clone()),
        odd(&authority, &[Purpose::ServerAuth], vec![server_uri(), dns("localhost")], |_| {}),
        odd(&authority, &[Purpose::ServerAuth], vec![server_uri(), dns("*.refit.internal.example")], |_| {}),
        odd(&authority, &[Purpose::ServerAuth], vec![server_uri()], |_| {}),
        odd(&authority, &[Purpose::ClientAuth], vec![server_uri(), dns(SERVER_NAME)], |_| {}),
        odd(&authority, &[], vec![server_uri(), dns(SERVER_NAME)], |_| {}),
    ];
    for (key, certificate) in impostors {
        let shown = Arc::new(ServerCertificate::new(&key, &certificate, &authority).unwrap());
        let config = Arc::new(server_config(shown).unwrap());
        for client in [client_config(&identity).unwrap(), pinned_client_config(authority.pin()).unwrap()] {
            let refused = refusal(connect(client, config.clone()));
            assert_eq!(refused, ServerRefused::NotAServer, "{certificate:?}");
        }
    }
}

#[test]
fn a_servers_dates_are_checked() {
    let authority = authority("prod");
    let identity = user(&authority);
    let show = |at| {
        let (key, certificate) = server_at(&authority, at);
        let shown = ServerCertificate::new(&key, &certificate, &authority).unwrap();
        let config = Arc::new(server_config(Arc::new(shown)).unwrap());
        refusal(connect(client_config(&identity).unwrap(), config))
    };
    assert!(matches!(show(now().checked_sub(HOUR * 2).unwrap()), ServerRefused::Expired(_)));
    assert!(matches!(show(now().checked_add(HOUR).unwrap()), ServerRefused::NotYetValid(_)));
}

#[test]
fn a_servers_certificate_can_be_replaced() {
    let authority = authority("prod");
    let shown = serving(&authority);
    let config = Arc::new(server_config(shown.clone()).unwrap());
    let serves = || {
        let (client, _) = connect(pinned_client_config(authority.pin()).unwrap(), config.clone()).unwrap();
        client.peer_certificates().unwrap()[0].clone().into_owned()
    };
    let before = serves();
    let (key, certificate) = server_at(&authority, now());
    shown.replace(&key, &certificate, &authority).unwrap();
    assert_ne!(serves(), before);
    assert_eq!(serves(), *certificate.der());

    let other = PrivateKey::generate().unwrap();
    assert!(shown.replace(&other, &certificate, &authority).is_err());
    assert_eq!(serves(), *certificate.der());
}

#[test]
fn newcomers_and_hosts_reach_their_servers_in_every_phase() {
    use Phase::*;
    let old = authority("prod");
    let settled = host_at(&old, "current", now());
    let mut at = old.clone();
    for phase in [Init, UpdateClients, UpdateServers, Standby] {
        at = at.advance(phase, RotationMode::Manual, now()).unwrap();
        // Who joins knows the pin alone and has no certificate yet.
        let (_, seen) = connect(pinned_client_config(at.pin()).unwrap(), server(&at)).unwrap();
        assert!(seen.peer_certificates().is_none(), "{phase}");

        let joined = host_at(&at, "current", now());
        let trusting_both =
            settled.with_authorities("current", at.certificates().cloned(), at.ssh_authorities());
        for identity in [joined, trusting_both.unwrap()] {
            let (_, seen) = connect(client_config(&identity).unwrap(), server(&at)).unwrap();
            let found = at.trust().unwrap().verify_client(seen.peer_certificates().unwrap(), now());
            let outlived = phase == Standby && identity.key().belongs_to(settled.certificate());
            assert_eq!(found.is_err(), outlived, "{phase}: {found:?}");
        }
        // Whoever has heard of nothing is cut off when the servers change, and no sooner.
        let reached = connect(client_config(&settled).unwrap(), server(&at));
        assert_eq!(reached.is_err(), matches!(phase, UpdateServers | Standby), "{phase}");
    }
}
