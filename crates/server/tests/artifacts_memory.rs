//! A download uses the same memory for an archive of any size. Alone in its process, whose memory it measures.

#![allow(clippy::unwrap_used, dead_code)]

#[path = "find/client.rs"]
mod client;
mod cluster;

use client::Client;
use cluster::{settings, start};
use tokio::io::AsyncReadExt;

const MIB: u64 = 1024 * 1024;
/// Far more than what one download has under way, far less than the archive.
const MOST_GROWTH: u64 = 16 * MIB;

fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

async fn begin(client: &mut Client, name: &str) {
    let request = format!("GET /v1/artifacts/{name} HTTP/1.1\r\nHost: refit\r\nConnection: close\r\n\r\n");
    client.send(request.as_bytes()).await;
}

async fn download(client: &mut Client, name: &str) -> u64 {
    begin(client, name).await;
    let (mut buffer, mut total) = (vec![0; 256 * 1024], 0);
    loop {
        match client.stream.read(&mut buffer).await {
            Ok(0) => return total,
            Ok(read) => total += read as u64,
            Err(error) => panic!("after {total} bytes: {error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_huge_archive_is_streamed_with_flat_memory() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(settings(directory.path())).await.unwrap();
    for (name, size) in [("small", 4 * MIB), ("huge", 1024 * MIB)] {
        let file = std::fs::File::create(directory.path().join("artifacts").join(name)).unwrap();
        file.set_len(size).unwrap();
    }
    let mut client = Client::connect(&server).await;
    assert!(download(&mut client, "small").await > 4 * MIB);
    let before = peak();
    // One that takes nothing, all the while.
    let mut slow = Client::connect(&server).await;
    begin(&mut slow, "huge").await;
    let mut client = Client::connect(&server).await;
    assert!(download(&mut client, "huge").await > 1024 * MIB);
    drop(slow);
    let growth = peak() - before;
    assert!(growth < MOST_GROWTH, "1 GiB took {growth} bytes");
}
