use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use refit_types::{AgentRole, DataDir};
use rusqlite::Connection;

use super::rotation::advance;
use super::{authority, host_at, host_id, noon};
use crate::{
    Identities, IdentityBackend, IdentityKey, IdentityStoreError, MemoryIdentities, OpenedIdentities, Phase,
    SharedIdentityBackend, Slot, SqliteIdentities, Step, conformance, next_step,
};

const ROLE: AgentRole = AgentRole::Node;

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
    writes_left: AtomicUsize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    CreatesTwice,
    Forgets,
    IgnoresPut,
    MixesKeys,
    Stops,
}

impl Faulty {
    fn new(fault: Fault, writes_left: usize) -> Self {
        Self { store: MemoryIdentities::default(), fault, writes_left: AtomicUsize::new(writes_left) }
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
        let left =
            self.writes_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match (self.fault, key) {
            (Fault::Stops, _) if left.is_err() => {
                Err(IdentityStoreError::Failed { store: self.describe(), reason: "killed".into() })
            }
            (Fault::IgnoresPut, IdentityKey::State(_)) => Ok(()),
            (Fault::MixesKeys, IdentityKey::Identity(role, _)) => {
                self.store.put(IdentityKey::Identity(role, Slot::Current), value).await
            }
            _ => self.store.put(key, value).await,
        }
    }

    async fn get(&self, key: IdentityKey) -> Result<Option<Vec<u8>>, IdentityStoreError> {
        match (self.fault, key) {
            (Fault::MixesKeys, IdentityKey::Identity(role, _)) => {
                self.store.get(IdentityKey::Identity(role, Slot::Current)).await
            }
            _ => self.store.get(key).await,
        }
    }
}

#[tokio::test]
async fn the_suite_finds_what_is_wrong() {
    for fault in [Fault::CreatesTwice, Fault::IgnoresPut, Fault::MixesKeys] {
        let store: SharedIdentityBackend = Arc::new(Faulty::new(fault, usize::MAX));
        assert!(conformance::check(async || store.clone()).await.is_err(), "{fault:?}");
    }
    let forgets: fn() -> SharedIdentityBackend = || Arc::new(Faulty::new(Fault::Forgets, usize::MAX));
    let error = conformance::check(async || forgets()).await.unwrap_err();
    assert!(error.contains("opened again"), "{error}");
    let used: SharedIdentityBackend = Arc::new(MemoryIdentities::default());
    used.put(IdentityKey::HostId, vec![]).await.unwrap();
    assert!(conformance::check(async || used.clone()).await.unwrap_err().contains("not empty"));
}

#[tokio::test]
async fn what_an_agent_is_reads_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = DataDir::new(directory.path()).agent_store();
    let identities = || Identities::new(Arc::new(open(&path).store));
    let store = identities();
    assert!(store.load(ROLE).await.unwrap().active().is_none());
    assert_eq!(store.host_id().await.unwrap(), None);
    assert_eq!(store.decide_host_id(host_id()).await.unwrap(), host_id());
    let other = "00000000-0c5a-4bbd-9d7e-2f1f0f6f3a55".parse().unwrap();
    assert_eq!(store.decide_host_id(other).await.unwrap(), host_id());

    let old = authority("prod");
    let current = host_at(&old, "current", noon());
    store.store(ROLE, Slot::Current, &current).await.unwrap();
    let init = advance(&old, Phase::Init);
    let step = next_step(&store.load(ROLE).await.unwrap(), &init.authorities()).unwrap();
    store.carry_out(ROLE, &step).await.unwrap();
    drop(store);

    let store = identities();
    let loaded = store.load(ROLE).await.unwrap();
    assert_eq!((loaded.state.phase, loaded.state.presents), (Phase::Init, Slot::Current));
    assert_eq!(loaded.active().unwrap().certificate(), current.certificate());
    assert_eq!(loaded.active().unwrap().authorities().len(), 2);
    assert!(matches!(next_step(&loaded, &init.authorities()).unwrap(), Step::Nothing));
    assert_eq!(store.host_id().await.unwrap(), Some(host_id()));
    assert!(store.load(AgentRole::Db).await.unwrap().active().is_none(), "roles are apart");

    let raw = Connection::open(&path).unwrap();
    let keys: Vec<String> = raw
        .prepare("SELECT key FROM items ORDER BY key")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(keys, ["/host_uuid", "/ids/node/current", "/states/node/state"]);
}

/// Each step of a rotation, stopped before each of its writes.
#[tokio::test]
async fn a_stop_between_two_writes_does_no_harm() {
    use Phase::*;
    for stop_after in 0..12 {
        let backend = Arc::new(Faulty::new(Fault::Stops, usize::MAX));
        let store = Identities::new(backend.clone());
        let mut authority = authority("prod");
        store.store(ROLE, Slot::Current, &host_at(&authority, "current", noon())).await.unwrap();
        backend.writes_left.store(stop_after, Ordering::SeqCst);
        for phase in [Init, UpdateClients, UpdateServers, Standby] {
            authority = advance(&authority, phase);
            for _ in 0..10 {
                let loaded = store.load(ROLE).await.unwrap();
                let step = next_step(&loaded, &authority.authorities()).unwrap();
                let done = match &step {
                    Step::Nothing => break,
                    Step::Rejoin => panic!("lost at {phase} after {stop_after} writes"),
                    Step::Request { into } => {
                        store.store(ROLE, *into, &host_at(&authority, into.as_str(), noon())).await
                    }
                    step => store.carry_out(ROLE, step).await,
                };
                if done.is_err() {
                    // What the state says was done has been done.
                    let found = store.load(ROLE).await.unwrap();
                    let active = found.active().unwrap();
                    let is_there = active.certificate().is_signed_by(authority.certificate())
                        && *active.authorities() == authority.authorities().tls;
                    assert!(found.state.phase != phase || is_there, "{phase} after {stop_after} writes");
                    backend.writes_left.store(usize::MAX, Ordering::SeqCst);
                }
            }
            let loaded = store.load(ROLE).await.unwrap();
            let active = loaded.active().unwrap().certificate();
            assert!(active.is_signed_by(authority.certificate()), "{phase} after {stop_after} writes");
            assert_eq!(loaded.state.phase, phase);
        }
    }
}

#[tokio::test]
async fn what_cannot_be_used_is_named_and_left() {
    let store: SharedIdentityBackend = Arc::new(MemoryIdentities::default());
    let identities = Identities::new(store.clone());
    let pem = host_at(&authority("prod"), "current", noon()).key().to_pem();
    for key in [IdentityKey::Identity(ROLE, Slot::Replacement), IdentityKey::State(ROLE), IdentityKey::HostId]
    {
        store.put(key, pem.clone().into_bytes()).await.unwrap();
        let error = match key {
            IdentityKey::HostId => identities.host_id().await.map(drop).unwrap_err(),
            _ => identities.load(ROLE).await.map(drop).unwrap_err(),
        };
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(&format!("{key} in memory cannot be used")), "{shown}");
        assert!(!shown.contains(&pem.lines().nth(1).unwrap()[..12]), "{shown}");
        assert_eq!(store.get(key).await.unwrap().unwrap(), pem.as_bytes());
        store.put(key, b"{}".to_vec()).await.unwrap();
        if key == IdentityKey::Identity(ROLE, Slot::Replacement) {
            let good = host_at(&authority("prod"), "replacement", noon());
            identities.store(ROLE, Slot::Replacement, &good).await.unwrap();
        }
    }
    assert!(!format!("{store:?} {identities:?}").contains("PRIVATE"));
}

#[tokio::test]
async fn the_file_is_private_and_synced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data/proc/sqlite.db");
    let opened = open(&path);
    assert!(opened.set_aside.is_none());
    opened.store.put(IdentityKey::HostId, b"x".to_vec()).await.unwrap();
    let proc = path.parent().unwrap();
    assert_eq!(mode(proc), 0o700);
    assert_eq!(names(proc), ["sqlite.db", "sqlite.db-shm", "sqlite.db-wal"]);
    for name in names(proc) {
        assert_eq!(mode(&proc.join(&name)), 0o600, "{name}");
    }
    let pragma = |name: &'static str| {
        opened.store.ask(move |store| {
            store.pragma_query_value(None, name, |row| row.get::<_, rusqlite::types::Value>(0))
        })
    };
    assert_eq!(pragma("synchronous").await.unwrap(), rusqlite::types::Value::Integer(2), "2 is FULL");
    assert_eq!(pragma("journal_mode").await.unwrap(), rusqlite::types::Value::Text("wal".into()));

    drop(opened);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(proc.join("sqlite.db.new"), "half a file").unwrap();
    assert!(open(&path).set_aside.is_none());
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
        assert!(copied.set_aside.is_none());
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
            let aside = opened.set_aside.unwrap_or_else(|| panic!("{what} was taken for a store"));
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
            assert!(again.set_aside.is_none());
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
        let aside = open(&path).set_aside.unwrap().path;
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
    assert!(error.contains("something else than a file"), "{error}");
    assert!(taken.is_dir());
}
