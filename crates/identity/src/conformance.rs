//! What every [`IdentityBackend`] must do, as a suite that a store's own tests run.

use std::sync::Arc;

use refit_types::AgentRole;

use crate::{IdentityBackend, IdentityKey, IdentitySlot, IdentityStoreError, SharedIdentityBackend};

const WRITERS: u8 = 8;

/// Checks a store that is empty when first opened by `open`, and that is opened again by calling it again.
/// The answer is what the store did wrong.
pub async fn check(open: impl AsyncFn() -> SharedIdentityBackend) -> Result<(), String> {
    let store = open().await;
    ensure(!store.describe().is_empty(), "it has no name for people")?;
    starts_empty(&*store).await?;
    keeps_what_is_put(&*store).await?;
    creates_once(&*store).await?;
    one_of_many_creates(store.clone()).await?;
    puts_are_whole(store.clone()).await?;
    drop(store);
    keeps_all_when_opened_again(&*open().await).await
}

async fn starts_empty(store: &dyn IdentityBackend) -> Result<(), String> {
    for key in IdentityKey::all() {
        ensure(get(store, key).await?.is_none(), format!("it is not empty: there is {key}"))?;
    }
    Ok(())
}

async fn keeps_what_is_put(store: &dyn IdentityBackend) -> Result<(), String> {
    let keys = || IdentityKey::all().filter(|key| *key != IdentityKey::HostId && *key != CREATED);
    for round in ["first", "second"] {
        for key in keys() {
            store.put(key, format!("{round} {key}").into_bytes()).await.map_err(message)?;
        }
        for key in keys() {
            let found = get(store, key).await?;
            let expected = format!("{round} {key}").into_bytes();
            ensure(found == Some(expected), format!("{key} is not what was put there"))?;
        }
    }
    for value in [vec![], (0..=255).collect(), vec![b'x'; 64 * 1024]] {
        store.put(PUT, value.clone()).await.map_err(message)?;
        ensure(get(store, PUT).await?.as_ref() == Some(&value), format!("a value of {} bytes", value.len()))?;
    }
    Ok(())
}

const PUT: IdentityKey = IdentityKey::Identity(AgentRole::App, IdentitySlot::Replacement);
const CREATED: IdentityKey = IdentityKey::State(AgentRole::Discovery);

async fn creates_once(store: &dyn IdentityBackend) -> Result<(), String> {
    store.create(IdentityKey::HostId, b"one".to_vec()).await.map_err(message)?;
    let again = store.create(IdentityKey::HostId, b"two".to_vec()).await;
    let refused = matches!(again, Err(IdentityStoreError::AlreadyExists { key: IdentityKey::HostId, .. }));
    ensure(refused, "a key can be created twice")?;
    ensure(get(store, IdentityKey::HostId).await? == Some(b"one".to_vec()), "a refused value was written")?;
    let put = store.create(PUT, b"two".to_vec()).await;
    let refused = matches!(put, Err(IdentityStoreError::AlreadyExists { key: PUT, .. }));
    ensure(refused, "a key can be created that was put")
}

async fn one_of_many_creates(store: SharedIdentityBackend) -> Result<(), String> {
    let creates = (0..WRITERS).map(|writer| {
        let store = store.clone();
        tokio::spawn(async move { (writer, store.create(CREATED, vec![writer; 1000]).await) })
    });
    let mut created = Vec::new();
    for create in creates.collect::<Vec<_>>() {
        match create.await.map_err(message)? {
            (writer, Ok(())) => created.push(vec![writer; 1000]),
            (_, Err(IdentityStoreError::AlreadyExists { .. })) => {}
            (_, Err(error)) => return Err(message(error)),
        }
    }
    ensure(created.len() == 1, format!("{} of {WRITERS} created the same key", created.len()))?;
    ensure(get(&*store, CREATED).await?.as_ref() == created.first(), "another value than the first's is kept")
}

async fn puts_are_whole(store: SharedIdentityBackend) -> Result<(), String> {
    store.put(PUT, vec![0; 10_000]).await.map_err(message)?;
    let puts = (0..WRITERS).map(|writer| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.put(PUT, vec![writer; 10_000 + usize::from(writer)]).await })
    });
    for put in puts.collect::<Vec<_>>() {
        let found = get(&*store, PUT).await?.unwrap_or_default();
        let whole = found.first().is_some_and(|first| found.iter().all(|byte| byte == first));
        ensure(whole && found.len() >= 10_000, "a value is a mixture of two")?;
        put.await.map_err(message)?.map_err(message)?;
    }
    store.put(PUT, b"last".to_vec()).await.map_err(message)
}

async fn keeps_all_when_opened_again(store: &dyn IdentityBackend) -> Result<(), String> {
    for key in IdentityKey::all() {
        let found = get(store, key).await?;
        let kept = match key {
            IdentityKey::HostId => found == Some(b"one".to_vec()),
            PUT => found == Some(b"last".to_vec()),
            CREATED => found.is_some_and(|value| value.len() == 1000),
            key => found == Some(format!("second {key}").into_bytes()),
        };
        ensure(kept, format!("{key} is lost when it is opened again"))?;
    }
    Ok(())
}

async fn get(store: &dyn IdentityBackend, key: IdentityKey) -> Result<Option<Vec<u8>>, String> {
    store.get(key).await.map_err(message)
}

fn ensure(holds: bool, otherwise: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

fn message(error: impl ToString) -> String {
    error.to_string()
}
