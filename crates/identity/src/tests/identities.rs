//! The stores of identities: both pass the conformance suite, and the file of the SQLite store is private,
//! durable and never deleted.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use refit_types::{AgentRole, DataDir};
use rusqlite::Connection;

use crate::{
    IdentityBackend, IdentityKey, IdentitySlot, IdentityStoreError, MemoryIdentities, OpenedIdentities,
    SharedIdentityBackend, SqliteIdentities, conformance,
};

const ROLE: AgentRole = AgentRole::Node;

fn noon() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn open(path: &Path) -> OpenedIdentities {
    SqliteIdentities::open(path, noon()).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn memory_conforms() {
    let store: SharedIdentityBackend = Arc::new(MemoryIdentities::default());
    conformance::check(async || store.clone()).await.unwrap();
}

#[tokio::test]
async fn sqlite_conforms() {
    let directory = tempfile::tempdir().unwrap();
    let path = DataDir::new(directory.path()).agent_store();
    let reopen = || -> SharedIdentityBackend { Arc::new(open(&path).store) };
    conformance::check(async || reopen()).await.unwrap();
}

/// A store with one fault.
#[derive(Debug)]
struct Faulty {
    store: MemoryIdentities,
    fault: Fault,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    CreatesTwice,
    Forgets,
    IgnoresPut,
    MixesKeys,
}

impl Faulty {
    fn new(fault: Fault) -> Self {
        Self { store: MemoryIdentities::default(), fault }
    }
}

#[async_trait]
impl IdentityBackend for Faulty {
    fn describe(&self) -> String {
        "faulty".into()
    }

    async fn create(&self, key: IdentityKey, value: Vec<u8>) -> Result<(), IdentityStoreError> {
        match self.fault {
            Fault::CreatesTwice => self.store.put(key, value).await,
            _ => self.store.create(key, value).await,
        }
    }

    async fn put(&self, key: IdentityKey, value: Vec<u8>) -> Result<(), IdentityStoreError> {
        match (self.fault, key) {
            (Fault::IgnoresPut, IdentityKey::State(_)) => Ok(()),
            (Fault::MixesKeys, IdentityKey::Identity(role, _)) => {
                self.store.put(IdentityKey::Identity(role, IdentitySlot::Current), value).await
            }
            _ => self.store.put(key, value).await,
        }
    }

    async fn get(&self, key: IdentityKey) -> Result<Option<Vec<u8>>, IdentityStoreError> {
        match (self.fault, key) {
            (Fault::MixesKeys, IdentityKey::Identity(role, _)) => {
                self.store.get(IdentityKey::Identity(role, IdentitySlot::Current)).await
            }
            _ => self.store.get(key).await,
        }
    }
}

#[tokio::test]
async fn the_suite_finds_what_is_wrong() {
    for fault in [Fault::CreatesTwice, Fault::IgnoresPut, Fault::MixesKeys] {
        let store: SharedIdentityBackend = Arc::new(Faulty::new(fault));
        assert!(conformance::check(async || store.clone()).await.is_err(), "{fault:?}");
    }
    let forgets: fn() -> SharedIdentityBackend = || Arc::new(Faulty::new(Fault::Forgets));
    let error = conformance::check(async || forgets()).await.unwrap_err();
    assert!(error.contains("opened again"), "{error}");
    let used: SharedIdentityBackend = Arc::new(MemoryIdentities::default());
    used.put(IdentityKey::HostId, vec![]).await.unwrap();
    assert!(conformance::check(async || used.clone()).await.unwrap_err().contains("not empty"));
}

#[tokio::test]
async fn the_file_is_private_and_synced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data/proc/sqlite.db");
    let opened = open(&path);
    assert!(opened.quarantined.is_none());
    opened.store.put(IdentityKey::HostId, b"x".to_vec()).await.unwrap();
    let proc = path.parent().unwrap();
    assert_eq!(mode(proc), 0o700);
    assert_eq!(names(proc), ["sqlite.db", "sqlite.db-shm", "sqlite.db-wal"]);
    for name in names(proc) {
        assert_eq!(mode(&proc.join(&name)), 0o600, "{name}");
    }
    let pragma = |name: &'static str| {
        opened.store.with_connection(move |store| {
            store.pragma_query_value(None, name, |row| row.get::<_, rusqlite::types::Value>(0))
        })
    };
    assert_eq!(pragma("synchronous").await.unwrap(), rusqlite::types::Value::Integer(2), "2 is FULL");
    assert_eq!(pragma("journal_mode").await.unwrap(), rusqlite::types::Value::Text("wal".into()));

    drop(opened);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(proc.join("sqlite.db.new"), "half a file").unwrap();
    assert!(open(&path).quarantined.is_none());
    assert_eq!(mode(&path), 0o600);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_can_be_made_while_it_is_open() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sqlite.db");
    let store = open(&path).store;
    store.put(IdentityKey::HostId, vec![7; 5000]).await.unwrap();
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            for round in 0..100u8 {
                store.put(IdentityKey::State(ROLE), vec![round; 5000]).await.unwrap();
            }
        })
    };
    let copy = directory.path().join("copy.db");
    for _ in 0..10 {
        let source = Connection::open(&path).unwrap();
        let mut target = Connection::open(&copy).unwrap();
        let backup = rusqlite::backup::Backup::new(&source, &mut target).unwrap();
        backup.run_to_completion(1, std::time::Duration::from_millis(1), None).unwrap();
        drop(backup);
        target.close().unwrap();
        let copied = open(&copy);
        assert!(copied.quarantined.is_none());
        assert_eq!(copied.store.get(IdentityKey::HostId).await.unwrap(), Some(vec![7; 5000]));
    }
    writer.await.unwrap();
}

#[tokio::test]
async fn a_damaged_file_is_kept_and_told() {
    let sound = {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sqlite.db");
        let store = open(&path).store;
        for key in IdentityKey::all() {
            store.put(key, vec![b'x'; 3000]).await.unwrap();
        }
        drop(store);
        fs::read(&path).unwrap()
    };
    let foreign = {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("other.db");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE items (key, value)").unwrap();
        fs::read(&path).unwrap()
    };
    let scrambled = {
        let mut bytes = sound.clone();
        bytes[4096..8192].fill(0xa5);
        bytes
    };
    let emptied = {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sqlite.db");
        fs::write(&path, &sound).unwrap();
        Connection::open(&path).unwrap().execute_batch("DROP TABLE items").unwrap();
        fs::read(&path).unwrap()
    };
    let cases: &[(&str, &[u8], &str)] = &[
        ("text", b"not a database, but somebody's notes", "not an SQLite database"),
        ("cut within the header", &sound[..60], "not an SQLite database"),
        ("cut off", &sound[..sound.len() / 2], "malformed"),
        ("scrambled", &scrambled, ""),
        ("foreign", &foreign, "another program"),
        ("emptied", &emptied, "no table of identities"),
    ];
    for (what, bytes, expected) in cases {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sqlite.db");
        for number in 1..=2 {
            fs::write(&path, bytes).unwrap();
            let opened = open(&path);
            let aside = opened.quarantined.unwrap_or_else(|| panic!("{what} was taken for a store"));
            let name = if number == 1 { "" } else { ".2" };
            let name = format!("sqlite.db.corrupt-20260301T120000Z{name}");
            assert_eq!(aside.path, directory.path().join(name), "{what}");
            assert!(aside.reason.contains(expected), "{what}: {aside}");
            assert!(aside.to_string().contains(&aside.path.display().to_string()), "{aside}");
            assert_eq!(fs::read(&aside.path).unwrap(), *bytes, "{what}: it is kept as it was");
            assert_eq!(opened.store.get(IdentityKey::HostId).await.unwrap(), None);
            opened.store.put(IdentityKey::HostId, b"new".to_vec()).await.unwrap();
            drop(opened.store);
            let again = open(&path);
            assert!(again.quarantined.is_none());
            assert_eq!(again.store.get(IdentityKey::HostId).await.unwrap(), Some(b"new".to_vec()));
        }
    }
}

#[test]
fn a_journal_goes_with_its_file() {
    for bytes in [&b"notes"[..], b"", b"absent"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sqlite.db");
        if bytes != b"absent" {
            fs::write(&path, bytes).unwrap();
        }
        fs::write(directory.path().join("sqlite.db-wal"), "journal").unwrap();
        let aside = open(&path).quarantined.unwrap().path;
        let journal = format!("{}-wal", aside.display());
        assert_eq!(fs::read(journal).unwrap(), b"journal");
        assert_eq!(aside.exists(), bytes != b"absent");
    }
}

#[test]
fn what_is_not_damaged_is_left_where_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sqlite.db");
    drop(open(&path));
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 9).unwrap();
    let before = fs::read(&path).unwrap();
    let error = SqliteIdentities::open(&path, noon()).unwrap_err().to_string();
    assert!(error.contains("its format 9 is newer than 1"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(names(directory.path()).iter().filter(|name| name.contains("corrupt")).count(), 0);

    let taken = directory.path().join("directory");
    fs::create_dir(&taken).unwrap();
    let error = SqliteIdentities::open(&taken, noon()).unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
    assert!(taken.is_dir());
}
