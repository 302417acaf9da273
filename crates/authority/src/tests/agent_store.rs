//! An agent's store as the agent uses it: identities that an authority signed, and steps of a rotation that
//! are stopped between two writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use refit_identity::{
    Identities, IdentityBackend, IdentityKey, IdentitySlot, IdentityStoreError, MemoryIdentities, Phase,
    SharedIdentityBackend, SqliteIdentities, Step, next_step,
};
use refit_types::{AgentRole, DataDir};
use rusqlite::Connection;

use super::rotation::advance;
use super::{authority, host_at, host_id, noon};

const ROLE: AgentRole = AgentRole::Node;

/// A store that fails every write once `writes_left` have been made, as if the agent were killed there.
#[derive(Debug, Default)]
struct Killed {
    store: MemoryIdentities,
    writes_left: AtomicUsize,
}

#[async_trait]
impl IdentityBackend for Killed {
    fn describe(&self) -> String {
        "killed".into()
    }

    async fn create(&self, key: IdentityKey, value: Vec<u8>) -> Result<(), IdentityStoreError> {
        self.store.create(key, value).await
    }

    async fn put(&self, key: IdentityKey, value: Vec<u8>) -> Result<(), IdentityStoreError> {
        let left =
            self.writes_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match left {
            Ok(_) => self.store.put(key, value).await,
            Err(_) => Err(IdentityStoreError::Failed { store: self.describe(), reason: "killed".into() }),
        }
    }

    async fn get(&self, key: IdentityKey) -> Result<Option<Vec<u8>>, IdentityStoreError> {
        self.store.get(key).await
    }
}

#[tokio::test]
async fn what_an_agent_is_reads_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = DataDir::new(directory.path()).agent_store();
    let identities = || Identities::new(Arc::new(SqliteIdentities::open(&path, noon()).unwrap().store));
    let store = identities();
    assert!(store.load(ROLE).await.unwrap().active().is_none());
    assert_eq!(store.host_id().await.unwrap(), None);
    assert_eq!(store.decide_host_id(host_id()).await.unwrap(), host_id());
    let other = "00000000-0c5a-4bbd-9d7e-2f1f0f6f3a55".parse().unwrap();
    assert_eq!(store.decide_host_id(other).await.unwrap(), host_id());

    let old = authority("prod");
    let current = host_at(&old, "current", noon());
    store.store(ROLE, IdentitySlot::Current, &current).await.unwrap();
    let init = advance(&old, Phase::Init);
    let step = next_step(&store.load(ROLE).await.unwrap(), &init.authorities()).unwrap();
    store.carry_out(ROLE, &step).await.unwrap();
    drop(store);

    let store = identities();
    let loaded = store.load(ROLE).await.unwrap();
    assert_eq!((loaded.state.phase, loaded.state.presents), (Phase::Init, IdentitySlot::Current));
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
        let backend = Arc::new(Killed { writes_left: usize::MAX.into(), ..Killed::default() });
        let store = Identities::new(backend.clone());
        let mut authority = authority("prod");
        store.store(ROLE, IdentitySlot::Current, &host_at(&authority, "current", noon())).await.unwrap();
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
    for key in [
        IdentityKey::Identity(ROLE, IdentitySlot::Replacement),
        IdentityKey::State(ROLE),
        IdentityKey::HostId,
    ] {
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
        if key == IdentityKey::Identity(ROLE, IdentitySlot::Replacement) {
            let good = host_at(&authority("prod"), "replacement", noon());
            identities.store(ROLE, IdentitySlot::Replacement, &good).await.unwrap();
        }
    }
    assert!(!format!("{store:?} {identities:?}").contains("PRIVATE"));
}
