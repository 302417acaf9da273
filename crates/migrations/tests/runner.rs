//! How a server works through what is outstanding: in order, once, under the lock, and honestly.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use refit_backend::{Error, Key, KeyRange, MemoryBackend, SharedBackend, Transaction};
use refit_migrations::{
    Guarded, Migration, MigrationError, Outcome, Record, Registry, RunError, Runner, list_history,
};
use tokio::sync::watch;

type Seen = Arc<Mutex<Vec<(u32, Outcome)>>>;

struct Server {
    runner: Runner,
    seen: Seen,
    stop: watch::Sender<bool>,
}

fn server(backend: &SharedBackend, name: &str, migrations: &[Migration]) -> Server {
    let seen = Seen::default();
    let (stop, stopped) = watch::channel(false);
    let observe = {
        let seen = seen.clone();
        Arc::new(move |number, outcome| seen.lock().unwrap().push((number, outcome)))
    };
    let registry = Registry::of(migrations.to_vec());
    let runner = Runner::new(backend.clone(), registry, name.into(), jiff::Timestamp::now, observe, stopped);
    Server { runner, seen, stop }
}

impl Server {
    /// What it said last of that migration.
    fn outcome(&self, number: u32) -> Option<Outcome> {
        let seen = self.seen.lock().unwrap();
        seen.iter().rev().find(|(of, _)| *of == number).map(|(_, outcome)| *outcome)
    }
}

fn store() -> SharedBackend {
    Arc::new(MemoryBackend::default())
}

fn key(path: &str) -> Key {
    Key::new(path).unwrap()
}

fn append<'a>(store: &'a Guarded, word: &'static str) -> BoxFuture<'a, Result<String, MigrationError>> {
    Box::pin(async move {
        let trail = key("/trail");
        let page = store.range(&KeyRange::between(&trail, &key("/trail/0")), 1).await?;
        let so_far = page.items.first().map(|item| item.value.to_vec()).unwrap_or_default();
        let text = [so_far, word.as_bytes().to_vec()].concat();
        store.transact(Transaction::new().put(&trail, text)).await?;
        Ok("success".into())
    })
}

/// Fails while `/broken` exists.
fn fragile(store: &Guarded) -> BoxFuture<'_, Result<String, MigrationError>> {
    Box::pin(async move {
        let broken = key("/broken");
        let page = store.range(&KeyRange::between(&broken, &key("/broken/0")), 1).await?;
        match page.items.first() {
            Some(item) => {
                Err(MigrationError::Item { key: item.key.to_string(), reason: "it is broken".into() })
            }
            None => append(store, "2").await,
        }
    })
}

/// Says that it runs, then waits for `/go` before it writes.
fn patient(store: &Guarded) -> BoxFuture<'_, Result<String, MigrationError>> {
    Box::pin(async move {
        store.transact(Transaction::new().put(&key("/running"), "")).await?;
        while store.range(&KeyRange::between(&key("/go"), &key("/go/0")), 1).await?.items.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        append(store, "p").await
    })
}

fn numbered(number: u32, run: Run) -> Migration {
    let name = ["zero", "one", "two", "three"][number as usize];
    Migration { number, name, source: name, run }
}

type Run = for<'a> fn(&'a Guarded) -> BoxFuture<'a, Result<String, MigrationError>>;

fn three() -> [Migration; 3] {
    [numbered(1, |s| append(s, "1")), numbered(2, fragile), numbered(3, |s| append(s, "3"))]
}

async fn trail(backend: &SharedBackend) -> String {
    let item = backend.get(&key("/trail")).await.unwrap();
    item.map(|item| String::from_utf8(item.value.to_vec()).unwrap()).unwrap_or_default()
}

async fn history(backend: &SharedBackend) -> Vec<Record> {
    list_history(backend, None, 100).await.unwrap().0
}

async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap_or_else(|_| panic!("{what}: never"));
}

#[tokio::test]
async fn they_run_in_order_and_once() {
    let backend = store();
    let one = server(&backend, "one", &three());
    let summary = one.runner.run().await.unwrap();
    assert_eq!((summary.applied, summary.found), (vec![1, 2, 3], vec![]));
    let again = server(&backend, "two", &three()).runner.run().await.unwrap();
    assert_eq!((again.applied, again.found), (vec![], vec![1, 2, 3]));
    assert_eq!(trail(&backend).await, "123");
    let records = history(&backend).await;
    assert_eq!(
        records.iter().map(|r| (r.number, r.success, &*r.server)).collect::<Vec<_>>(),
        [(1, true, "one"), (2, true, "one"), (3, true, "one")]
    );
    assert_eq!(records[0].message, "success");
    let (first, more) = list_history(&backend, Some(1), 1).await.unwrap();
    assert_eq!((first[0].number, more), (2, true));
    let locks = backend.range(&KeyRange::below(&key("/migrations/lock")), 10).await.unwrap();
    assert_eq!(locks.items, []);
}

#[tokio::test]
async fn ten_servers_at_once_apply_each_once() {
    let backend = store();
    let servers: Vec<_> = (0..10).map(|n| server(&backend, &format!("s{n}"), &three())).collect();
    let summaries = join_all(servers.iter().map(|server| server.runner.run())).await;
    let applied: usize = summaries.iter().map(|summary| summary.as_ref().unwrap().applied.len()).sum();
    assert_eq!(applied, 3);
    assert_eq!(trail(&backend).await, "123");
}

#[tokio::test]
async fn a_failure_stops_the_ones_after_it_and_can_be_applied_again() {
    let backend = store();
    backend.put(&key("/broken"), "".into()).await.unwrap();
    let one = server(&backend, "one", &three());
    let failed = one.runner.run().await.unwrap_err();
    assert_eq!(
        failed.to_string(),
        "migration 0002 \"two\" failed: /broken cannot be migrated: it is broken; \
         mend or remove it, then run `refitctl migrations apply`"
    );
    let records = history(&backend).await;
    assert_eq!(records.iter().map(|r| (r.number, r.success)).collect::<Vec<_>>(), [(1, true), (2, false)]);
    assert!(records[1].message.contains("it is broken"));
    assert_eq!(trail(&backend).await, "1");
    assert_eq!(one.seen.lock().unwrap().last(), Some(&(2, Outcome::Failure)));

    let two = server(&backend, "two", &three());
    assert!(two.runner.run().await.is_err(), "another server's failure is tried again, here");
    assert_eq!(history(&backend).await[1].server, "two");

    backend.delete(&key("/broken")).await.unwrap();
    assert_eq!(one.runner.apply().await.unwrap().applied, [2, 3]);
    assert_eq!(trail(&backend).await, "123");
    assert_eq!(one.runner.apply().await.unwrap().applied, [] as [u32; 0], "nothing is due");
    assert_eq!([1, 2, 3].map(|number| one.outcome(number)), [Some(Outcome::Success); 3]);
}

#[tokio::test]
async fn a_server_learns_what_another_applied() {
    let backend = store();
    backend.put(&key("/broken"), "".into()).await.unwrap();
    let (one, two) = (server(&backend, "one", &three()), Arc::new(server(&backend, "two", &three())));
    one.runner.run().await.unwrap_err();
    two.runner.run().await.unwrap_err();
    let following = tokio::spawn({
        let two = two.clone();
        async move { two.runner.follow_history().await }
    });
    backend.delete(&key("/broken")).await.unwrap();
    one.runner.apply().await.unwrap();
    until("two knows", async || [2, 3].map(|n| two.outcome(n)) == [Some(Outcome::Success); 2]).await;

    // A server that starts later reads it, and what it cannot read changes nothing.
    let three = Arc::new(server(&backend, "three", &three()));
    let reading = tokio::spawn({
        let three = three.clone();
        async move { three.runner.follow_history().await }
    });
    until("three knows", async || three.outcome(3) == Some(Outcome::Success)).await;
    backend.put(&key("/migrations/0003"), "{".into()).await.unwrap();
    backend.delete(&key("/migrations/0002")).await.unwrap();
    until("the watch has passed it", async || three.outcome(2) == Some(Outcome::Pending)).await;
    assert_eq!(three.outcome(3), Some(Outcome::Success));
    for (server, task) in [(two, following), (three, reading)] {
        server.stop.send(true).unwrap();
        task.await.unwrap();
    }
}

#[tokio::test]
async fn an_altered_or_reordered_migration_is_refused_before_anything_runs() {
    let backend = store();
    server(&backend, "one", &three()[..1]).runner.run().await.unwrap();
    let mut altered = three();
    altered[0].source = "something else";
    let reordered =
        [Migration { number: 1, ..three()[1].clone() }, Migration { number: 2, ..three()[0].clone() }];
    for wrong in [&altered[..], &reordered[..]] {
        let refused = server(&backend, "two", wrong).runner.run().await.unwrap_err();
        assert!(matches!(refused, RunError::Altered { number: 1, .. }), "{refused}");
        assert!(refused.to_string().contains("altered or reordered"), "{refused}");
    }
    assert_eq!(trail(&backend).await, "1");
}

#[tokio::test]
async fn a_newer_servers_history_is_no_fault() {
    let backend = store();
    server(&backend, "new", &three()).runner.run().await.unwrap();
    let older = server(&backend, "old", &three()[..2]).runner.run().await.unwrap();
    assert_eq!(older.found, [1, 2]);
}

#[tokio::test]
async fn a_failed_migration_may_be_mended_by_a_later_release() {
    let backend = store();
    backend.put(&key("/broken"), "".into()).await.unwrap();
    server(&backend, "one", &three()).runner.run().await.unwrap_err();
    let mut mended = three();
    mended[1] = Migration { source: "two, mended", run: |s| append(s, "m"), ..mended[1].clone() };
    server(&backend, "two", &mended).runner.run().await.unwrap();
    assert_eq!(trail(&backend).await, "1m3");
}

#[tokio::test]
async fn only_one_run_is_in_flight() {
    let backend = store();
    let slow = [numbered(1, patient)];
    let one = Arc::new(server(&backend, "one", &slow));
    let two = server(&backend, "two", &slow);
    let running = tokio::spawn({
        let one = one.clone();
        async move { one.runner.run().await }
    });
    until("running", async || backend.get(&key("/running")).await.unwrap().is_some()).await;
    let here = one.runner.run().await.unwrap_err();
    assert!(here.to_string().contains("already, by this server"), "{here}");
    let elsewhere = two.runner.apply().await.unwrap_err();
    assert!(elsewhere.to_string().contains("already, by server one"), "{elsewhere}");
    backend.put(&key("/go"), "".into()).await.unwrap();
    assert_eq!(running.await.unwrap().unwrap().applied, [1]);
}

#[tokio::test]
async fn a_holder_whose_lock_is_gone_writes_nothing_more() {
    let backend = store();
    let slow = [numbered(1, patient)];
    let one = Arc::new(server(&backend, "one", &slow));
    let running = tokio::spawn({
        let one = one.clone();
        async move { one.runner.run().await }
    });
    until("running", async || backend.get(&key("/running")).await.unwrap().is_some()).await;
    // As if its lease had run out while it stalled, and another server had taken over and finished.
    let lock = backend.get(&key("/migrations/lock/0001")).await.unwrap().unwrap();
    backend.delete(&lock.key).await.unwrap();
    let other = server(&backend, "two", &[Migration { run: |s| append(s, "o"), ..slow[0].clone() }]);
    assert_eq!(other.runner.run().await.unwrap().applied, [1]);
    backend.put(&key("/go"), "".into()).await.unwrap();
    let summary = running.await.unwrap().unwrap();
    assert_eq!((summary.applied, summary.found), (vec![], vec![1]));
    assert_eq!(trail(&backend).await, "o", "the first one's late write must not be there");
    assert_eq!(history(&backend).await[0].server, "two");
}

#[tokio::test]
async fn stopping_gives_the_lock_up_at_once() {
    let backend = store();
    let one = Arc::new(server(&backend, "one", &[numbered(1, patient)]));
    let running = tokio::spawn({
        let one = one.clone();
        async move { one.runner.run().await }
    });
    until("running", async || backend.get(&key("/running")).await.unwrap().is_some()).await;
    one.stop.send(true).unwrap();
    assert!(matches!(running.await.unwrap(), Err(RunError::Stopped)));
    assert_eq!(backend.get(&key("/migrations/lock/0001")).await, Ok(None));
    assert_eq!(history(&backend).await, []);
}

#[tokio::test]
async fn a_server_that_dies_holding_the_lock_is_waited_for_and_replaced() {
    let backend = store();
    let dead = backend.grant_lease(Duration::from_secs(2)).await.unwrap();
    let lock = key("/migrations/lock/0001");
    backend.transact(Transaction::new().put_leased(&lock, "dead", dead.id)).await.unwrap();
    let one = server(&backend, "one", &three()[..1]);
    let run = tokio::time::timeout(Duration::from_secs(60), one.runner.run()).await.unwrap().unwrap();
    assert_eq!(run.applied, [1]);
    assert_eq!(backend.keep_alive(dead.id).await, Err(Error::LeaseNotFound(dead.id)), "only after its time");
}
