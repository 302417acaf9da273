//! Records of identities that were signed for people, so that a rotation knows whom it would cut off.

use jiff::Timestamp;
use refit_backend::{Error, Key, KeyRange, Result, SharedBackend, Transaction};
use refit_identity::{CaPin, Certificate};
use serde::{Deserialize, Serialize};

/// An identity that was signed for a person, as far as a rotation needs to know it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct IssuedIdentity {
    pub(crate) user: String,
    pub(crate) serial: String,
    pub(crate) expires: Timestamp,
    /// The authority that signed it.
    pub(crate) ca_pin: String,
}

fn prefix() -> Result<Key> {
    Key::new("/identities/v1/user")
}

/// Records an identity before it is handed out, together with its audit event.
pub(crate) async fn note(
    backend: &SharedBackend,
    user: &str,
    certificate: &Certificate,
    by: CaPin,
    alongside: &[(Key, Vec<u8>)],
) -> Result<()> {
    let issued = IssuedIdentity {
        user: user.into(),
        serial: certificate.serial().into(),
        expires: certificate.not_after(),
        ca_pin: by.to_string(),
    };
    let value = serde_json::to_vec(&issued).map_err(|error| Error::Invalid(error.to_string()))?;
    let transaction = Transaction::new().put(&prefix()?.child(&issued.serial)?, value).put_all(alongside);
    backend.transact(transaction).await.map(drop)
}

/// The identities that have not expired; records of expired ones are deleted.
pub(crate) async fn unexpired(backend: &SharedBackend, now: Timestamp) -> Result<Vec<IssuedIdentity>> {
    let (mut scan, mut good) = (backend.scan(KeyRange::below(&prefix()?)), Vec::new());
    while let Some(items) = scan.next_page().await? {
        for item in &items {
            match serde_json::from_slice::<IssuedIdentity>(&item.value) {
                Ok(issued) if issued.expires > now => good.push(issued),
                Ok(_) => match backend.delete(&item.key).await {
                    Ok(_) | Err(Error::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                },
                Err(error) => {
                    tracing::warn!(key = %item.key, %error, "could not read the record of an issued identity")
                }
            }
        }
    }
    Ok(good)
}
