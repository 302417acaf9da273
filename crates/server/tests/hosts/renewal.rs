//! Renewal of identities, and that no host gets another's.

use jiff::Timestamp;
use refit_identity::{Certificate, Identity, Principal, PrivateKey, Role};
use refit_proto::agent::v1::agent_service_client::AgentServiceClient;
use refit_proto::agent::v1::{RenewRequest, RenewResponse};
use refit_proto::nodes::v1::DeleteNodeRequest;
use refit_types::AgentRole;
use tonic::{Code, Status};

use crate::cluster::{HOUR, call, connect, user};
use crate::{Cluster, join, joining, new_host, role_request};

async fn renew(cluster: &Cluster, by: &Identity, role: &str) -> Result<RenewResponse, Status> {
    let mut client = AgentServiceClient::new(connect(&cluster.server, Some(by)).await);
    let key = PrivateKey::generate().unwrap();
    Ok(client.renew(RenewRequest { role: Some(role_request(role, &key)) }).await?.into_inner())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_is_renewed_for_its_own_host_and_role_only() {
    let cluster = Cluster::start().await;
    let id = new_host();
    let identity = cluster.joined(id).await;
    let renewed = renew(&cluster, &identity, "node").await.unwrap();
    let certificate = Certificate::from_pem(&renewed.identity.unwrap().tls_cert).unwrap();
    // The request has no field for a host: it is always that of the certificate.
    let Principal::Host { id: whose, role, .. } = certificate.principal().unwrap() else {
        panic!("a host's")
    };
    assert_eq!((whose, role), (id, AgentRole::Node));

    let refused = renew(&cluster, &identity, "kube").await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("for that role only, not for kube"), "{refused}");
    assert_eq!(renew(&cluster, &identity, "king").await.unwrap_err().code(), Code::InvalidArgument);
    let mut client = AgentServiceClient::new(connect(&cluster.server, Some(&identity)).await);
    let empty = client.renew(RenewRequest { role: None }).await.unwrap_err();
    assert_eq!(empty.code(), Code::InvalidArgument, "{empty}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_was_removed_gets_nothing_more() {
    let cluster = Cluster::start().await;
    let id = new_host();
    let identity = cluster.joined(id).await;
    cluster.admin().await.delete_node(DeleteNodeRequest { host_id: id.to_string() }).await.unwrap();
    let refused = renew(&cluster, &identity, "node").await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    assert!(refused.message().contains("was removed from the cluster"), "{refused}");
    let stranger = cluster.signed(new_host(), AgentRole::Node, HOUR, Timestamp::now());
    assert_eq!(renew(&cluster, &stranger, "node").await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_are_no_users_and_users_no_hosts() {
    let cluster = Cluster::start().await;
    let identity = cluster.joined(new_host()).await;
    let channel = connect(&cluster.server, Some(&identity)).await;
    for method in
        ["nodes.v1.NodeService/CreateToken", "nodes.v1.NodeService/ListNodes", "auth.v1.AuthService/SignUser"]
    {
        let refused = call(&channel, &format!("/refit.{method}"), Default::default()).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{method}: {refused}");
    }
    let admin = user(&cluster.authority, Role::Admin, HOUR, Timestamp::now());
    assert_eq!(renew(&cluster, &admin, "node").await.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_its_own_certificate_lets_a_host_that_reported_join_again() {
    let cluster = Cluster::start().await;
    let (id, other) = (new_host(), new_host());
    let identity = cluster.joined(id).await;
    crate::heartbeats::report(&cluster, &identity).await;
    let key = PrivateKey::generate().unwrap();
    let again = || joining(id, &[("kube", &key)]);
    let thief = cluster.joined(other).await;
    for by in [None, Some(&thief)] {
        let refused = join(&connect(&cluster.server, by).await, again()).await.unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
        assert!(refused.message().contains(&format!("refitctl nodes rm {id}")), "{refused}");
    }
    join(&connect(&cluster.server, Some(&identity)).await, again()).await.unwrap();
    let fleet = cluster.fleet().await;
    let host = fleet.iter().find(|node| node.host_id == id.to_string()).unwrap();
    assert_eq!(host.roles, ["node", "kube"]);
}
