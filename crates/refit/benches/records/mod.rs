//! Host records for benchmarks, written as a server would.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use refit_backend::{Key, SharedBackend, SqliteBackend, Transaction};
use refit_types::{
    AgentRole, DataDir, Edition, HostId, HostRecord, Labels, Report, RotationMark, Session, UpgraderKind,
};
use uuid::Uuid;

pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// As many as fit into one transaction of any store.
const BATCH: usize = 100;
/// Transactions under way, so that they share their commits.
const AT_ONCE: usize = 32;

/// A host that has reported.
pub fn reported(n: u128, version: &str, labels: Labels) -> Outcome<HostRecord> {
    let (id, now) = (Uuid::from_u128(n), Timestamp::now());
    let roles = vec![AgentRole::Node];
    let mut host_record = HostRecord::joined(HostId::new(id), &format!("host-{n}"), roles, now);
    host_record.report = Some(Report {
        version: version.parse()?,
        edition: Edition::Oss.into(),
        node_labels: Labels::default(),
        instance_labels: labels,
        upgrader: UpgraderKind::Binary.into(),
        updater: None,
        session: Session { id, started_at: now },
        rotation: RotationMark::default(),
        hint_acknowledged: 0,
        platform: None,
    });
    Ok(host_record)
}

/// Puts the records where a server with that data directory will find them.
pub async fn store(data: &Path, host_records: &[HostRecord]) -> Outcome<()> {
    let path = DataDir::new(data).store();
    std::fs::create_dir_all(path.parent().ok_or("no folder")?)?;
    let backend: SharedBackend = Arc::new(SqliteBackend::open(&path)?);
    store_in(&backend, host_records).await
}

/// Puts the records into a store.
pub async fn store_in(backend: &SharedBackend, host_records: &[HostRecord]) -> Outcome<()> {
    let prefix = &Key::new("/instances/v1/default")?;
    let batches = host_records.chunks(BATCH).map(|batch| async move {
        let mut transaction = Transaction::new();
        for host_record in batch {
            transaction =
                transaction.put(&prefix.child(host_record.host_id)?, serde_json::to_vec(host_record)?);
        }
        Outcome::Ok(backend.transact(transaction).await.map(drop)?)
    });
    stream::iter(batches).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await.map(drop)
}
