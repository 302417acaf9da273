//! Responses of `find`, and conditional requests.

use http::{Method, Request};
use refit_types::Edition;
use std::path::Path;
use tower::ServiceExt;

use crate::client::{self, Client};
use crate::cluster::{connect, release, settings};
use crate::{HOST, UNCHOSEN, ask, get, server};

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_told_what_to_run() {
    let (server, _directory) = server(0).await;
    let mut client = Client::connect(&server).await;
    let mut tags = Vec::new();
    for path in ["/v1/webapi/find", "/webapi/find"] {
        for query in ["", "?", &format!("?host={HOST}"), &format!("?update_id={HOST}&group=default")] {
            let reply = ask(&mut client, &format!("{path}{query}")).await;
            assert_eq!((reply.status, reply.body.as_str()), (200, UNCHOSEN), "{path}{query}");
            assert_eq!(reply.header("content-type"), Some("application/json"));
            assert_eq!(reply.header("cache-control"), Some("no-cache"));
            assert!(reply.header("date").is_some());
            tags.push(reply.header("etag").unwrap().to_owned());
        }
    }
    tags.dedup();
    assert_eq!(tags.len(), 1, "one answer has one tag: {tags:?}");
    assert!(
        tags[0].starts_with('"') && tags[0].ends_with('"') && tags[0].len() == 18,
        "a strong one: {tags:?}"
    );
    for path in ["/v1/webapi/find/", "/webapi/find/x", "/v1/webapi/fin", "//webapi/find"] {
        assert_eq!(ask(&mut client, path).await.status, 404, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn head_is_get_without_the_body() {
    let (server, _directory) = server(0).await;
    let mut client = Client::connect(&server).await;
    let got = ask(&mut client, "/webapi/find").await;
    let head = client.ask("HEAD /webapi/find HTTP/1.1\r\nHost: refit\r\n\r\n").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    for name in ["content-type", "content-length", "etag", "cache-control"] {
        assert_eq!(head.header(name), got.header(name), "{name}");
    }
    assert_eq!(head.header("content-length"), Some(UNCHOSEN.len().to_string().as_str()));
    let next = ask(&mut client, "/webapi/find").await;
    assert_eq!(next.body, UNCHOSEN, "no stray bytes in between");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_the_answer_is_told_so() {
    let (server, _directory) = server(0).await;
    let mut client = Client::connect(&server).await;
    let tag = ask(&mut client, "/webapi/find").await.header("etag").unwrap().to_owned();
    let conditional = |method: &str, tags: &str| {
        format!("{method} /webapi/find?host={HOST} HTTP/1.1\r\nHost: refit\r\nIf-None-Match: {tags}\r\n\r\n")
    };
    for tags in [&*tag, &format!("W/{tag}"), "*", &format!(r#""other", W/"x",{tag}"#)] {
        for method in ["GET", "HEAD"] {
            let reply = client.ask(&conditional(method, tags)).await;
            assert_eq!((reply.status, reply.body.as_str()), (304, ""), "{method} {tags}");
            assert_eq!(reply.header("etag"), Some(&*tag));
            assert_eq!(reply.header("cache-control"), Some("no-cache"));
            assert_eq!(reply.header("content-type"), None);
        }
    }
    for tags in [r#""other""#, tag.trim_matches('"'), "", &format!("x{tag}"), &"\"a\",".repeat(500)] {
        let reply = client.ask(&conditional("GET", tags)).await;
        assert_eq!((reply.status, reply.body.as_str()), (200, UNCHOSEN), "{tags}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_edition_is_that_of_the_build() {
    let directory = tempfile::tempdir().unwrap();
    let config = settings(directory.path()).check(Path::new("/nowhere")).unwrap();
    let release = refit_server::Release { edition: Edition::EnterpriseFips, ..release() };
    let server = refit_server::Server::start(config, release).await.unwrap();
    let reply = ask(&mut Client::connect(&server).await, "/webapi/find").await;
    let expected = UNCHOSEN
        .replacen(r#""oss""#, r#""enterprise-fips""#, 1)
        .replace(r#""edition":"oss","fips":false"#, r#""edition":"ent","fips":true"#);
    assert_eq!(reply.body, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_version_of_http_gets_the_same() {
    let (server, _directory) = server(0).await;
    for protocols in [&[][..], &[b"http/1.1".as_slice()]] {
        let mut client = Client::offering(&server, protocols).await;
        assert_eq!(ask(&mut client, "/webapi/find").await.body, UNCHOSEN, "{protocols:?}");
    }
    let old = "GET /webapi/find HTTP/1.0\r\n\r\n";
    let mut client = Client::connect(&server).await;
    assert_eq!(client.ask(old).await.body, UNCHOSEN);
    assert_eq!(client.rest().await, b"", "HTTP/1.0 is one answer");

    let channel = connect(&server, None).await;
    let request = |method: Method, tag: &str| {
        let uri = format!("https://refit/webapi/find?host={HOST}");
        let request = Request::builder().method(method).uri(uri).header("if-none-match", tag);
        request.body(tonic::body::Body::empty()).unwrap()
    };
    let got = channel.clone().oneshot(request(Method::GET, "x")).await.unwrap();
    assert_eq!((got.status().as_u16(), got.version()), (200, http::Version::HTTP_2));
    let tag = got.headers()["etag"].to_str().unwrap().to_owned();
    let length = got.headers()["content-length"].clone();
    assert_eq!(client::body(got.into_body()).await, UNCHOSEN);
    let head = channel.clone().oneshot(request(Method::HEAD, "x")).await.unwrap();
    assert_eq!((head.status().as_u16(), &head.headers()["content-length"]), (200, &length));
    assert_eq!(client::body(head.into_body()).await, "");
    let unchanged = channel.clone().oneshot(request(Method::GET, &tag)).await.unwrap();
    assert_eq!(unchanged.status().as_u16(), 304);
    let refused = channel.oneshot(request(Method::POST, "x")).await.unwrap();
    assert_eq!(refused.status().as_u16(), 405);
    assert_eq!(refused.headers()["allow"], "GET, HEAD");
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests_are_answered_in_order() {
    let (server, _directory) = server(0).await;
    let mut client = Client::connect(&server).await;
    let tag = ask(&mut client, "/webapi/find").await.header("etag").unwrap().to_owned();
    let kinds = [
        (get(&format!("/webapi/find?host={HOST}")), 200, UNCHOSEN),
        (get("/healthz"), 200, "ok\n"),
        ("HEAD /webapi/find HTTP/1.1\r\nHost: refit\r\n\r\n".into(), 200, ""),
        (format!("GET /v1/webapi/find HTTP/1.1\r\nHost: refit\r\nIf-None-Match: {tag}\r\n\r\n"), 304, ""),
        (
            "POST /webapi/find HTTP/1.1\r\nHost: refit\r\nContent-Length: 5\r\n\r\nhello".into(),
            405,
            "use GET or HEAD\n",
        ),
        (get("/v1/stable/version"), 404, "not found\n"),
        ("GET /webapi/find HTTP/1.1\r\nHost: refit\r\nContent-Length: 5\r\n\r\nhello".into(), 200, UNCHOSEN),
    ];
    let all: Vec<_> = (0..40).map(|n| &kinds[n * 3 % kinds.len()]).collect();
    let text: String = all.iter().map(|(request, ..)| request.as_str()).collect();
    client.send(text.as_bytes()).await;
    for (number, (request, status, body)) in all.iter().enumerate() {
        let reply = client.reply(request.starts_with("HEAD")).await;
        assert_eq!((reply.status, reply.body.as_str()), (*status, *body), "answer {number} to {request}");
    }
}
