//! Malformed and hostile requests.

use rand::RngExt;
use uuid::Uuid;

use crate::client::Client;
use crate::{HOST, UNCHOSEN, ask, get, server};

#[tokio::test(flavor = "multi_thread")]
async fn a_uuid_that_cannot_be_read_gets_what_strangers_get() {
    let (server, _directory) = server(0).await;
    let mut client = Client::connect(&server).await;
    let escaped: String = HOST.bytes().map(|byte| format!("%{byte:02X}")).collect();
    for query in [
        "host=".to_owned(),
        "host".into(),
        "host=%".into(),
        "host=%zz%f".into(),
        "host=%00".into(),
        "host=%FF%FE".into(),
        "host=../../etc/passwd".into(),
        "host=%27;drop%20table".into(),
        format!("host={escaped}"),
        format!("host={HOST}&host=x"),
        format!("host=x&host={HOST}"),
        format!("update_id={HOST}&update_id=x&host="),
        format!("host={HOST}&{}", "a=b&".repeat(490)),
        "&=&=&&==".into(),
        "??host=?".into(),
        "a".repeat(2048),
    ] {
        assert!(query.len() <= 2048, "{}", query.len());
        let reply = ask(&mut client, &format!("/v1/webapi/find?{query}")).await;
        assert_eq!((reply.status, reply.body.as_str()), (200, UNCHOSEN), "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_long_is_refused() {
    let (server, _directory) = server(0).await;
    let mut client = Client::connect(&server).await;
    for length in [2049, 10_000, 40_000] {
        let reply = ask(&mut client, &format!("/webapi/find?host={}", "a".repeat(length - 5))).await;
        assert_eq!(
            (reply.status, reply.body.as_str()),
            (414, "the query is longer than 2 KiB\n"),
            "{length}"
        );
    }
    assert_eq!(ask(&mut client, "/webapi/find").await.status, 200, "the connection is still good");

    // More than a request line may be, or the headers together, or their number: refused before they are read whole.
    let lines = "x: y\r\n".repeat(1000);
    for request in [
        get(&format!("/webapi/find?host={}", "a".repeat(1 << 20))),
        format!("GET /webapi/find HTTP/1.1\r\nx: {}\r\n\r\n", "a".repeat(1 << 20)),
        format!("GET /webapi/find HTTP/1.1\r\n{lines}\r\n"),
    ] {
        let mut client = Client::connect(&server).await;
        let (mut reading, mut writing) = tokio::io::split(client.stream);
        // The server may hang up before it was given everything.
        let sending = tokio::spawn(async move {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut writing, request.as_bytes()).await;
        });
        let mut answer = Vec::new();
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut reading, &mut answer).await;
        sending.await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let refused = ["HTTP/1.1 414 ", "HTTP/1.1 431 "].iter().any(|status| answer.starts_with(status));
        assert!(refused, "{answer:?}");
        client = Client::connect(&server).await;
        assert_eq!(ask(&mut client, "/webapi/find").await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_methods_are_refused() {
    let (server, _directory) = server(0).await;
    let mut client = Client::connect(&server).await;
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FIND"] {
        let request = format!("{method} /v1/webapi/find HTTP/1.1\r\nHost: refit\r\n\r\n");
        let reply = client.ask(&request).await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, HEAD")), "{method}");
    }
    let grpc = "POST /webapi/find HTTP/1.1\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(client.ask(grpc).await.status, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_is_refused_and_hung_up_on() {
    let (server, _directory) = server(0).await;
    for nonsense in [
        "GET /webapi/find\r\n\r\n",
        "GET /webapi/find HTTP/1.1\r\nno colon\r\n\r\n",
        "GET /webapi/find HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        "GET /webapi/find HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "GET /webapi/find?\u{7f} HTTP/1.1\r\n\r\n",
        "GET /webapi/find?a b HTTP/1.1\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
    ] {
        let mut client = Client::connect(&server).await;
        client.send(nonsense.as_bytes()).await;
        let answer = String::from_utf8(client.rest().await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{nonsense:?} got {answer:?}");
    }
    let mut client = Client::connect(&server).await;
    assert_eq!(ask(&mut client, "/webapi/find").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn random_queries_are_all_answered() {
    const COUNT: usize = 10_000;
    let (server, _directory) = server(0).await;
    let mut client = Client::connect(&server).await;
    let random = |number: usize| {
        if number.is_multiple_of(2) {
            return format!("host={}", Uuid::new_v4());
        }
        let mut random = rand::rng();
        let length = random.random_range(0..80);
        let alphabet: &[u8] = b"host=update_id&%0123456789abcdef-+;.~/?";
        (0..length).map(|_| char::from(alphabet[random.random_range(0..alphabet.len())])).collect()
    };
    for batch in 0..COUNT / 100 {
        let queries: Vec<String> = (0..100).map(|number| random(batch + number)).collect();
        let text: String = queries.iter().map(|query| get(&format!("/webapi/find?{query}"))).collect();
        client.send(text.as_bytes()).await;
        for query in queries {
            let reply = client.reply(false).await;
            assert_eq!((reply.status, reply.body.as_str()), (200, UNCHOSEN), "{query}");
        }
    }
}
