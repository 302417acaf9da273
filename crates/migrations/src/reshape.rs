//! The two halves of a change of format: copying to the new one, and retiring the old one a major version later. Called by
//! released migrations.

use std::time::Duration;

use refit_backend::{
    Backoff, Error, Expect, Item, Key, MAX_TRANSACTION_BYTES, MAX_TRANSACTION_KEYS, Read, Transaction,
};
use refit_resources::{Side, StorageFormat, retired_key, winner};

use crate::{Guarded, MigrationError};

/// Items in one transaction: each takes its old and its new key, and the guard takes one.
const BATCH: usize = (MAX_TRANSACTION_KEYS - 1) / 2;

/// How long a batch is tried while others change it or the store does not answer.
const TRY_FOR: Duration = Duration::from_secs(30);

/// Copies every item of the old format to the new one where the new one has nothing. What others write
/// meanwhile, to either key, is never overwritten. Run twice, it copies nothing the second time.
pub async fn copy_forward<T>(
    store: &Guarded,
    from: &StorageFormat<T>,
    to: &StorageFormat<T>,
) -> Result<String, MigrationError> {
    let (mut scan, mut copied) = (store.scan(from.range()).by(BATCH), 0);
    while let Some(items) = scan.next_page().await? {
        let names: Vec<&str> = items.iter().map(|item| from.name(&item.key)).collect();
        copied += settle(store, from, to, &names, Mode::Copy).await?;
    }
    Ok(format!("success: copied {copied} from {} to {}", from.prefix, to.prefix))
}

/// Ends the time of two formats, one major version after [`copy_forward`]: brings the new one up to date
/// with what older servers wrote, marks the old one as retired so that its absence no longer means a
/// deletion, and deletes it.
pub async fn retire<T>(
    store: &Guarded,
    from: &StorageFormat<T>,
    to: &StorageFormat<T>,
) -> Result<String, MigrationError> {
    let marker = retired_key(&from.prefix)?;
    let marked = store.read(&[Read::Key(marker.clone())]).await?.item(0).is_some();
    if !marked {
        for format in [from, to] {
            let mut scan = store.scan(format.range()).by(BATCH);
            while let Some(items) = scan.next_page().await? {
                let names: Vec<&str> = items.iter().map(|item| format.name(&item.key)).collect();
                settle(store, from, to, &names, Mode::Settle).await?;
            }
        }
        store.transact(Transaction::new().put(&marker, "retired")).await?;
    }
    let mut deleted = 0;
    loop {
        let page = store.range(&from.range(), MAX_TRANSACTION_KEYS - 1).await?;
        if page.items.is_empty() {
            return Ok(format!("success: deleted {deleted} from {}", from.prefix));
        }
        let delete = page.items.iter().fold(Transaction::new(), |tx, item| tx.delete(&item.key));
        store.transact(delete).await?;
        deleted += page.items.len();
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// Write the new key only where there is none.
    Copy,
    /// Make the new key say what the two together say.
    Settle,
}

/// One name's two keys, and what to do about them.
struct Pair {
    from: Key,
    to: Key,
    old: Option<Item>,
    new: Option<Item>,
}

/// Brings the new keys of these names up to date; how many were written.
async fn settle<T>(
    store: &Guarded,
    from: &StorageFormat<T>,
    to: &StorageFormat<T>,
    names: &[&str],
    mode: Mode,
) -> Result<usize, MigrationError> {
    let mut written = 0;
    let mut backoff = Backoff::of(TRY_FOR);
    loop {
        let outcome = async {
            for transaction in due(from, to, read_pairs(store, from, to, names).await?, mode)? {
                let keys = transaction.writes().len();
                store.transact(transaction).await?;
                written += keys;
            }
            Ok(())
        };
        let error = match outcome.await {
            Ok(()) => return Ok(written),
            Err(error) => error,
        };
        let passing =
            matches!(error, MigrationError::Store(Error::Conflict { .. } | Error::Unavailable { .. }));
        if !passing || !backoff.pause().await {
            return Err(error);
        }
        tracing::debug!(%error, "trying a batch of a migration again");
    }
}

async fn read_pairs<T>(
    store: &Guarded,
    from: &StorageFormat<T>,
    to: &StorageFormat<T>,
    names: &[&str],
) -> Result<Vec<Pair>, MigrationError> {
    let mut reads = Vec::with_capacity(names.len() * 2);
    for name in names {
        reads.push(Read::Key(from.key(name)?));
        reads.push(Read::Key(to.key(name)?));
    }
    let mut snapshot = store.read(&reads).await?;
    let mut pairs = Vec::with_capacity(names.len());
    for (n, name) in names.iter().enumerate() {
        let old = snapshot.take(2 * n).items.pop();
        let new = snapshot.take(2 * n + 1).items.pop();
        pairs.push(Pair { from: from.key(name)?, to: to.key(name)?, old, new });
    }
    Ok(pairs)
}

/// The transactions that are due, each within the limits of a store.
fn due<T>(
    from: &StorageFormat<T>,
    to: &StorageFormat<T>,
    pairs: Vec<Pair>,
    mode: Mode,
) -> Result<Vec<Transaction>, MigrationError> {
    /// What the guard's own key may need.
    const GUARD_BYTES: usize = 64;
    let mut transactions = Vec::new();
    let mut current = Transaction::new();
    for pair in pairs {
        let Some(step) = step(from, to, &pair, mode)? else { continue };
        let unchanged = |tx: Transaction| {
            tx.expect(&pair.from, Expect::unchanged(pair.old.as_ref()))
                .expect(&pair.to, Expect::unchanged(pair.new.as_ref()))
        };
        let add = |tx: Transaction| match &step {
            Step::Write(value) => unchanged(tx).put(&pair.to, value.clone()),
            Step::Delete => unchanged(tx).delete(&pair.to),
        };
        let with = add(current.clone());
        if with.byte_count() + GUARD_BYTES > MAX_TRANSACTION_BYTES && !current.is_empty() {
            transactions.push(std::mem::take(&mut current));
            current = add(Transaction::new());
        } else {
            current = with;
        }
    }
    if !current.is_empty() {
        transactions.push(current);
    }
    Ok(transactions)
}

enum Step {
    Write(bytes::Bytes),
    Delete,
}

fn step<T>(
    from: &StorageFormat<T>,
    to: &StorageFormat<T>,
    pair: &Pair,
    mode: Mode,
) -> Result<Option<Step>, MigrationError> {
    let convert = |old: &Item| {
        let value = (from.decode)(from.name(&old.key), &old.value)
            .map_err(|reason| MigrationError::Item { key: old.key.to_string(), reason })?;
        Ok::<_, MigrationError>(Some(Step::Write((to.encode)(&value))))
    };
    match (mode, &pair.old, &pair.new) {
        (Mode::Copy, Some(old), None) => convert(old),
        (Mode::Copy, _, _) => Ok(None),
        (Mode::Settle, _, new) => match winner(pair.new.as_ref(), pair.old.as_ref(), false) {
            Some((old, Side::Previous)) => convert(old),
            Some((_, Side::Current)) => Ok(None),
            None => Ok(new.as_ref().map(|_| Step::Delete)),
        },
    }
}
