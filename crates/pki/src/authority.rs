use jiff::Timestamp;
use rcgen::{BasicConstraints, DnType, IsCa, KeyUsagePurpose};
use refit_backend::{Backend, Item, Key};

use crate::issue::{new_serial, sign_failed};
use crate::record::{self, AuthorityKey, TLS_AUTHORITY_KEY};
use crate::time::Validity;
use crate::{CaPin, Certificate, ClusterName, Error, PrivateKey, Result, Trust};

/// The cluster's certificate authority for TLS: whoever it signs a certificate for may speak.
#[derive(Debug, Clone)]
pub struct Authority {
    cluster: ClusterName,
    signing: AuthorityKey,
    also_trusted: Vec<AuthorityKey>,
}

impl Authority {
    /// The stored authority, or a new one for `cluster` when none is stored.
    ///
    /// Of several servers that start at once the first to store one wins and all use that. So the name
    /// asked for may not be the one in use: a caller to whom that matters compares it with
    /// [`Authority::cluster`].
    pub async fn load_or_create(backend: &dyn Backend, cluster: ClusterName, now: Timestamp) -> Result<Self> {
        let key = Key::new(TLS_AUTHORITY_KEY)?;
        if let Some(item) = backend.get(&key).await? {
            return stored(&item);
        }
        let created = Self::create(cluster, now)?;
        let signing = std::slice::from_ref(&created.signing);
        let encoded =
            record::encode(&created.cluster, signing).map_err(|_| Error::Crypto("storing a key"))?;
        match backend.create(&key, encoded.into()).await {
            Ok(_) => {
                tracing::info!(cluster = %created.cluster, ca_pin = %created.pin(), "created the certificate authority");
                Ok(created)
            }
            Err(refit_backend::Error::AlreadyExists { .. }) => match backend.get(&key).await? {
                Some(item) => stored(&item),
                None => Err(refit_backend::Error::NotFound { key }.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// A new authority that is stored nowhere.
    pub(crate) fn create(cluster: ClusterName, now: Timestamp) -> Result<Self> {
        let key = PrivateKey::generate()?;
        let mut params = rcgen::CertificateParams::default();
        Validity::of_authority(now)?.apply(&mut params)?;
        params.serial_number = Some(new_serial()?);
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, cluster.as_str());
        params.distinguished_name.push(DnType::CommonName, format!("{cluster} Refit CA"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let signed = params.self_signed(key.pair()).map_err(sign_failed)?;
        let certificate = Certificate::from_der(signed.der())?;
        Ok(Self::from_parts(cluster, AuthorityKey { certificate, key }, Vec::new()))
    }

    pub(crate) fn from_parts(
        cluster: ClusterName,
        signing: AuthorityKey,
        also_trusted: Vec<AuthorityKey>,
    ) -> Self {
        Self { cluster, signing, also_trusted }
    }

    /// The cluster that this authority speaks for, which may not be the one asked for.
    pub fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    /// The certificate of the key that signs.
    pub fn certificate(&self) -> &Certificate {
        &self.signing.certificate
    }

    /// Every certificate to trust, the one that signs first.
    pub fn certificates(&self) -> impl Iterator<Item = &Certificate> {
        std::iter::once(&self.signing).chain(&self.also_trusted).map(|key| &key.certificate)
    }

    /// What newcomers are given to recognise this cluster by.
    pub fn pin(&self) -> CaPin {
        CaPin::of(self.certificate())
    }

    /// What a server needs to tell who calls.
    pub fn trust(&self) -> Result<Trust> {
        Trust::new(self.cluster.clone(), self.certificates().cloned())
    }

    pub(crate) fn signing(&self) -> &AuthorityKey {
        &self.signing
    }
}

fn stored(item: &Item) -> Result<Authority> {
    record::decode(&item.value).map_err(|reason| Error::Record { key: item.key.clone(), reason })
}
