//! Slow clients are cut off and do not delay others.

use std::time::Duration;

use tokio::io::AsyncWriteExt;

use crate::client::Client;
use crate::{HOST, UNCHOSEN, ask, get, server};

/// Longer than a server waits for the headers of a request.
const HUNG_UP_WITHIN: Duration = Duration::from_secs(40);

#[tokio::test(flavor = "multi_thread")]
async fn a_request_may_come_in_pieces() {
    let (server, _directory) = server(0).await;
    let mut client = Client::connect(&server).await;
    for byte in get(&format!("/webapi/find?host={HOST}")).bytes() {
        client.send(&[byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(client.reply(false).await.body, UNCHOSEN);
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_are_cut_off_and_delay_no_others() {
    const EACH: usize = 30;
    let (server, _directory) = server(0).await;
    let mut stopped = Vec::new();
    for number in 0..EACH {
        let mut client = Client::connect(&server).await;
        let text = get(&format!("/webapi/find?host={HOST}"));
        client.send(&text.as_bytes()[..number * 2 + 1]).await;
        stopped.push(client);
    }
    // These never stop, and never come to an end either.
    let mut dripping = Vec::new();
    for _ in 0..EACH {
        let mut client = Client::connect(&server).await;
        dripping.push(tokio::spawn(async move {
            client.send(b"GET /webapi/find HTTP/1.1\r\nx: ").await;
            let mut drops = tokio::time::interval(Duration::from_millis(200));
            loop {
                drops.tick().await;
                if client.stream.write_all(b"y").await.is_err() || client.stream.flush().await.is_err() {
                    return;
                }
            }
        }));
    }

    let mut quick = Client::connect(&server).await;
    for _ in 0..1000 {
        assert_eq!(ask(&mut quick, "/webapi/find").await.body, UNCHOSEN);
    }
    assert_eq!(
        dripping.iter().filter(|task| task.is_finished()).count(),
        0,
        "they have not had their time yet"
    );
    let all_hung_up = async {
        for client in &mut stopped {
            client.rest().await;
        }
        for task in dripping {
            task.await.unwrap();
        }
    };
    tokio::time::timeout(HUNG_UP_WITHIN, all_hung_up).await.expect("the server hangs up on the slow");
    let mut after = Client::connect(&server).await;
    assert_eq!(ask(&mut after, "/webapi/find").await.body, UNCHOSEN);
}
