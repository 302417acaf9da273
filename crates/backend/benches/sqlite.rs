//! What the store costs on top of SQLite itself: durable writes by many at once, and long ranges.
//!
//! `cargo bench -p refit-backend --bench sqlite`; both sides run on the same disk, in turns.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use refit_backend::{Backend, Key, KeyRange, SqliteBackend};
use rusqlite::{Connection, params};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const WRITERS: u64 = 64;
const ITEMS: u64 = 100_000;
const VALUE: [u8; 200] = [7; 200];
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(3);

fn path_of(writer: u64, n: u64) -> String {
    format!("/bench/{writer:02}/{n:08}")
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

struct Puts {
    per_second: f64,
    mean_batch: u64,
    get_latencies: Vec<f64>,
}

/// Durable puts through the trait, and, if asked, gets meanwhile.
async fn puts(path: &Path, with_gets: bool) -> Outcome<Puts> {
    let store = SqliteBackend::open(path)?;
    let stop = Arc::new(AtomicBool::new(false));
    let started = Instant::now();
    let writers = (0..WRITERS).map(|writer| {
        let (store, stop) = (store.clone(), stop.clone());
        tokio::spawn(async move {
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                store.put(&Key::new(path_of(writer, n))?, Bytes::from_static(&VALUE)).await?;
                n += 1;
            }
            Ok::<u64, refit_backend::Error>(n)
        })
    });
    let writers: Vec<_> = writers.collect();
    let mut get_latencies = Vec::new();
    while started.elapsed() < ROUND {
        if with_gets {
            let asked = Instant::now();
            store.get(&Key::new(path_of(7, 3))?).await?;
            get_latencies.push(asked.elapsed().as_secs_f64() * 1e6);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut written = 0;
    for writer in writers {
        written += writer.await??;
    }
    let per_second = written as f64 / started.elapsed().as_secs_f64();
    Ok(Puts { per_second, mean_batch: store.writes() / store.commits().max(1), get_latencies })
}

/// The same rows in the same tables with the same settings, written by nothing but SQLite.
fn raw_puts(path: &Path, batch: u64) -> Outcome<f64> {
    drop(SqliteBackend::open(path)?);
    let connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 8192; PRAGMA cache_size = -32768;
         PRAGMA temp_store = MEMORY;",
    )?;
    let sql = "INSERT INTO items (key, value, revision, lease) VALUES (?, ?, ?, NULL)";
    let mut insert = connection.prepare(sql)?;
    let started = Instant::now();
    let mut written = 0;
    while started.elapsed() < ROUND {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        for _ in 0..batch {
            let path = path_of(written % WRITERS, written / WRITERS);
            insert.execute(params![path.as_bytes(), &VALUE[..], written.cast_signed()])?;
            written += 1;
        }
        connection.execute_batch("COMMIT")?;
    }
    Ok(written as f64 / started.elapsed().as_secs_f64())
}

/// All items by pages of a thousand; how many a second.
async fn pages(path: &Path) -> Outcome<f64> {
    let store = SqliteBackend::open(path)?;
    let started = Instant::now();
    let mut items = Vec::new();
    let mut rest = KeyRange::all();
    loop {
        let mut page = store.range(&rest, 1000).await?;
        items.append(&mut page.items);
        match items.last() {
            Some(last) if page.more => rest = rest.after(&last.key),
            _ => break,
        }
    }
    let elapsed = started.elapsed().as_secs_f64();
    assert_eq!(items.len() as u64, ITEMS);
    Ok(items.len() as f64 / elapsed)
}

fn raw_select(path: &Path) -> Outcome<f64> {
    let connection = Connection::open(path)?;
    connection.execute_batch("PRAGMA cache_size = -8192; PRAGMA temp_store = MEMORY;")?;
    let sql = "SELECT key, value, revision, lease FROM items WHERE key >= ? AND key < ? ORDER BY key";
    let mut select = connection.prepare(sql)?;
    let started = Instant::now();
    let rows = select.query_map(params![b"/", b"0"], |row| {
        let (key, value): (Vec<u8>, Vec<u8>) = (row.get(0)?, row.get(1)?);
        Ok((key, value, row.get::<_, i64>(2)?, row.get::<_, Option<i64>>(3)?))
    })?;
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    let elapsed = started.elapsed().as_secs_f64();
    assert_eq!(rows.len() as u64, ITEMS);
    Ok(rows.len() as f64 / elapsed)
}

fn fill(path: &Path) -> Outcome<()> {
    drop(SqliteBackend::open(path)?);
    let mut connection = Connection::open(path)?;
    let transaction = connection.transaction()?;
    for n in 0..ITEMS {
        let path = path_of(n % WRITERS, n / WRITERS);
        let row = params![path.as_bytes(), &VALUE[..], n.cast_signed()];
        transaction.execute("INSERT INTO items (key, value, revision) VALUES (?, ?, ?)", row)?;
    }
    Ok(transaction.commit()?)
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let fresh = |name: String| directory.path().join(name).join("store.db");
    println!("{:<34}{:>12}{:>12}{:>8}", "", "store", "SQLite", "ratio");

    let (mut ours, mut raw, mut batches) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let done = puts(&fresh(format!("puts-{round}")), false).await?;
        ours.push(done.per_second);
        batches.push(done.mean_batch as f64);
        raw.push(raw_puts(&fresh(format!("raw-{round}")), done.mean_batch)?);
        eprintln!("DEBUG {ours:?} {raw:?} {batches:?}");
    }
    let (ours, raw) = (median(ours), median(raw));
    println!("{:<34}{ours:>12.0}{raw:>12.0}{:>8.2}", "durable puts/s, 64 writers", ours / raw);
    println!("{:<34}{:>12.0}", "  writes per commit", median(batches));

    let done = puts(&fresh("gets".into()), true).await?;
    let mut latencies = done.get_latencies;
    latencies.sort_by(f64::total_cmp);
    let percentile =
        |percent: usize| latencies.get(latencies.len() * percent / 100).copied().unwrap_or(f64::NAN);
    println!("{:<34}{:>12.0}", "get meanwhile, p50 µs", percentile(50));
    println!("{:<34}{:>12.0}", "get meanwhile, p99 µs", percentile(99));

    let path = fresh("range".into());
    fill(&path)?;
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(pages(&path).await?);
        raw.push(raw_select(&path)?);
    }
    let (ours, raw) = (median(ours), median(raw));
    println!("{:<34}{ours:>12.0}{raw:>12.0}{:>8.2}", "items/s, range of 100,000", ours / raw);
    Ok(())
}
