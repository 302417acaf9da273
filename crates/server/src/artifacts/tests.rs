//! Downloads in process: the limit on concurrent ones, stalled clients, and files that change while they are served.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use axum::body::to_bytes;
use axum::http::Request;
use futures::StreamExt;
use tempfile::TempDir;

use super::*;

fn serving(downloads: usize) -> (Artifacts, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let artifacts = Artifacts::new(directory.path().into(), Metrics::new("0.0.0", "memory"));
    (Artifacts { room: Arc::new(Semaphore::new(downloads)), ..artifacts }, directory)
}

/// A file that was last written long ago: two writes at once may have the same time.
fn write_early(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
}

async fn get(artifacts: &Artifacts, name: &str) -> Response<Body> {
    let request = Request::get(format!("{PREFIX}{name}")).body(()).unwrap();
    artifacts.respond(&request.into_parts().0).await
}

async fn whole(response: Response<Body>) -> Vec<u8> {
    to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec()
}

#[tokio::test]
async fn downloads_under_way_have_a_bound_and_make_room_when_they_end() {
    let (artifacts, directory) = serving(2);
    fs::write(directory.path().join("a"), vec![b'a'; 1 << 20]).unwrap();
    let (one, two) = (get(&artifacts, "a").await, get(&artifacts, "a").await);
    assert_eq!((one.status(), two.status()), (StatusCode::OK, StatusCode::OK));
    let refused = get(&artifacts, "a").await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.headers()[RETRY_AFTER], "15");
    assert_eq!(whole(one).await.len(), 1 << 20);
    drop(two);
    for _ in 0..2 {
        let room = tokio::time::timeout(Duration::from_secs(30), artifacts.room.acquire()).await;
        room.unwrap().unwrap().forget();
    }
}

#[tokio::test]
async fn a_client_that_takes_nothing_loses_its_place() {
    let (artifacts, directory) = serving(1);
    let artifacts = Artifacts { takes_within: Duration::from_millis(10), ..artifacts };
    fs::write(directory.path().join("a"), vec![b'a'; 1 << 20]).unwrap();
    let stalled = get(&artifacts, "a").await;
    let room = tokio::time::timeout(Duration::from_secs(30), artifacts.room.acquire()).await;
    assert!(room.is_ok());
    let error = to_bytes(stalled.into_body(), usize::MAX).await.unwrap_err();
    assert!(format!("{error:?}").contains("takes nothing"), "{error:?}");
}

#[tokio::test]
async fn a_file_that_is_replaced_is_served_to_its_end_as_it_was() {
    let (artifacts, directory) = serving(1);
    let path = directory.path().join("a");
    fs::write(&path, vec![b'1'; 1 << 20]).unwrap();
    let mut body = get(&artifacts, "a").await.into_body().into_data_stream();
    let mut bytes = body.next().await.unwrap().unwrap().to_vec();
    let new = directory.path().join("new");
    fs::write(&new, vec![b'2'; 1 << 20]).unwrap();
    fs::rename(&new, &path).unwrap();
    while let Some(chunk) = body.next().await {
        bytes.extend(chunk.unwrap());
    }
    assert!(bytes.len() == 1 << 20 && bytes.iter().all(|byte| *byte == b'1'));
}

#[tokio::test]
async fn a_file_that_is_written_to_is_not_served_as_a_mixture() {
    for shorter in [false, true] {
        let (artifacts, directory) = serving(1);
        let path = directory.path().join("a");
        write_early(&path, &[b'1'; 1 << 20]);
        let mut body = get(&artifacts, "a").await.into_body().into_data_stream();
        let mut bytes = body.next().await.unwrap().unwrap().to_vec();
        fs::write(&path, vec![b'2'; if shorter { 1 << 10 } else { 1 << 20 }]).unwrap();
        let broken = loop {
            match body.next().await {
                Some(Ok(chunk)) => bytes.extend(chunk),
                other => break other,
            }
        };
        assert!(matches!(broken, Some(Err(_))), "{} bytes, {broken:?}", bytes.len());
        assert!(bytes.iter().all(|byte| *byte == b'1'));
    }
}

#[test]
fn types_follow_from_names() {
    for (name, kind) in [
        ("refit-oss-v1.2.3-linux-amd64-bin.tar.gz", "application/gzip"),
        ("A.TGZ", "application/gzip"),
        ("a.tar.gz.sha256", "text/plain; charset=utf-8"),
        ("a.gz.html", "application/octet-stream"),
        ("a", "application/octet-stream"),
    ] {
        assert_eq!(content_type(name.as_bytes()), kind);
    }
}
