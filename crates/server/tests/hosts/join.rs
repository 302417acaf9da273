//! Valid and invalid join requests.

use std::collections::BTreeSet;

use refit_backend::{Backend, EtcdAddress, EtcdBackend, Key};
use refit_identity::PrivateKey;
use refit_proto::agent::v1::{JoinRequest, RoleRequest};
use refit_proto::nodes::v1::ListNodesRequest;
use tonic::Code;

use crate::{Cluster, join, joining, new_host};

const HOSTS: usize = 200;

#[tokio::test(flavor = "multi_thread")]
async fn who_is_told_to_have_joined_is_stored() {
    let cluster = Cluster::start().await;
    let backend = EtcdBackend::connect(&EtcdAddress::parse(&cluster.store).unwrap()).await.unwrap();
    let (channel, key) = (cluster.nobody().await, PrivateKey::generate().unwrap());
    for _ in 0..20 {
        let id = new_host();
        let record = Key::new("/instances/v1/default").unwrap().child(id).unwrap();
        let answer = join(&channel, joining(id, &[("node", &key), ("kube", &key)])).await.unwrap();
        assert!(backend.get(&record).await.unwrap().is_some(), "{id} was answered before it was stored");
        let roles: Vec<&str> = answer.identities.iter().map(|signed| signed.role.as_str()).collect();
        assert_eq!(roles, ["node", "kube"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_requests_are_named_field_by_field_and_leave_nothing() {
    let cluster = Cluster::start().await;
    let (channel, key) = (cluster.nobody().await, PrivateKey::generate().unwrap());
    let good = || joining(new_host(), &[("node", &key)]);
    let role = |role: &str, request: &str| {
        vec![RoleRequest { role: role.into(), certificate_request: request.into(), ..Default::default() }]
    };
    let pem = key.signing_request().unwrap();
    let cases: [(&str, JoinRequest); 9] = [
        ("host_id", JoinRequest { host_id: "../../etc".into(), ..good() }),
        ("host_id", JoinRequest { host_id: String::new(), ..good() }),
        ("hostname", JoinRequest { hostname: "web\u{1b}[2J\n".into(), ..good() }),
        ("hostname", JoinRequest { hostname: "w".repeat(254), ..good() }),
        ("hostname", JoinRequest { hostname: String::new(), ..good() }),
        ("certificate_request", JoinRequest { roles: role("node", "not PEM"), ..good() }),
        ("certificate_request", JoinRequest { roles: role("node", &pem.replace('A', "B")), ..good() }),
        ("roles", JoinRequest { roles: role("king", &pem), ..good() }),
        ("roles", JoinRequest { roles: Vec::new(), ..good() }),
    ];
    for (field, request) in cases {
        let refused = join(&channel, request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().starts_with(field), "{field:?}: {refused}");
        assert!(!refused.message().chars().any(char::is_control), "{refused:?}");
    }
    // Nine refusals are within the limit, the tenth is the last, and a good request has to wait then too.
    let wrong = JoinRequest { token: "a-guess-of-mine".into(), ..good() };
    assert_eq!(join(&channel, wrong).await.unwrap_err().code(), Code::Unauthenticated);
    let limited = join(&channel, good()).await.unwrap_err();
    assert_eq!(limited.code(), Code::ResourceExhausted);
    for word in ["too many attempts", "127.0.0.1", "try again in"] {
        assert!(limited.message().contains(word), "{limited}");
    }
    assert!(cluster.fleet().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_is_paged_without_gaps_or_repeats() {
    let cluster = Cluster::start().await;
    let (channel, key) = (cluster.nobody().await, PrivateKey::generate().unwrap());
    let mut joined = BTreeSet::new();
    for _ in 0..HOSTS {
        let id = new_host();
        join(&channel, joining(id, &[("node", &key)])).await.unwrap();
        joined.insert(id.to_string());
    }
    let mut client = cluster.admin().await;
    let (mut seen, mut page_token, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let request = ListNodesRequest { page_size: 7, page_token, ..Default::default() };
        let page = client.list_nodes(request).await.unwrap().into_inner();
        assert!(page.nodes.len() == 7 || page.next_page_token.is_empty());
        seen.extend(page.nodes.into_iter().map(|node| node.host_id));
        (page_token, pages) = (page.next_page_token, pages + 1);
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!((pages, seen.len()), (HOSTS.div_ceil(7), HOSTS));
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), joined);
    let odd = ListNodesRequest { page_token: "!".into(), ..Default::default() };
    assert_eq!(client.list_nodes(odd).await.unwrap_err().code(), Code::InvalidArgument);
}
