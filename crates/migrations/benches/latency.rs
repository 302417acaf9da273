//! What readers feel of a migration: the latency of gets while 1,000,000 items are copied in a SQLite
//! store, against the same gets while nothing happens.
//!
//! `cargo bench -p refit-migrations --bench latency`

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use refit_backend::{Key, SharedBackend, SqliteBackend, Transaction};
use refit_migrations::{Registry, Runner};
use refit_resources::channels_v1;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const ITEMS: u64 = 1_000_000;
/// Gets a second from each of a few clients, as a control plane might see: what is measured is how long
/// one takes, not how many there can be.
const CLIENTS: u64 = 4;
const EVERY: Duration = Duration::from_millis(2);
const IDLE_FOR: Duration = Duration::from_secs(10);

fn name(n: u64) -> String {
    format!("fleet/{n:07}")
}

async fn fill(store: &SharedBackend) -> Outcome<()> {
    for chunk in (0..ITEMS).step_by(100).collect::<Vec<_>>().chunks(64) {
        let writes = chunk.iter().map(|start| {
            let mut transaction = Transaction::new();
            for n in *start..(start + 100).min(ITEMS) {
                let key = Key::new(format!("{}/{}", channels_v1().prefix, name(n)));
                let value = format!(r#"{{"version":"1.2.{n}","critical":"no"}}"#);
                transaction = key.map_or(transaction.clone(), |key| transaction.put(&key, value));
            }
            store.transact(transaction)
        });
        futures::future::try_join_all(writes).await?;
    }
    Ok(())
}

/// The latencies of gets until told to stop, sorted.
async fn gets(store: &SharedBackend, stop: Arc<AtomicBool>) -> Outcome<Vec<Duration>> {
    let clients = (0..CLIENTS).map(|client| {
        let (store, stop) = (store.clone(), stop.clone());
        tokio::spawn(async move {
            let mut pace = tokio::time::interval(EVERY);
            let (mut took, mut n) = (Vec::new(), client);
            while !stop.load(Ordering::Relaxed) {
                pace.tick().await;
                n = (n * 6_364_136_223_846_793_005 % ITEMS + 1_442_695) % ITEMS;
                let key = channels_v1().key(&name(n))?;
                let started = Instant::now();
                store.get(&key).await?;
                took.push(started.elapsed());
            }
            Ok::<_, refit_backend::Error>(took)
        })
    });
    let mut all = Vec::new();
    for client in clients.collect::<Vec<_>>() {
        all.extend(client.await??);
    }
    all.sort();
    Ok(all)
}

fn at(sorted: &[Duration], share: f64) -> f64 {
    let index = (sorted.len() as f64 * share) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).map_or(f64::NAN, |took| took.as_secs_f64() * 1e6)
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let store: SharedBackend = Arc::new(SqliteBackend::open(&folder.path().join("store.db"))?);
    fill(&store).await?;

    let stop = Arc::new(AtomicBool::new(false));
    let measuring = tokio::spawn({
        let (store, stop) = (store.clone(), stop.clone());
        async move { gets(&store, stop).await }
    });
    tokio::time::sleep(IDLE_FOR).await;
    stop.store(true, Ordering::Relaxed);
    let idle = measuring.await??;

    let stop = Arc::new(AtomicBool::new(false));
    let measuring = tokio::spawn({
        let (store, stop) = (store.clone(), stop.clone());
        async move { gets(&store, stop).await }
    });
    let (_never, stopped) = tokio::sync::watch::channel(false);
    let runner = Runner::new(
        store.clone(),
        Registry::released(),
        "bench".into(),
        jiff::Timestamp::now,
        Arc::new(|_, _| {}),
        stopped,
    );
    let started = Instant::now();
    runner.run().await?;
    let took = started.elapsed();
    stop.store(true, Ordering::Relaxed);
    let busy = measuring.await??;

    println!(
        "migration of {ITEMS} items: {:.1} s, {:.0} items/s",
        took.as_secs_f64(),
        ITEMS as f64 / took.as_secs_f64()
    );
    println!("{:<28} {:>10} {:>10} {:>7}", "get latency in µs", "migrating", "idle", "ratio");
    for (label, share) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
        let (busy, idle) = (at(&busy, share), at(&idle, share));
        println!("{label:<28} {busy:>10.0} {idle:>10.0} {:>7.2}", busy / idle);
    }
    println!("gets measured: {} migrating, {} idle", busy.len(), idle.len());
    Ok(())
}
