//! Every HTTP path of the table, asked by everyone with every method; and channels whose names have become paths.

use std::sync::Arc;

use http::{Method, Request, Response};
use jiff::Timestamp;
use prost::Message;
use refit_backend::{EtcdAddress, EtcdBackend, Key, SharedBackend, Transaction};
use refit_identity::Role;
use refit_proto::resources::v1 as wire;
use refit_server::{Limit, ROUTES, Settings, Who};
use tonic::Code;
use tonic::transport::Channel;
use tower::ServiceExt;

use crate::Cluster;
use crate::cluster::{HOUR, call, connect, host, user};

/// The rules once more, as in `MAY`: who is answered, how, and with which methods.
const EXPECTED: &[(&str, &str, u16, &str)] = &[
    ("/v1/webapi/find", "/v1/webapi/find", 200, "GET, HEAD"),
    ("/webapi/find", "/webapi/find", 200, "GET, HEAD"),
    ("/healthz", "/healthz", 200, "GET, HEAD"),
    ("/v1/artifacts/{path}", "/v1/artifacts/refit-1.2.3.tar.gz", 200, "GET, HEAD"),
    // Nobody is signed in: a certificate does not open the dashboard.
    ("/web", "/web", 303, "GET, HEAD, POST"),
    ("/web/{page}", "/web/rollout", 401, "GET, HEAD, POST"),
    ("/v1/{channel}/version", "/v1/stable/cloud/version", 200, "GET, HEAD"),
    ("/v1/{channel}/critical", "/v1/stable/cloud/critical", 200, "GET, HEAD"),
];

const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS];

async fn ask(channel: &Channel, method: &Method, path: &str) -> Response<tonic::body::Body> {
    let request = Request::builder().method(method).uri(format!("https://refit{path}"));
    channel.clone().oneshot(request.body(tonic::body::Body::empty()).unwrap()).await.unwrap()
}

fn upsert(name: &str) -> wire::UpsertResourceRequest {
    let json = format!(
        r#"{{"kind":"channel","metadata":{{"name":"{name}"}},"spec":{{"version":"1.2.3","critical":true}}}}"#
    );
    let resource = Some(wire::Resource { json, ..Default::default() });
    wire::UpsertResourceRequest { kind: "channel".into(), resource, ..Default::default() }
}

const CREATE: &str = "/refit.resources.v1.ResourceService/CreateResource";
const GET: &str = "/refit.resources.v1.ResourceService/GetResource";
const UPDATE: &str = "/refit.resources.v1.ResourceService/UpdateResource";
const UPSERT: &str = "/refit.resources.v1.ResourceService/UpsertResource";
const DELETE: &str = "/refit.resources.v1.ResourceService/DeleteResource";

/// A connection for each role, for a host, and for somebody without a certificate.
async fn everyone(cluster: &Cluster) -> Vec<(&'static str, Channel)> {
    let now = Timestamp::now();
    let mut all = vec![("nobody", connect(&cluster.server, None).await)];
    for role in Role::ALL {
        let identity = user(&cluster.authority, role, HOUR, now);
        all.push((role.as_str(), connect(&cluster.server, Some(&identity)).await));
    }
    let identity = host(&cluster.authority, now);
    all.push(("host", connect(&cluster.server, Some(&identity)).await));
    all
}

async fn admin(cluster: &Cluster) -> Channel {
    let identity = user(&cluster.authority, Role::Admin, HOUR, Timestamp::now());
    connect(&cluster.server, Some(&identity)).await
}

/// A cluster with something behind every row.
async fn furnished(settings: impl FnOnce(Settings) -> Settings) -> Cluster {
    let cluster = Cluster::start_with(settings).await;
    let archives = cluster.directory.path().join("artifacts");
    std::fs::write(archives.join("refit-1.2.3.tar.gz"), b"an archive").unwrap();
    let stable = upsert("stable/cloud").encode_to_vec().into();
    call(&admin(&cluster).await, UPSERT, stable).await.unwrap();
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_answers_as_its_row_says() {
    let rows: Vec<(&str, String)> =
        ROUTES.iter().map(|route| (route.pattern, route.methods.join(", "))).collect();
    let expected: Vec<(&str, String)> =
        EXPECTED.iter().map(|(pattern, _, _, methods)| (*pattern, (*methods).to_owned())).collect();
    assert_eq!(rows, expected, "this test says for each route how it answers");

    let cluster = furnished(|settings| settings).await;
    let mut wrong = Vec::new();
    for (who, channel) in everyone(&cluster).await {
        for (route, (_, path, status, methods)) in ROUTES.iter().zip(EXPECTED) {
            let is_open = matches!(route.who, Who::Anyone | Who::Session);
            assert!(is_open, "{}: say here who may ask for it", route.pattern);
            for method in &METHODS {
                let answer = ask(&channel, method, path).await;
                let (found, allow) = (answer.status().as_u16(), answer.headers().get("allow"));
                let is_named = methods.split(", ").any(|named| named == method.as_str());
                let good = match is_named {
                    true if *method == Method::POST => found != 405 && allow.is_none(),
                    true => found == *status && allow.is_none(),
                    false => found == 405 && allow.is_some_and(|allow| allow == methods),
                };
                if !good {
                    wrong.push(format!("{who}: {method} {path}: {found}, allow {allow:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_in_the_table_is_not_found() {
    let cluster = furnished(|settings| settings).await;
    for (who, channel) in everyone(&cluster).await {
        for path in [
            "/",
            "/v1",
            "/v1/stable/cloud",
            "/v1/stable/cloud/versions",
            "/v1/api/hosts",
            "/v2/stable/cloud/version",
            "/webapi",
            "/website",
            "/healthz/",
            "/metrics",
        ] {
            for method in [Method::GET, Method::POST] {
                let answer = ask(&channel, &method, path).await;
                assert_eq!(answer.status().as_u16(), 404, "{who}: {method} {path}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_rows_that_say_so_limit_the_requests_of_an_address() {
    let limited = |settings| Settings { find_requests_per_second: Some(1), ..settings };
    let cluster = furnished(limited).await;
    let channel = connect(&cluster.server, None).await;
    for (route, (_, path, ..)) in ROUTES.iter().zip(EXPECTED) {
        let mut refused = false;
        for _ in 0..60 {
            refused |= ask(&channel, &Method::GET, path).await.status().as_u16() == 429;
        }
        assert_eq!(refused, route.limit == Limit::RequestsPerAddress, "{}", route.pattern);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_of_a_reserved_name_is_not_created_but_an_old_one_lives_on() {
    let cluster = furnished(|settings| settings).await;
    let channel = admin(&cluster).await;
    for name in ["api", "artifacts/x", "healthz", "install.sh", "tuf/a", "web/stable", "webapi"] {
        for method in [CREATE, UPSERT] {
            let refused = call(&channel, method, upsert(name).encode_to_vec().into()).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
            let said = refused.message();
            assert!(
                said.starts_with(&format!("metadata.name: {name:?}")) && said.contains("reserved"),
                "{said}"
            );
        }
    }

    let backend: SharedBackend =
        Arc::new(EtcdBackend::connect(&EtcdAddress::parse(&cluster.store).unwrap()).await.unwrap());
    let bare = r#"{"version":"1.0.0","critical":"no"}"#;
    let old = Transaction::new().put(&Key::new("/channels/default/web/stable").unwrap(), bare);
    backend.transact(old).await.unwrap();
    let get = wire::GetResourceRequest { kind: "channel".into(), name: "web/stable".into() };
    call(&channel, GET, get.encode_to_vec().into()).await.unwrap();
    assert_eq!(ask(&channel, &Method::GET, "/v1/web/stable/version").await.status().as_u16(), 200);
    let wire::UpsertResourceRequest { kind, resource, .. } = upsert("web/stable");
    let update = wire::UpdateResourceRequest { kind, resource, ..Default::default() };
    call(&channel, UPDATE, update.encode_to_vec().into()).await.unwrap();
    let delete = wire::DeleteResourceRequest {
        kind: "channel".into(),
        name: "web/stable".into(),
        revision: String::new(),
    };
    call(&channel, DELETE, delete.encode_to_vec().into()).await.unwrap();
    assert_eq!(ask(&channel, &Method::GET, "/v1/web/stable/version").await.status().as_u16(), 404);
}
