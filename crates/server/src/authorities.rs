//! The certificate authorities in memory, followed by a watch on the store. All of the server reads them here.

use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use refit_authority::{AUTHORITY_KEY, Authority, Result, RotationError, RotationMode, VersionedAuthority};
use refit_backend::{Change, Error as StoreError, Key, KeyRange, SharedBackend};
use refit_identity::{Certificate, Phase, Trust};
use refit_proto::agent::v1 as wire;
use refit_types::RotationMark;
use tokio::sync::watch;

/// The cluster's current authorities. Any server may rotate them; all others follow by watch.
#[derive(Debug)]
pub(crate) struct Authorities {
    backend: SharedBackend,
    current: RwLock<Arc<Current>>,
    changed: watch::Sender<()>,
}

/// The authorities of one moment.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) stored: VersionedAuthority,
    pub(crate) trust: Arc<Trust>,
}

impl Current {
    fn new(stored: VersionedAuthority) -> Result<Arc<Self>> {
        let trust = Arc::new(stored.authority().trust()?);
        Ok(Arc::new(Self { stored, trust }))
    }

    pub(crate) fn authority(&self) -> &Authority {
        self.stored.authority()
    }

    /// Which rotation this is of, and its phase.
    pub(crate) fn mark(&self) -> RotationMark {
        let id = self.authority().rotation().map(|rotation| rotation.id.as_str()).unwrap_or_default();
        RotationMark { id: id.into(), phase: self.authority().phase().as_str().into() }
    }

    pub(crate) fn rotation_on_the_wire(&self) -> wire::Rotation {
        let mark = self.mark();
        wire::Rotation::at(mark.id, mark.phase)
    }

    pub(crate) fn on_the_wire(&self) -> wire::Authorities {
        wire::Authorities {
            tls_ca_certs: self.authority().certificates().map(Certificate::to_pem).collect(),
            ssh_ca_certs: self.authority().ssh_authorities().collect(),
            rotation: Some(self.rotation_on_the_wire()),
        }
    }
}

impl Authorities {
    pub(crate) fn new(backend: SharedBackend, stored: VersionedAuthority) -> Result<Arc<Self>> {
        let current = RwLock::new(Current::new(stored)?);
        Ok(Arc::new(Self { backend, current, changed: watch::Sender::new(()) }))
    }

    pub(crate) fn current(&self) -> Arc<Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notified of every change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Adopts authorities that this server stored or read, if they are newer.
    pub(crate) fn adopt(&self, stored: VersionedAuthority) -> Result<()> {
        let next = Current::new(stored)?;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if next.stored.revision() <= current.stored.revision() {
            return Ok(());
        }
        tracing::info!(phase = %next.mark().phase, "the authorities have changed");
        *current = next;
        drop(current);
        self.changed.send_replace(());
        Ok(())
    }

    /// Advances to another phase, if the authorities have not changed since `from`. The audit event is stored in the
    /// same transaction.
    pub(crate) async fn advance(
        &self,
        from: &Current,
        to: Phase,
        mode: RotationMode,
        now: Timestamp,
        alongside: &[(Key, Vec<u8>)],
    ) -> std::result::Result<(), RotationError> {
        let next = from.authority().advance(to, mode, now)?;
        let stored = from.stored.replace(self.backend.as_ref(), next, alongside).await?;
        Ok(self.adopt(stored)?)
    }

    /// Follows changes by any server, until this one stops.
    pub(crate) async fn follow(self: Arc<Self>, stop: watch::Receiver<bool>) {
        refit_backend::follow("the authorities", stop, || self.watch()).await;
    }

    async fn watch(&self) -> Result<()> {
        let key = Key::new(AUTHORITY_KEY)?;
        let snapshot = self.backend.read(&[]).await?.revision;
        self.reload().await?;
        let range = KeyRange::between(&key, &key.child("0")?);
        let mut watch = self.backend.watch(&range, snapshot).await?;
        loop {
            match watch.next().await?.change {
                Change::Put(_) => self.reload().await?,
                Change::Delete(key) => return Err(StoreError::NotFound { key }.into()),
            }
        }
    }

    async fn reload(&self) -> Result<()> {
        match Authority::load(self.backend.as_ref()).await? {
            Some(stored) => self.adopt(stored),
            None => Ok(()),
        }
    }
}
