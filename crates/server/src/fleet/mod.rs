//! The hosts of the cluster: every record in memory, kept current by watch, written by compare and swap.

mod looking;
mod record;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use jiff::Timestamp;
use refit_backend::{
    Change, Error, Event, Expect, Item, Key, KeyRange, MAX_PAGE_ITEMS, Patience, Read, Result, Revision,
    SharedBackend, Transaction,
};
use refit_types::{AgentRole, HostId, Instance, StoredWord};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use looking::Tally;
pub(crate) use record::{Heartbeat, after_heartbeat, is_forgotten, is_superseded};

/// How long a write is tried while others write the same record, and how soon.
const TRY_FOR: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(2);
/// How long to wait before the store is asked again for what a watch lost.
const RELOAD_PAUSE: Duration = Duration::from_secs(1);

/// Somebody who wants to know of every change, in the order in which records change.
pub(crate) trait Observer: std::fmt::Debug + Send + Sync {
    /// A host is new, or its record has changed.
    fn host_changed(&self, instance: &Instance);
    /// A host is no longer part of the fleet.
    fn host_gone(&self, host: HostId);
    /// Everything was read again.
    fn reloaded(&self);
}

/// Every host that has joined.
#[derive(Debug)]
pub(crate) struct Fleet {
    backend: SharedBackend,
    server: Box<str>,
    now: fn() -> Timestamp,
    hosts: RwLock<BTreeMap<HostId, Known>>,
    /// The hosts that this server hears.
    heard: Mutex<HashMap<HostId, Hearing>>,
    streams: AtomicU64,
    observer: OnceLock<Weak<dyn Observer>>,
    is_loaded: AtomicBool,
    tally: Tally,
}

/// A host that is heard, and over which of its streams: an old one may end after a new one has begun.
#[derive(Debug, Clone)]
struct Hearing {
    stream: u64,
    at: Timestamp,
    /// Told when there is something to say to the host.
    news: Arc<Notify>,
}

#[derive(Debug, Clone)]
struct Known {
    instance: Arc<Instance>,
    revision: Revision,
}

/// What a heartbeat came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The host is known; whether two processes report as it.
    Known {
        /// Whether they do.
        duplicate: bool,
    },
    /// The host was removed from the cluster.
    Removed,
}

/// Why a host could not join.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JoinRefused {
    /// Somebody else has that UUID.
    #[error(
        "the host {0} has joined already: it can join again only with its own certificate, or after \
         `refitctl nodes rm {0}`"
    )]
    Registered(HostId),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Error),
}

impl Fleet {
    pub(crate) fn new(backend: SharedBackend, server: &str, now: fn() -> Timestamp) -> Arc<Self> {
        let (hosts, heard) = (RwLock::default(), Mutex::default());
        Arc::new(Self {
            backend,
            server: server.into(),
            now,
            hosts,
            heard,
            streams: AtomicU64::new(0),
            observer: OnceLock::new(),
            is_loaded: AtomicBool::new(false),
            tally: Tally::default(),
        })
    }

    /// Tells the observer of everything from now on. There is one.
    pub(crate) fn observe(&self, observer: Weak<dyn Observer>) {
        let _ = self.observer.set(observer);
    }

    fn tell(&self, told: impl FnOnce(&dyn Observer)) {
        if let Some(observer) = self.observer.get().and_then(Weak::upgrade) {
            told(observer.as_ref());
        }
    }

    /// The host's record as this server knows it, and when that was written.
    pub(crate) fn known(&self, host: HostId) -> Option<(Arc<Instance>, Revision)> {
        let hosts = self.hosts.read().unwrap_or_else(PoisonError::into_inner);
        hosts.get(&host).map(|known| (known.instance.clone(), known.revision))
    }

    /// Shows every host, and whether they were loaded yet. Nothing changes meanwhile.
    pub(crate) fn each(&self, show: impl FnOnce(&mut dyn Iterator<Item = &Instance>, bool)) {
        let hosts = self.hosts.read().unwrap_or_else(PoisonError::into_inner);
        let is_loaded = self.is_loaded.load(Ordering::Acquire);
        show(&mut hosts.values().map(|known| &*known.instance), is_loaded);
    }

    /// Reads one host's record again.
    pub(crate) async fn refresh(&self, host: HostId) -> Result<()> {
        let mut page = self.backend.read(&[Read::Key(key(host)?)]).await?.take(0);
        match page.items.pop().as_ref().and_then(parsed) {
            Some((_, known)) => self.remember(host, known),
            None => self.forget(host, Revision(page.revision.0 + 1)),
        }
        Ok(())
    }

    /// Tells the observer once more what is known of a host.
    pub(crate) fn retell(&self, host: HostId) {
        let hosts = self.hosts.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = hosts.get(&host) {
            self.tell(|observer| observer.host_changed(&known.instance));
        }
    }

    /// Takes in what somebody stored with other things in one transaction.
    pub(crate) fn stored_as(&self, host: HostId, instance: Instance, revision: Revision) {
        self.remember(host, Known { instance: Arc::new(instance), revision });
    }

    /// Takes in that somebody deleted the record.
    pub(crate) fn forgotten(&self, host: HostId, at: Revision) {
        self.forget(host, at);
    }

    /// Where a host's record is stored.
    pub(crate) fn key(host: HostId) -> Result<Key> {
        key(host)
    }

    /// The host whose record is stored there.
    pub(crate) fn host_of(key: &Key) -> Option<HostId> {
        let below = key.as_str().strip_prefix(PREFIX)?;
        below.strip_prefix('/')?.parse().ok()
    }

    /// Notes that a host is heard over a stream, whatever it says.
    pub(crate) fn note(&self, host: HostId, stream: u64, news: &Arc<Notify>) {
        let hearing = Hearing { stream, at: (self.now)(), news: news.clone() };
        self.lock_heard().insert(host, hearing);
    }

    /// Writes what is new in a heartbeat that was heard before.
    pub(crate) async fn store_heartbeat(&self, host: HostId, heartbeat: &Heartbeat) -> Result<()> {
        let now = (self.now)();
        let server = self.server.clone();
        self.change(host, |known| record::after_heartbeat(known, heartbeat, &server, now)).await?;
        Ok(())
    }

    /// Adds a host. One that has reported before must prove to be the same by its certificate.
    pub(crate) async fn join(
        &self,
        host: HostId,
        hostname: &str,
        roles: &[AgentRole],
        proven: bool,
    ) -> Result<(), JoinRefused> {
        let mut patience = Patience::starting_with(FIRST_PAUSE, TRY_FOR);
        loop {
            let stored = self.stored(host).await?;
            let instance = match &stored {
                None => Instance::joined(host, hostname, roles.to_vec(), (self.now)()),
                Some(known) if proven || known.instance.report.is_none() => {
                    let mut instance = Instance::clone(&known.instance);
                    instance.hostname = hostname.into();
                    instance.roles.extend(roles.iter().copied().map(StoredWord::Known));
                    instance.roles.sort();
                    instance.roles.dedup();
                    instance
                }
                Some(_) => return Err(JoinRefused::Registered(host)),
            };
            match self.replace(host, stored.as_ref(), instance).await {
                Err(Error::Conflict { .. }) if patience.pause().await => {}
                other => return Ok(other?),
            }
        }
    }

    /// Tells a stream of heartbeats from all others.
    pub(crate) fn new_stream(&self) -> u64 {
        self.streams.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes in what a host says over a stream, and writes what is new in it.
    pub(crate) async fn heard(
        &self,
        host: HostId,
        stream: u64,
        news: &Arc<Notify>,
        heartbeat: &Heartbeat,
    ) -> Result<Heard> {
        let now = (self.now)();
        let server = self.server.clone();
        let change = |known: &Instance| record::after_heartbeat(known, heartbeat, &server, now);
        self.note(host, stream, news);
        let Some(instance) = self.change(host, change).await? else {
            self.lock_heard().remove(&host);
            return Ok(Heard::Removed);
        };
        Ok(Heard::Known { duplicate: instance.duplicate_at.is_some() })
    }

    /// Notes that a stream of that session has ended, unless the host is heard over another one.
    pub(crate) async fn departed(&self, host: HostId, stream: u64, session: Uuid) {
        match self.lock_heard().entry(host) {
            Entry::Occupied(hearing) if hearing.get().stream == stream => drop(hearing.remove()),
            Entry::Occupied(_) => return,
            Entry::Vacant(_) => {}
        }
        let now = (self.now)();
        let change = |known: &Instance| record::after_departure(known, session, &self.server, now);
        if let Err(error) = self.change(host, change).await {
            tracing::warn!(%error, %host, "the departure of a host could not be stored");
        }
    }

    /// Whether the host belongs to the fleet.
    pub(crate) async fn knows(&self, host: HostId) -> Result<bool> {
        Ok(self.stored(host).await?.is_some())
    }

    /// Up to `limit` hosts behind `after` for which `wanted` holds, and whether there may be more.
    pub(crate) fn page(
        &self,
        after: Option<HostId>,
        limit: usize,
        wanted: impl Fn(&Instance) -> bool,
    ) -> (Vec<Arc<Instance>>, bool) {
        let hosts = self.hosts.read().unwrap_or_else(PoisonError::into_inner);
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut found = hosts.range((start, Bound::Unbounded)).map(|(_, known)| &known.instance);
        let mut page = Vec::new();
        for instance in found.by_ref().filter(|instance| wanted(instance)) {
            if page.len() == limit {
                return (page, true);
            }
            page.push(instance.clone());
        }
        (page, false)
    }

    /// When the host was last heard, as exactly as this server knows.
    pub(crate) fn last_seen(&self, instance: &Instance) -> Timestamp {
        let heard = self.lock_heard().get(&instance.host_id).cloned();
        heard.map_or(instance.last_seen, |heard| heard.at.max(instance.last_seen))
    }

    /// Whether this server hears the host now.
    pub(crate) fn hears(&self, host: HostId) -> bool {
        self.lock_heard().contains_key(&host)
    }

    /// Tells the streams of those hosts that there is something to say to them.
    pub(crate) fn wake(&self, wanted: impl Fn(HostId) -> bool) {
        let heard: Vec<HostId> = self.lock_heard().keys().copied().collect();
        for host in heard.into_iter().filter(|host| wanted(*host)) {
            if let Some(hearing) = self.lock_heard().get(&host) {
                hearing.news.notify_one();
            }
        }
    }

    /// How many hosts there are.
    pub(crate) fn len(&self) -> usize {
        self.hosts.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Loads every record and follows what becomes of them, until the server stops.
    pub(crate) async fn follow(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                ended = self.load_and_watch() => {
                    if let Err(error) = ended {
                        tracing::warn!(%error, "the fleet is read again from the store");
                    }
                }
                _ = stop.wait_for(|stop| *stop) => return,
            }
            tokio::select! {
                () = tokio::time::sleep(RELOAD_PAUSE) => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    async fn load_and_watch(&self) -> Result<()> {
        let range = KeyRange::below(&prefix()?);
        let (mut rest, mut loaded, mut since) = (range.clone(), BTreeMap::new(), None);
        loop {
            let page = self.backend.range(&rest, MAX_PAGE_ITEMS).await?;
            since.get_or_insert(page.revision);
            loaded.extend(page.items.iter().filter_map(parsed));
            match page.items.last() {
                Some(last) if page.more => rest = rest.after(&last.key),
                _ => break,
            }
        }
        {
            let mut hosts = self.hosts.write().unwrap_or_else(PoisonError::into_inner);
            self.tally.reloaded(loaded.values().map(|known: &Known| &*known.instance));
            *hosts = loaded;
            self.is_loaded.store(true, Ordering::Release);
            self.tell(|observer| observer.reloaded());
        }
        let mut watch = self.backend.watch(&range, since.unwrap_or_default()).await?;
        loop {
            self.apply(watch.next().await?);
        }
    }

    fn apply(&self, event: Event) {
        match event.change {
            Change::Put(item) => {
                if let Some((host, known)) = parsed(&item) {
                    self.remember(host, known);
                }
            }
            Change::Delete(key) => {
                let host = key.as_str().rsplit('/').next().and_then(|name| name.parse().ok());
                if let Some(host) = host {
                    self.forget(host, event.revision);
                }
            }
        }
    }

    /// Keeps what is newer: a watch may be behind this server's own writes.
    fn remember(&self, host: HostId, known: Known) {
        let mut hosts = self.hosts.write().unwrap_or_else(PoisonError::into_inner);
        let before = hosts.get(&host);
        if before.is_some_and(|present| present.revision >= known.revision) {
            return;
        }
        let has_news = before.is_some_and(|present| present.instance.upgrade != known.instance.upgrade);
        self.tally.changed(before.map(|known| &*known.instance), Some(&known.instance));
        self.tell(|observer| observer.host_changed(&known.instance));
        hosts.insert(host, known);
        // Only now: whoever is woken asks at once, and would miss what is not known yet.
        if let Some(hearing) = self.lock_heard().get(&host).filter(|_| has_news) {
            hearing.news.notify_one();
        }
    }

    fn forget(&self, host: HostId, at: Revision) {
        let mut hosts = self.hosts.write().unwrap_or_else(PoisonError::into_inner);
        if hosts.get(&host).is_some_and(|known| known.revision < at) {
            let gone = hosts.remove(&host);
            self.tally.changed(gone.as_ref().map(|known| &*known.instance), None);
            self.tell(|observer| observer.host_gone(host));
        }
    }

    /// Writes what `change` makes of the record, again if somebody else did meanwhile; the record then.
    async fn change(
        &self,
        host: HostId,
        change: impl Fn(&Instance) -> Option<Instance>,
    ) -> Result<Option<Arc<Instance>>> {
        let mut known = self.hosts.read().unwrap_or_else(PoisonError::into_inner).get(&host).cloned();
        let mut patience = Patience::starting_with(FIRST_PAUSE, TRY_FOR);
        loop {
            let present = match known {
                Some(known) => known,
                None => match self.stored(host).await? {
                    Some(stored) => stored,
                    None => return Ok(None),
                },
            };
            let Some(changed) = change(&present.instance) else { return Ok(Some(present.instance)) };
            match self.replace(host, Some(&present), changed).await {
                Err(Error::Conflict { .. }) if patience.pause().await => known = None,
                Err(other) => return Err(other),
                Ok(()) => {
                    known = self.hosts.read().unwrap_or_else(PoisonError::into_inner).get(&host).cloned()
                }
            }
            if let Some(known) = &known {
                return Ok(Some(known.instance.clone()));
            }
        }
    }

    async fn stored(&self, host: HostId) -> Result<Option<Known>> {
        let item = self.backend.get(&key(host)?).await?;
        Ok(item.as_ref().and_then(parsed).map(|(_, known)| known))
    }

    async fn replace(&self, host: HostId, present: Option<&Known>, instance: Instance) -> Result<()> {
        let key = key(host)?;
        let expect = present.map_or(Expect::Absent, |known| Expect::Revision(known.revision));
        let value = serde_json::to_vec(&instance).map_err(|error| Error::Invalid(error.to_string()))?;
        let revision =
            self.backend.transact(Transaction::new().expect(&key, expect).put(&key, value)).await?;
        self.remember(host, Known { instance: Arc::new(instance), revision });
        Ok(())
    }

    fn lock_heard(&self) -> std::sync::MutexGuard<'_, HashMap<HostId, Hearing>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const PREFIX: &str = "/instances/v1/default";

fn prefix() -> Result<Key> {
    Key::new(PREFIX)
}

fn key(host: HostId) -> Result<Key> {
    prefix()?.child(host)
}

/// A record that cannot be read is passed over: a newer server may have written it.
fn parsed(item: &Item) -> Option<(HostId, Known)> {
    match serde_json::from_slice::<Instance>(&item.value) {
        Ok(instance) => {
            let known = Known { revision: item.revision, instance: Arc::new(instance) };
            Some((known.instance.host_id, known))
        }
        Err(error) => {
            tracing::warn!(key = %item.key, %error, "the record of a host cannot be read");
            None
        }
    }
}

#[cfg(test)]
mod tests;
