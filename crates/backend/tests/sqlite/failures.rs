//! Errors of SQLite itself, injected by triggers or by a full disk, and group commit under load.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use refit_backend::{Backend, Error, KeyRange, Read, Revision, SqliteBackend, Transaction};

use crate::conformance::{bytes, key, within};
use crate::{child, child_store, open, place};

/// Makes SQLite itself fail: deeds on keys that hold "poison" are aborted midway.
fn poison(path: &Path, deed: &str, row: &str) {
    let sql = format!(
        "CREATE TRIGGER poison BEFORE {deed} ON items WHEN CAST({row}.key AS TEXT) LIKE '%poison%'
         BEGIN SELECT RAISE(ABORT, 'poisoned'); END"
    );
    rusqlite::Connection::open(path).unwrap().execute_batch(&sql).unwrap();
}

fn antidote(path: &Path) {
    rusqlite::Connection::open(path).unwrap().execute_batch("DROP TRIGGER poison").unwrap();
}

fn failed_because(result: Result<Revision, Error>, why: &str) {
    match result {
        Err(Error::Failed { store, reason }) => {
            assert!(store.starts_with("sqlite /"), "{store}");
            assert!(reason.contains(why), "{reason:?} does not say {why:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_error_midway_undoes_all_of_it() {
    let (_directory, path) = place();
    let store = open(&path);
    let before = store.put(&key("/a"), bytes("1")).await.unwrap();
    let mut watch = store.watch(&KeyRange::all(), before).await.unwrap();
    poison(&path, "INSERT", "NEW");
    let half =
        Transaction::new().put(&key("/a"), bytes("2")).delete(&key("/a0")).put(&key("/poison"), bytes(""));
    failed_because(store.transact(half).await, "poisoned");
    assert_eq!(store.get(&key("/a")).await.unwrap().unwrap().value, "1");
    assert_eq!(store.get(&key("/poison")).await, Ok(None));

    let after = store.put(&key("/a"), bytes("3")).await.unwrap();
    assert_eq!(after.0, before.0 + 1, "a failure takes no revision");
    let event = within("the event", watch.next()).await.unwrap();
    assert_eq!(event.revision, after, "nothing is told of a failure");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_write_of_a_failed_batch_reports_what_is_stored() {
    let (_directory, path) = place();
    let store = open(&path);
    poison(&path, "INSERT", "NEW");
    let writers = (0..64).map(|n| {
        let store = store.clone();
        tokio::spawn(async move {
            let k = key(if n % 8 == 0 { format!("/poison/{n}") } else { format!("/k/{n}") });
            let result = store.put(&k, bytes("x")).await;
            (k, result)
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        let (k, result) = within("an answer", writer).await.unwrap();
        let found = store.get(&k).await.unwrap();
        assert_eq!(found.map(|item| item.revision), result.ok(), "{k}");
    }
}

#[tokio::test]
async fn expired_items_are_absent_though_they_cannot_be_deleted() {
    let (_directory, path) = place();
    let store = open(&path);
    let lease = store.grant_lease(Duration::from_secs(1)).await.unwrap();
    for n in 0..10 {
        let k = key(format!("/poison/{n}"));
        let put = if n % 2 == 0 {
            Transaction::new().put_leased(&k, bytes(""), lease.id)
        } else {
            Transaction::new().put(&k, bytes(""))
        };
        store.transact(put).await.unwrap();
    }
    let revision = store.range(&KeyRange::all(), 1).await.unwrap().revision;
    let mut watch = store.watch(&KeyRange::all(), revision).await.unwrap();
    poison(&path, "DELETE", "OLD");
    within("the expiry", async {
        while store.get(&key("/poison/0")).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let all = KeyRange::all();
    let page = |limit| Read::Range { range: all.clone(), limit };
    let pages = store.read(&[page(10), page(5), page(4)]).await.unwrap().pages;
    let counts: Vec<_> = pages.iter().map(|page| (page.items.len(), page.more)).collect();
    assert_eq!(counts, [(5, false), (5, false), (4, true)]);
    assert_eq!(pages[0].revision, revision);
    failed_because(store.put(&key("/b"), bytes("")).await, "poisoned");

    antidote(&path);
    for _ in 0..5 {
        assert_eq!(within("the deletion", watch.next()).await.unwrap().revision.0, revision.0 + 1);
    }
    store.put(&key("/b"), bytes("")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_absent_for_a_reader_is_absent_for_a_busy_writer() {
    let (_directory, path) = place();
    let store = open(&path);
    let others = (0..8).map(|n| {
        let store = store.clone();
        tokio::spawn(async move { while store.put(&key(format!("/busy/{n}")), bytes("")).await.is_ok() {} })
    });
    let others: Vec<_> = others.collect();
    let lease = store.grant_lease(Duration::from_secs(1)).await.unwrap();
    let held = key("/held");
    store.transact(Transaction::new().put_leased(&held, bytes("me"), lease.id)).await.unwrap();
    within("the expiry", async {
        while store.get(&held).await.unwrap().is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    store.create(&held, bytes("you")).await.unwrap();
    assert_eq!(store.revoke_lease(lease.id).await, Err(Error::LeaseNotFound(lease.id)));
    assert_eq!(store.get(&held).await.unwrap().unwrap().value, "you");
    others.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writes_share_commits() {
    let (_directory, path) = place();
    let store = open(&path);
    let (writers, each) = (64, 20);
    let tasks = (0..writers).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            for n in 0..each {
                store.create(&key(format!("/k/{writer}/{n}")), bytes("x")).await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert_eq!(store.writes(), writers * each);
    assert!(store.commits() * 4 < store.writes(), "{} commits", store.commits());
    let page = store.range(&KeyRange::all(), 1).await.unwrap();
    assert_eq!(page.revision, Revision(writers * each), "each write has a revision of its own");
}

#[tokio::test]
async fn one_writer_waits_for_nobody() {
    let (_directory, path) = place();
    let store = open(&path);
    for n in 0..20 {
        store.put(&key("/k"), bytes(format!("{n}"))).await.unwrap();
        assert_eq!(store.commits(), n + 1);
    }
}

/// Runs on a file system of 4 MiB, half of it ballast.
async fn fill_the_disk(path: &Path) {
    let ballast = path.with_file_name("ballast");
    fs::write(&ballast, vec![1; 2 << 20]).unwrap();
    let store = open(path);
    let pair = |n: u64| {
        let value = bytes(vec![7; 20_000]);
        Transaction::new().put(&key(format!("/a/{n}")), value.clone()).put(&key(format!("/b/{n}")), value)
    };
    let mut written = 0;
    let full = loop {
        match store.transact(pair(written)).await {
            Ok(revision) => assert_eq!(revision, Revision(written + 1)),
            Err(error) => break error,
        }
        written += 1;
    };
    assert!(written > 5, "the file system was not empty");
    failed_because(Err(full), "the disk is full");
    failed_because(store.transact(pair(written)).await, "the disk is full");
    assert_whole(&store, written).await;

    fs::remove_file(ballast).unwrap();
    assert_eq!(store.transact(pair(written)).await, Ok(Revision(written + 1)));
    assert_whole(&store, written + 1).await;
    drop(store);
    assert_whole(&open(path), written + 1).await;
}

async fn assert_whole(store: &SqliteBackend, written: u64) {
    for parent in ["/a", "/b"] {
        let page = store.range(&KeyRange::below(&key(parent)), 1000).await.unwrap();
        assert_eq!(page.items.len() as u64, written);
        assert!(page.items.iter().all(|item| item.value == vec![7; 20_000]));
        assert_eq!(page.revision, Revision(written));
    }
}

#[tokio::test]
async fn a_full_disk_is_reported_and_recovered_from() {
    if let Some(path) = child_store() {
        return fill_the_disk(&path).await;
    }
    let directory = tempfile::tempdir().unwrap();
    // The mount is in a name space of its own: nobody else sees it, and it goes with the process.
    let in_tmpfs = |script: &str| {
        let mut command = Command::new("unshare");
        let mount = format!("mount -t tmpfs -o size=4m none '{}' && {script}", directory.path().display());
        command.args(["--map-root-user", "--mount", "sh", "-c", &mount, "sh"]);
        command
    };
    let test =
        child("failures::a_full_disk_is_reported_and_recovered_from", &directory.path().join("store.db"));
    let mut command = in_tmpfs("exec \"$@\"");
    command.arg(test.get_program()).args(test.get_args());
    command.envs(test.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
