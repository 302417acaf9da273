//! Three servers as processes on one etcd, with the one that migrates killed or stalled at many points
//! inside a migration of thousands of items: the others finish, and nothing is lost or written late.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use futures::StreamExt;
use refit_backend::{
    Backend, EtcdAddress, EtcdBackend, Item, Key, KeyRange, Revision, SharedBackend, Transaction,
};
use refit_migrations::{Record, list_history};
use refit_resources::{channels_v1, channels_v2};
use refit_testbed::{Etcd, Process, Signal, directory, eventually, sweep};
use serde_json::Value;
use tempfile::TempDir;

/// Enough for a few hundred transactions.
const ITEMS: usize = 8000;
/// A lock outlives its holder by ten seconds, and two holders die one after the other on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Rounds under way at once: they mostly wait for leases to end.
const AT_ONCE: usize = 4;

/// A store of its own for one round, filled as servers before the migration left it.
struct Round {
    backend: SharedBackend,
    url: String,
    seeded: Revision,
}

struct Server {
    process: Process,
    folder: TempDir,
}

fn key(path: &str) -> Key {
    Key::new(path).unwrap()
}

impl Round {
    async fn new(etcd: &Etcd, name: &str) -> Self {
        let url = format!("etcd://{}/{name}", etcd.endpoint());
        let backend = EtcdBackend::connect(&EtcdAddress::parse(&url).unwrap()).await.unwrap();
        let mut seeded = Revision(0);
        for start in (0..ITEMS).step_by(100) {
            let items = (start..start + 100).map(|n| {
                let critical = if n % 3 == 0 { "yes" } else { "no" };
                let key = channels_v1().key(&format!("fleet/{n:05}")).unwrap();
                (key, format!(r#"{{"version":"1.2.{n}","critical":"{critical}"}}"#))
            });
            let fill = items.fold(Transaction::new(), |tx, (key, value)| tx.put(&key, value));
            seeded = backend.transact(fill).await.unwrap();
        }
        Self { backend: std::sync::Arc::new(backend), url, seeded }
    }

    fn start(&self) -> Server {
        let folder = directory();
        let data_dir = folder.path().join("data");
        let arguments = [
            ("--data-dir", data_dir.to_str().unwrap()),
            ("--listen", "127.0.0.1:0"),
            ("--diag-listen", "127.0.0.1:0"),
            ("--backend", &self.url),
        ];
        let arguments = arguments.iter().flat_map(|(flag, value)| [flag.to_string(), value.to_string()]);
        let arguments: Vec<String> = ["server".to_owned()].into_iter().chain(arguments).collect();
        let process = Process::start(env!("CARGO_BIN_EXE_refit"), &arguments, &folder.path().join("log"));
        Server { process, folder }
    }

    async fn read_all(&self, range: KeyRange) -> Vec<Item> {
        let (mut items, mut rest) = (Vec::new(), range);
        loop {
            let page = self.backend.range(&rest, 1000).await.unwrap();
            items.extend(page.items);
            match items.last() {
                Some(last) if page.more => rest = rest.after(&last.key),
                _ => return items,
            }
        }
    }

    async fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let items = self.read_all(KeyRange::below(&key("/channels"))).await;
        items.into_iter().map(|item| (item.key.to_string(), item.value.to_vec())).collect()
    }

    /// Waits until so many items were copied since the round was set up.
    async fn copied(&self, count: usize) {
        let waiting = async {
            let mut watch = self.backend.watch(&channels_v2().range(), self.seeded).await.unwrap();
            for _ in 0..count {
                watch.next().await.unwrap();
            }
        };
        let waited = tokio::time::timeout(TIMEOUT, waiting).await;
        waited.unwrap_or_else(|_| panic!("{count} items were not copied within {TIMEOUT:?}"));
    }

    async fn history(&self) -> Option<Record> {
        list_history(&self.backend, None, 10).await.unwrap().0.pop()
    }

    async fn applied(&self) -> Record {
        let done = async || self.history().await.is_some_and(|record| record.success);
        eventually("the migration is applied", TIMEOUT, done).await;
        self.history().await.unwrap()
    }

    /// Which of the servers has that id: each listed its own address in the store.
    async fn index_of(&self, id: &str, servers: &[Server]) -> Option<usize> {
        let record = self.backend.get(&key(&format!("/servers/v1/default/{id}"))).await.unwrap()?;
        let record: Value = serde_json::from_slice(&record.value).unwrap();
        let address = record["address"].as_str().unwrap().to_owned();
        servers.iter().position(|server| server.endpoint().as_deref() == Some(&address))
    }

    /// The server that holds the lock now, if it is one of these and has not just given it up.
    async fn holder_among(&self, servers: &[Server]) -> Option<usize> {
        let lock = self.backend.get(&key("/migrations/lock/0001")).await.unwrap()?;
        self.index_of(std::str::from_utf8(&lock.value).unwrap(), servers).await
    }
}

impl Server {
    fn endpoint(&self) -> Option<String> {
        let path: PathBuf = self.folder.path().join("data/admin/endpoint");
        std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }
}

/// What one server that nobody disturbs makes of it.
async fn clean_run(etcd: &Etcd) -> BTreeMap<String, Vec<u8>> {
    let round = Round::new(etcd, "clean").await;
    let _server = round.start();
    assert_eq!(round.applied().await.message.split(':').next(), Some("success"));
    let contents = round.contents().await;
    assert_eq!(contents.len(), 2 * ITEMS);
    contents
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_holder_is_killed_at_many_points() {
    let etcd = Etcd::start().await;
    let clean = clean_run(&etcd).await;
    let rounds = sweep(4, 100);
    let kills = futures::stream::iter(0..rounds)
        .map(|n| {
            let (etcd, clean) = (&etcd, &clean);
            async move {
                let round = Round::new(etcd, &format!("kill-{n}")).await;
                let mut servers: Vec<Server> = (0..3).map(|_| round.start()).collect();
                let mut killed = 0;
                let first = 1 + n * (ITEMS - 1) / rounds;
                for point in [first, first + (ITEMS - first) / 2] {
                    round.copied(point).await;
                    if let Some(holder) = round.holder_among(&servers).await {
                        servers.remove(holder).process.kill();
                        killed += 1;
                    }
                }
                let record = round.applied().await;
                assert!(round.contents().await == *clean, "round {n}: the store differs from a clean run's");
                if killed > 0 {
                    let by = round.index_of(&record.server, &servers).await;
                    assert!(by.is_some(), "round {n}: applied by {}, which is dead", record.server);
                }
                let late = round.start();
                let serves = async || late.endpoint().is_some();
                eventually("a server that comes later serves", TIMEOUT, serves).await;
                assert_eq!(round.history().await.as_ref(), Some(&record), "round {n}: the history changed");
                killed
            }
        })
        .buffer_unordered(AT_ONCE)
        .fold(0, async |sum, killed| sum + killed)
        .await;
    println!("{kills} lock holders killed in {rounds} rounds, none lost a write");
    assert!(kills >= rounds, "only {kills} holders were caught in {rounds} rounds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_stalls_past_its_lease_writes_nothing_more() {
    let etcd = Etcd::start().await;
    let rounds = sweep(4, 40);
    let stalls = futures::stream::iter(0..rounds)
        .map(|n| {
            let etcd = &etcd;
            async move {
                let round = Round::new(etcd, &format!("stall-{n}")).await;
                let mut servers: Vec<Server> = (0..3).map(|_| round.start()).collect();
                round.copied(1 + n * (ITEMS / 2) / rounds).await;
                let Some(holder) = round.holder_among(&servers).await else { return 0 };
                let stalled = servers.remove(holder);
                stalled.process.signal(Signal::STOP);
                if n % 2 == 1 {
                    // The lock goes and its lease stays, so that keeping it alive tells the holder nothing.
                    round.backend.delete(&key("/migrations/lock/0001")).await.unwrap();
                }
                let record = round.applied().await;
                // Give the stalled one something to write, should it still believe in its lock.
                round.backend.delete_range(&channels_v2().range()).await.unwrap();
                let before = round.read_all(KeyRange::below(&key("/channels"))).await;
                stalled.process.signal(Signal::CONT);
                let noticed = async || stalled.log().contains("lost the lock of a migration");
                eventually("the stalled one notices", TIMEOUT, noticed).await;
                let after = round.read_all(KeyRange::below(&key("/channels"))).await;
                assert!(after == before, "round {n}: the stalled server wrote after its lock was gone");
                assert_eq!(round.history().await, Some(record), "round {n}: the history changed");
                1
            }
        })
        .buffer_unordered(AT_ONCE)
        .fold(0, async |sum, stalled| sum + stalled)
        .await;
    println!("{stalls} lock holders stalled in {rounds} rounds, none wrote late");
    assert!(stalls * 2 > rounds, "only {stalls} holders were caught in {rounds} rounds");
}
