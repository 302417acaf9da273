//! The archives that a server offers: to clients that resume, ask again, ask wrongly, or ask for what is none
//! of theirs.

#![allow(clippy::unwrap_used, dead_code)]

#[path = "find/client.rs"]
mod client;
mod cluster;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use refit_server::Server;
use tempfile::TempDir;

use crate::client::{Client, Reply};
use crate::cluster::{settings, start};

const NAME: &str = "refit-oss-v1.2.3-linux-amd64-bin.tar.gz";

/// A server, a client of it, and the directory that it serves.
struct World {
    server: Server,
    client: Client,
    data: TempDir,
}

impl World {
    async fn new() -> Self {
        let data = tempfile::tempdir().unwrap();
        let server = start(settings(data.path())).await.unwrap();
        let client = Client::connect(&server).await;
        Self { server, client, data }
    }

    fn artifacts(&self) -> PathBuf {
        self.data.path().join("artifacts")
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.artifacts().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    async fn ask(&mut self, method: &str, name: &str, headers: &[(&str, &str)]) -> Reply {
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!("{method} /v1/artifacts/{name} HTTP/1.1\r\nHost: refit\r\n{headers}\r\n");
        self.client.ask(&request).await
    }

    async fn get(&mut self, name: &str, headers: &[(&str, &str)]) -> Reply {
        self.ask("GET", name, headers).await
    }
}

/// Text in which every place looks different from its neighbours.
fn content(length: usize) -> String {
    let mut text: String = (0..).map(|n: usize| format!("{n:x}.")).take(length).collect();
    text.truncate(length);
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_is_served_whole_with_all_that_is_known_of_it() {
    let mut world = World::new().await;
    let text = content(300_000);
    world.write(NAME, text.as_bytes());
    world.write(&format!("{NAME}.sha256"), b"0123\n");
    fs::create_dir(world.artifacts().join("mirror")).unwrap();
    world.write("mirror/a+b c", b"");

    let whole = world.get(NAME, &[]).await;
    assert_eq!((whole.status, whole.body.as_str()), (200, text.as_str()));
    let head = world.ask("HEAD", NAME, &[("Range", "bytes=0-0")]).await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    for reply in [&whole, &head] {
        for (name, value) in [
            ("content-length", "300000"),
            ("content-type", "application/gzip"),
            ("accept-ranges", "bytes"),
            ("x-content-type-options", "nosniff"),
        ] {
            assert_eq!(reply.header(name), Some(value));
        }
        let modified = reply.header("last-modified").unwrap();
        assert!(modified.ends_with(" GMT") && modified.len() == 29, "{modified}");
    }
    assert_eq!(whole.header("etag"), head.header("etag"));
    let sum = world.get(&format!("{NAME}.sha256"), &[]).await;
    assert_eq!(
        (sum.body.as_str(), sum.header("content-type")),
        ("0123\n", Some("text/plain; charset=utf-8"))
    );
    let empty = world.get("mirror/a%2Bb%20c", &[]).await;
    assert_eq!((empty.status, empty.header("content-length")), (200, Some("0")));
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let refused = world.ask(method, NAME, &[("Content-Length", "0")]).await;
        assert_eq!((refused.status, refused.header("allow")), (405, Some("GET, HEAD")), "{method}");
    }

    let metrics = fetch(world.server.diag_address, "/metrics").await;
    for counted in [r#"refit_artifacts_total{status="200"} 4"#, r#"refit_artifacts_total{status="405"} 4"#] {
        assert!(metrics.contains(counted), "{metrics}");
    }
}

async fn fetch(address: std::net::SocketAddr, path: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: refit\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_are_exact_at_every_edge() {
    let mut world = World::new().await;
    // Longer than what is read at once, and not a multiple of it.
    let text = content(200_001);
    world.write(NAME, text.as_bytes());
    world.write("empty", b"");
    for (range, start, end) in [
        ("bytes=0-0", 0, 1),
        ("bytes=0-65535", 0, 65_536),
        ("bytes=65535-65536", 65_535, 65_537),
        ("bytes=200000-", 200_000, 200_001),
        ("bytes=200000-200000", 200_000, 200_001),
        ("bytes=100-999999", 100, 200_001),
        ("bytes=-1", 200_000, 200_001),
        ("bytes=-999999", 0, 200_001),
        ("bytes=0-", 0, 200_001),
    ] {
        let part = world.get(NAME, &[("Range", range)]).await;
        assert_eq!(part.status, 206, "{range}");
        assert_eq!(part.body, text[start..end], "{range}");
        let told = format!("bytes {start}-{}/200001", end - 1);
        assert_eq!(part.header("content-range"), Some(told.as_str()));
        assert_eq!(part.header("content-length"), Some((end - start).to_string().as_str()));
    }
    for (name, range, told) in [
        (NAME, "bytes=200001-", "bytes */200001"),
        (NAME, "bytes=-0", "bytes */200001"),
        (NAME, "bytes=999999999999999999999999-", "bytes */200001"),
        ("empty", "bytes=0-", "bytes */0"),
        ("empty", "bytes=-5", "bytes */0"),
    ] {
        let beyond = world.get(name, &[("Range", range)]).await;
        assert_eq!((beyond.status, beyond.header("content-range")), (416, Some(told)), "{range}");
    }
    for ignored in ["bytes=5-4", "bytes=0-1,4-5", "items=0-1", "bytes=x-", "bytes"] {
        let whole = world.get(NAME, &[("Range", ignored)]).await;
        assert_eq!((whole.status, whole.body.len(), whole.header("content-range")), (200, 200_001, None));
    }
    let twice = world.get(NAME, &[("Range", "bytes=0-1"), ("Range", "bytes=4-5")]).await;
    assert_eq!(twice.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_download_is_the_whole_and_never_of_two_files() {
    let mut world = World::new().await;
    let text = content(500_000);
    let path = world.write(NAME, text.as_bytes());
    let first = world.get(NAME, &[("Range", "bytes=0-199999")]).await;
    let tag = first.header("etag").unwrap().to_owned();
    assert!(tag.starts_with('"') && tag.ends_with('"'), "a strong tag: {tag}");
    let rest = world.get(NAME, &[("Range", "bytes=200000-"), ("If-Range", &tag)]).await;
    assert_eq!((rest.status, rest.header("etag")), (206, Some(tag.as_str())));
    assert!(format!("{}{}", first.body, rest.body) == text);
    let date = first.header("last-modified").unwrap();
    for unsure in [date, r#""other""#, &format!("W/{tag}"), "*", ""] {
        let whole = world.get(NAME, &[("Range", "bytes=200000-"), ("If-Range", unsure)]).await;
        assert_eq!((whole.status, whole.body.len()), (200, 500_000), "{unsure}");
    }
    // Another file of the same length and time.
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    let other = world.write("other", text.replace('1', "2").as_bytes());
    fs::File::options().write(true).open(&other).unwrap().set_modified(time).unwrap();
    fs::rename(&other, &path).unwrap();
    let whole = world.get(NAME, &[("Range", "bytes=200000-"), ("If-Range", &tag)]).await;
    assert!(whole.status == 200 && whole.body == text.replace('1', "2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_it_is_told_so() {
    let mut world = World::new().await;
    let path = world.write(NAME, b"one");
    // Two writes at once may have the same time.
    let early = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::options().write(true).open(&path).unwrap().set_modified(early).unwrap();
    let known = world.get(NAME, &[]).await;
    let (tag, date) = (known.header("etag").unwrap(), known.header("last-modified").unwrap());
    for method in ["GET", "HEAD"] {
        for header in [("If-None-Match", tag), ("If-None-Match", "*"), ("If-Modified-Since", date)] {
            let same = world.ask(method, NAME, &[header, ("Range", "bytes=0-0")]).await;
            assert_eq!((same.status, same.header("etag")), (304, Some(tag)), "{header:?}");
        }
    }
    let early = "Thu, 01 Jan 1970 00:00:00 GMT";
    for headers in [
        &[("If-None-Match", r#""other""#)][..],
        &[("If-None-Match", r#""other""#), ("If-Modified-Since", date)],
        &[("If-Modified-Since", early)],
        &[("If-Modified-Since", "yesterday")],
    ] {
        assert_eq!(world.get(NAME, headers).await.status, 200, "{headers:?}");
    }
    fs::write(&path, b"two").unwrap();
    assert_eq!(world.get(NAME, &[("If-None-Match", tag)]).await.body, "two");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_files_of_the_directory_is_served() {
    let mut world = World::new().await;
    let artifacts = world.artifacts();
    fs::write(world.data.path().join("secret"), "secret").unwrap();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    world.write("inside", b"inside");
    world.write(".hidden", b"secret");
    world.write("%2e%2e", b"odd");
    fs::create_dir_all(artifacts.join("directory/.git")).unwrap();
    world.write("directory/.git/config", b"secret");
    symlink("inside", artifacts.join("link")).unwrap();
    symlink("../secret", artifacts.join("climbs")).unwrap();
    symlink("..", artifacts.join("up")).unwrap();
    symlink(outside.path(), artifacts.join("away")).unwrap();
    symlink(outside.path().join("secret"), artifacts.join("absolute")).unwrap();
    symlink("/proc/self/environ", artifacts.join("proc")).unwrap();
    symlink("round", artifacts.join("round")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        artifacts.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();

    assert_eq!(world.get("inside", &[]).await.body, "inside");
    assert_eq!(world.get("link", &[]).await.body, "inside");
    assert_eq!(world.get("%252e%252e", &[]).await.body, "odd", "decoded once");
    let absolute = format!("%2f{}/secret", outside.path().display());
    let long = "a".repeat(300);
    for none in [
        "",
        "directory",
        "directory/",
        ".",
        "..",
        "../secret",
        "../admin/identity.json",
        "directory/../../secret",
        "%2e%2e/secret",
        "%2e%2e%2fsecret",
        "..%2fsecret",
        ".%2e/secret",
        "%252e%252e/secret",
        "%252e%252e%252fsecret",
        "%c0%ae%c0%ae/secret",
        "..%5csecret",
        "inside/",
        "inside/x",
        "inside%00",
        ".hidden",
        "%2ehidden",
        "directory/.git/config",
        "climbs",
        "up/secret",
        "away/secret",
        "absolute",
        "proc",
        "round",
        "pipe",
        "/inside",
        "directory//../inside",
        "nothing",
        &absolute,
        &long,
    ] {
        let reply = world.get(none, &[]).await;
        assert_eq!((reply.status, reply.body.as_str()), (404, "not found\n"), "{none}");
    }
    // A directory that is a link is what the operator chose.
    let elsewhere = outside.path().join("archives");
    fs::rename(&artifacts, &elsewhere).unwrap();
    assert_eq!(world.get("inside", &[]).await.status, 404);
    symlink(&elsewhere, &artifacts).unwrap();
    assert_eq!(world.get("inside", &[]).await.body, "inside");
}
