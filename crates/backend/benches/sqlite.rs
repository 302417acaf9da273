//! What the store costs on top of SQLite itself: durable writes by many at once, and long ranges.
//!
//! `cargo bench -p refit-backend --bench sqlite`; both sides run on the same disk, in turns.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use refit_backend::{Backend, Key, KeyRange, SqliteBackend};
use rusqlite::{Connection, params};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const WRITERS: u64 = 64;
const ITEMS: u64 = 100_000;
const VALUE: [u8; 200] = [7; 200];
const ROUNDS: usize = 5;
const SLICES: u64 = 40;
const SLICE: Duration = Duration::from_millis(250);

/// More keys than one writer gets through in a slice: every put is a new key.
const STEP: u64 = 1_000_000;

fn path_of(writer: u64, n: u64) -> String {
    format!("/bench/{writer:02}/{n:08}")
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Durable puts through the trait for one slice of time: how many, and how long it took in the end.
async fn puts(store: &SqliteBackend, from: u64) -> Outcome<(u64, Duration)> {
    let started = Instant::now();
    let writers = (0..WRITERS).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut n = 0;
            while started.elapsed() < SLICE {
                store.put(&Key::new(path_of(writer, from + n))?, Bytes::from_static(&VALUE)).await?;
                n += 1;
            }
            Ok::<u64, refit_backend::Error>(n)
        })
    });
    let mut written = 0;
    for writer in writers.collect::<Vec<_>>() {
        written += writer.await??;
    }
    Ok((written, started.elapsed()))
}

/// The same tables with the same settings, written by nothing but SQLite.
fn raw_store(path: &Path) -> Outcome<Connection> {
    drop(SqliteBackend::open(path)?);
    let connection = Connection::open(path)?;
    connection.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 8192; PRAGMA journal_size_limit = 67108864;
         PRAGMA cache_size = -32768; PRAGMA temp_store = MEMORY;",
    )?;
    Ok(connection)
}

fn raw_puts(connection: &Connection, from: u64, batch: u64) -> Outcome<(u64, Duration)> {
    let sql = "INSERT INTO items (key, value, revision, lease) VALUES (?, ?, ?, NULL)";
    let mut insert = connection.prepare_cached(sql)?;
    let started = Instant::now();
    let mut written = 0;
    while started.elapsed() < SLICE {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        for _ in 0..batch {
            let path = path_of(written % WRITERS, from + written / WRITERS);
            insert.execute(params![path.as_bytes(), &VALUE[..], written.cast_signed()])?;
            written += 1;
        }
        connection.execute_batch("COMMIT")?;
    }
    Ok((written, started.elapsed()))
}

/// Both sides in turns, the first of each turn changing: a disk that others use, or that slows down
/// after a burst, is then slow for both.
async fn compare_puts(ours: &Path, raw: &Path) -> Outcome<()> {
    let (store, connection) = (SqliteBackend::open(ours)?, raw_store(raw)?);
    let (mut ours, mut raw) = ((0, Duration::ZERO), (0, Duration::ZERO));
    puts(&store, SLICES * STEP).await?;
    for slice in 0..SLICES {
        for turn in 0..2 {
            let batch = store.writes() / store.commits();
            let (sum, (written, took)) = match (slice + turn) % 2 {
                0 => (&mut ours, puts(&store, slice * STEP).await?),
                _ => (&mut raw, raw_puts(&connection, slice * STEP, batch)?),
            };
            *sum = (sum.0 + written, sum.1 + took);
        }
    }
    let rate = |(written, took): (u64, Duration)| written as f64 / took.as_secs_f64();
    let (ours, raw) = (rate(ours), rate(raw));
    println!("{:<34}{ours:>12.0}{raw:>12.0}{:>8.2}", "durable puts/s, 64 writers", ours / raw);
    println!("{:<34}{:>12}", "  writes per commit", store.writes() / store.commits());
    Ok(())
}

/// How long a get takes while the writer is busy.
async fn gets_meanwhile(path: &Path) -> Outcome<()> {
    let store = SqliteBackend::open(path)?;
    let busy = tokio::spawn({
        let store = store.clone();
        async move {
            for slice in 0..8 {
                puts(&store, slice * STEP).await?;
            }
            Outcome::Ok(())
        }
    });
    let wanted = Key::new(path_of(7, 3))?;
    let mut latencies = Vec::new();
    while !busy.is_finished() {
        let asked = Instant::now();
        store.get(&wanted).await?;
        latencies.push(asked.elapsed().as_secs_f64() * 1e6);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    busy.await??;
    latencies.sort_by(f64::total_cmp);
    for percent in [50, 99] {
        let latency = latencies.get(latencies.len() * percent / 100).copied().unwrap_or(f64::NAN);
        println!("{:<34}{latency:>12.0}", format!("get meanwhile, p{percent} in µs"));
    }
    Ok(())
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
    let fresh = |name: &str| directory.path().join(name).join("store.db");
    println!("{:<34}{:>12}{:>12}{:>8}", "", "store", "SQLite", "ratio");

    compare_puts(&fresh("puts"), &fresh("raw")).await?;
    gets_meanwhile(&fresh("gets")).await?;

    let path = fresh("range");
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
