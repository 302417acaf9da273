//! Rate limiting.

use std::time::Duration;

use refit_server::Server;
use refit_testbed::eventually;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::Client;
use crate::cluster::{connect, settings, start};
use crate::{UNCHOSEN, ask, server};

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_asks_too_often_has_to_wait() {
    let (server, _directory) = server(1).await;
    let mut client = Client::connect(&server).await;
    let mut answered = 0;
    let refused = loop {
        let reply = ask(&mut client, "/webapi/find").await;
        match reply.status {
            200 => answered += 1,
            _ => break reply,
        }
        assert!(answered < 1000, "there is no limit");
    };
    assert!(
        (20..30).contains(&answered),
        "20 seconds' worth, and what came in the time of this test: {answered}"
    );
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert_eq!(refused.body, "too many requests from this address; try again later\n");
    let mut other = Client::connect(&server).await;
    assert_eq!(
        last_of_many(&mut other, "GET").await,
        429,
        "it is the address that counts, not the connection"
    );
    for method in ["HEAD", "POST"] {
        assert_eq!(last_of_many(&mut client, method).await, 429, "{method}");
    }
    assert_eq!(ask(&mut client, "/healthz").await.status, 200, "nothing else is limited");
    connect(&server, None).await;

    let counted = metrics(&server).await;
    for status in [200, 429] {
        let name = format!("refit_find_total{{status=\"{status}\"}} ");
        let count: usize =
            counted.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap();
        assert!(count >= 20, "{status}: {count}");
    }

    eventually("it is answered again", Duration::from_secs(30), async || {
        ask(&mut Client::connect(&server).await, "/webapi/find").await.body == UNCHOSEN
    })
    .await;
}

/// The status of the last of so many that no pause between two of them lets it through.
async fn last_of_many(client: &mut Client, method: &str) -> u16 {
    const MANY: usize = 20;
    let request = format!("{method} /webapi/find HTTP/1.1\r\nHost: refit\r\n\r\n");
    client.send(request.repeat(MANY).as_bytes()).await;
    let mut last = 0;
    for _ in 0..MANY {
        last = client.reply(method == "HEAD").await.status;
    }
    last
}

async fn metrics(server: &Server) -> String {
    let mut stream = TcpStream::connect(server.diag_address).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_a_limit_unless_it_is_turned_off() {
    let directory = tempfile::tempdir().unwrap();
    let limited = start(settings(directory.path())).await.unwrap();
    let (unlimited, _directory) = server(0).await;
    let many = crate::get("/webapi/find").repeat(100);
    for (server, refusals) in [(limited, true), (unlimited, false)] {
        let mut client = Client::connect(&server).await;
        let mut statuses = Vec::new();
        for _ in 0..60 {
            client.send(many.as_bytes()).await;
            for _ in 0..100 {
                statuses.push(client.reply(false).await.status);
            }
        }
        assert!(statuses[..2000].iter().all(|status| *status == 200), "the burst is 2,000");
        assert_eq!(statuses.contains(&429), refusals);
    }
}
