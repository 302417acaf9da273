//! An agent renews its identity before it expires.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use refit_authority::{Authority, HOST_TTL};
use refit_backend::{EtcdAddress, EtcdBackend};
use refit_identity::{Identities, Identity, IdentitySlot, PrivateKey, SigningRequest, SqliteIdentities};
use refit_types::AgentRole;

use crate::agent::{Agent, new_token};
use crate::host::{Host, empty_store, eventually};

#[test]
fn an_identity_is_renewed_well_before_its_end() {
    let host = Host::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = runtime.block_on(empty_store("renewal"));
    let server = host.serve_with(&["--backend", &store], &[]);
    let agent = Agent::paste(&host, "web", &new_token(&host, "node"));
    agent.connects(&host);
    let (data, id) = (agent.data().to_owned(), agent.uuid().parse().unwrap());
    agent.stop();

    // As it is when the agent was off for three quarters of its identity's life.
    let long_ago = Timestamp::now() - HOST_TTL * 3 / 4;
    let aged = runtime.block_on(async {
        let backend = EtcdBackend::connect(&EtcdAddress::parse(&store).unwrap()).await.unwrap();
        let authority = Authority::load(&backend).await.unwrap().unwrap().into_authority();
        let key = PrivateKey::generate().unwrap();
        let request = SigningRequest::from_pem(&key.signing_request().unwrap()).unwrap();
        let signed = authority.issue_host(&request, id, AgentRole::Node, HOST_TTL, long_ago).unwrap();
        let authorities = authority.authorities();
        Identity::for_host("current", key, signed, authorities.tls, authorities.ssh).unwrap()
    });
    let left = aged.expires().duration_since(Timestamp::now());
    assert!(left > Duration::from_secs(86_400).try_into().unwrap(), "it is still good: {left}");
    runtime.block_on(async {
        let opened = SqliteIdentities::open(&data.join("proc/sqlite.db"), Timestamp::now()).unwrap();
        Identities::new(Arc::new(opened.store))
            .store(AgentRole::Node, IdentitySlot::Current, &aged)
            .await
            .unwrap();
    });

    let agent = Agent::start(&host, "web", &["--proxy", server.address()]);
    let fresh = || {
        let status = agent.status(&host)?;
        let expires: Timestamp = status["identity_expires"].as_str()?.parse().ok()?;
        (status["connected"] == true && expires > aged.expires()).then_some(expires)
    };
    eventually("the agent connects with a new identity", || fresh().is_some());
    agent.says("obtained a new identity");
    agent.stop();
}
