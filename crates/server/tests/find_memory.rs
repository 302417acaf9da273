//! Requests for unknown hosts do not grow the server's memory. Alone in its process, whose memory it measures.

#![allow(clippy::unwrap_used, dead_code)]

#[path = "find/client.rs"]
mod client;
mod cluster;

use client::Client;
use cluster::{settings, start};
use refit_server::Settings;
use uuid::Uuid;

const AT_ONCE: usize = 100;
/// A few bytes kept for each host would be far more.
const MOST_GROWTH: u64 = 2 * 1024 * 1024;

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

async fn ask_for_strangers(client: &mut Client, count: usize) {
    for _ in 0..count / AT_ONCE {
        let request = || format!("GET /webapi/find?host={} HTTP/1.1\r\nHost: refit\r\n\r\n", Uuid::new_v4());
        let text: String = (0..AT_ONCE).map(|_| request()).collect();
        client.send(text.as_bytes()).await;
        for _ in 0..AT_ONCE {
            assert_eq!(client.reply(false).await.status, 200);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_leave_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings { find_requests_per_second: Some(1_000_000), ..settings(directory.path()) };
    let server = start(settings).await.unwrap();
    let mut client = Client::connect(&server).await;
    ask_for_strangers(&mut client, 5_000).await;
    let before = resident();
    ask_for_strangers(&mut client, 50_000).await;
    let growth = resident().saturating_sub(before);
    assert!(growth < MOST_GROWTH, "50,000 hosts left {growth} bytes");
}
