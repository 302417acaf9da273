//! The authority with the revision at which it was read, so that it is replaced by compare-and-swap.

use refit_backend::{Backend, Item, Key, Revision, Transaction};

use crate::record::{self, AUTHORITY_KEY};
use crate::{Authority, Error, Result};

/// The authority as it was found in the store, to be replaced only if it still is as it was.
#[derive(Debug, Clone)]
pub struct VersionedAuthority {
    authority: Authority,
    revision: Revision,
}

impl Authority {
    /// The stored authority, if there is one.
    pub async fn load(backend: &dyn Backend) -> Result<Option<VersionedAuthority>> {
        let item = backend.get(&Key::new(AUTHORITY_KEY)?).await?;
        item.as_ref().map(VersionedAuthority::read).transpose()
    }
}

impl VersionedAuthority {
    /// Reads the item at [`AUTHORITY_KEY`], for those who watch it.
    pub fn read(item: &Item) -> Result<Self> {
        let authority =
            record::decode(&item.value).map_err(|reason| Error::Record { key: item.key.clone(), reason })?;
        Ok(Self { authority, revision: item.revision })
    }

    /// Stores `new` in its place, with the event that records it, or returns [`Error::Conflict`] when another
    /// server has changed it since.
    pub async fn replace(
        &self,
        backend: &dyn Backend,
        new: Authority,
        alongside: &[(Key, Vec<u8>)],
    ) -> Result<Self> {
        let key = Key::new(AUTHORITY_KEY)?;
        let encoded = record::encode(&new)?;
        let transaction = Transaction::new().expect_revision(&key, self.revision);
        let transaction = transaction.put(&key, encoded).put_all(alongside);
        match backend.transact(transaction).await {
            Ok(revision) => Ok(Self { authority: new, revision }),
            Err(refit_backend::Error::Conflict { .. }) => Err(Error::Conflict),
            Err(error) => Err(error.into()),
        }
    }

    /// The authority.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// When it was stored, to watch for changes from there.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The authority alone.
    pub fn into_authority(self) -> Authority {
        self.authority
    }
}
