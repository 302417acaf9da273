//! Live updates of the dashboard: the event stream and page fragments.

use std::time::Duration;

use tokio::io::AsyncReadExt;

use crate::browser::Browser;
use crate::world::{NEW, SOON, World, host};

/// A stream that is read until it says something.
struct Stream {
    browser: Browser,
    heard: String,
}

impl Stream {
    async fn open(mut browser: Browser) -> Self {
        let cookie = browser.cookie.clone().unwrap();
        let request = format!("GET /web/live HTTP/1.1\r\nHost: {}\r\nCookie: {cookie}\r\n\r\n", browser.host);
        browser.client.send(request.as_bytes()).await;
        Self { browser, heard: String::new() }
    }

    async fn until(&mut self, wanted: impl Fn(&str) -> bool, what: &str) {
        let reading = async {
            while !wanted(&self.heard) {
                let mut bytes = [0; 4096];
                let read = self.browser.client.stream.read(&mut bytes).await.unwrap();
                assert!(read > 0, "{what}: {}", self.heard);
                self.heard += &String::from_utf8_lossy(&bytes[..read]);
            }
        };
        tokio::time::timeout(SOON, reading).await.unwrap_or_else(|_| panic!("{what}: never came"));
    }
}

/// The last mark of a part.
fn mark(heard: &str, part: &str) -> Option<u64> {
    let (_, after) = heard.rsplit_once(&format!("\"{part}\":"))?;
    after.split([',', '}']).next()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_tells_which_parts_have_changed() {
    let world = World::start(1).await;
    let mut stream =
        Stream::open(Browser::signed_in(&world.store, &world.servers[0], "alice", "viewer").await).await;
    stream.until(|heard| heard.contains("event: hello"), "hello").await;
    assert!(
        stream.heard.contains("200 OK") && stream.heard.contains("text/event-stream"),
        "{}",
        stream.heard
    );
    let before = stream.heard.clone();
    world.add(1..2, "prod").await;
    stream.until(|heard| mark(heard, "fleet") > mark(&before, "fleet"), "a host came").await;
    let before = stream.heard.clone();
    world.choose(NEW, "regular").await;
    stream
        .until(
            |heard| {
                mark(heard, "rollout") > mark(&before, "rollout")
                    && mark(heard, "audit") > mark(&before, "audit")
            },
            "a version was chosen",
        )
        .await;
    assert!(stream.heard.contains("event: changed"));
    // Once nothing moves, nothing is said: a heartbeat does not make a page be fetched.
    let mut quiet = stream.heard.clone();
    let calm = async {
        loop {
            let more = stream.until(|heard| heard.len() > quiet.len(), "more");
            if tokio::time::timeout(Duration::from_secs(3), more).await.is_err() {
                return;
            }
            quiet = stream.heard.clone();
        }
    };
    tokio::time::timeout(SOON, calm).await.expect("it becomes quiet");
    world.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_middle_of_a_page_comes_alone_and_is_the_same() {
    let world = World::start(1).await;
    world.add(1..4, "prod").await;
    let mut browser = Browser::signed_in(&world.store, &world.servers[0], "alice", "viewer").await;
    let uuid = host(2).to_string();
    for path in ["/web/".to_owned(), "/web/rollout".into(), "/web/audit".into(), format!("/web/hosts/{uuid}")]
    {
        let part = browser.ask("GET", &path, &[("X-Refit-Fragment", "1")], "").await;
        assert_eq!(part.status, 200, "{path}");
        assert!(
            !part.body.contains("<html") && !part.body.contains("<nav aria-label=\"Pages\""),
            "{}",
            part.body
        );
        assert!(part.body.contains("data-live=") && part.body.contains("<h1"), "{}", part.body);
    }
    browser.cookie = None;
    let refused = browser.ask("GET", "/web/", &[("X-Refit-Fragment", "1")], "").await;
    assert_eq!(refused.status, 401);
    world.shut_down().await;
}
