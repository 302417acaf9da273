//! What `find` takes while another server joins and leaves the cluster, against the same load in a cluster at rest.
//! Used by the `find` benchmark.
//!
//! The store is etcd: with SQLite there is one server and no more. The other server is its record in the store,
//! written under a lease and revoked again, exactly as a server does it that starts and stops: a whole process
//! would read the fleet each time, on the same two cores, and its load would be what is measured. A tenth of the
//! hosts is recorded as heard by it, so whether they can be heard changes each time. The rollout is paused: what is
//! written when hosts start is another matter.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use refit_backend::{EtcdAddress, EtcdBackend, Key, SharedBackend, Transaction};
use refit_testbed::Etcd;
use refit_types::HostRecord;
use uuid::Uuid;

use crate::records::{self, Outcome};
use crate::{Figures, start_refit};

/// Fewer than saturate the server: what is measured is a delay.
const CONNECTIONS: &str = "16";
/// Of each kind in turn; the medians count.
const ROUNDS: usize = 3;
const WARM_UP: &str = "2s";
const ROUND: &str = "10s";
/// It joins, and leaves after half of this.
const EVERY: Duration = Duration::from_secs(2);
const LEASE: Duration = Duration::from_secs(15);
/// One of so many hosts is heard by the other server.
const SHARE: usize = 10;

/// The figures at rest, and while servers come and go.
pub async fn measure(folder: &Path, mut host_records: Vec<HostRecord>) -> Outcome<[Figures; 2]> {
    let etcd = Etcd::start().await;
    let url = format!("etcd://{}/bench", etcd.endpoint());
    let backend: SharedBackend = Arc::new(EtcdBackend::connect(&EtcdAddress::parse(&url)?).await?);
    let other = Uuid::new_v4().to_string();
    let key = server_key(&other)?;
    for host_record in host_records.iter_mut().step_by(SHARE) {
        host_record.server = Some(other.as_str().into());
    }
    records::store_in(&backend, &host_records).await?;

    let data_dir = folder.join("data-etcd");
    let refit = start_refit(&data_dir, &["--backend", &url])?;
    let paused = Command::new(env!("CARGO_BIN_EXE_refit"))
        .args(["ctl", "autoupdate", "pause", "--data-dir"])
        .arg(&data_dir)
        .output()?;
    if !paused.status.success() {
        return Err(String::from_utf8_lossy(&paused.stderr).into_owned().into());
    }
    let load = |long: &str| refit.measure(folder, "", long, CONNECTIONS);
    load(WARM_UP)?;
    let [mut at_rest, mut changing] = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        at_rest.push(load(ROUND)?);
        let other = tokio::spawn(come_and_go(backend.clone(), other.clone()));
        let figures = load(ROUND)?;
        if other.is_finished() {
            other.await??;
            return Err("no server comes and goes any more".into());
        }
        other.abort();
        changing.push(figures);
        // One that was there when the load ended would live on into the next round.
        backend.transact(Transaction::new().delete(&key)).await?;
    }
    Ok([Figures::medians(&at_rest), Figures::medians(&changing)])
}

/// Lists a server and takes it off the list again, as one does that starts and stops, until it is aborted.
async fn come_and_go(backend: SharedBackend, id: String) -> Outcome<()> {
    let key = server_key(&id)?;
    loop {
        let record = serde_json::json!({
            "id": id,
            "hostname": "another",
            "version": env!("CARGO_PKG_VERSION"),
            "address": "127.0.0.1:1",
            "started_at": Timestamp::now(),
            "level": 1,
        });
        let lease = backend.grant_lease(LEASE).await?.id;
        let joins = Transaction::new().put_leased(&key, serde_json::to_vec(&record)?, lease);
        backend.transact(joins).await?;
        tokio::time::sleep(EVERY / 2).await;
        backend.revoke_lease(lease).await?;
        tokio::time::sleep(EVERY / 2).await;
    }
}

fn server_key(id: &str) -> Outcome<Key> {
    Ok(Key::new("/servers/v1/default")?.child(id)?)
}
