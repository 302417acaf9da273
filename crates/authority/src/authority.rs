//! The cluster's authority: its keys, the phase of their rotation, and which of them signs and is trusted.

use jiff::Timestamp;
use rcgen::{BasicConstraints, DnType, IsCa, KeyUsagePurpose};
use refit_backend::{Backend, Key};
use refit_identity::{Authorities, CaPin, Certificate, ClusterName, Phase, PrivateKey, Trust};
use uuid::Uuid;

use crate::issue::{new_serial, sign_failed};
use crate::record::{self, AUTHORITY_KEY, AuthorityKey};
use crate::ssh::SshAuthority;
use crate::validity::Validity;
use crate::{Result, Rotation, RotationError, RotationMode};

/// The cluster's certificate authority, for TLS and SSH: whoever it signs a certificate for may speak.
///
/// Its keys are replaced by a rotation, phase by phase. Both sets of keys are trusted until it is over;
/// which of them signs is different for clients and for servers, so that no one is
/// presented a certificate of an authority that it does not trust yet.
#[derive(Debug, Clone)]
pub struct Authority {
    cluster: ClusterName,
    current: AuthorityKey,
    /// What the rotation leads to.
    new: Option<AuthorityKey>,
    rotation: Option<Rotation>,
}

impl Authority {
    /// The stored authority, or a new one for `cluster` when none is stored.
    ///
    /// Of several servers that start at once the first to store one wins and all use that. So the name
    /// asked for may not be the one in use: a caller to whom that matters compares it with
    /// [`Authority::cluster`].
    pub async fn load_or_create(backend: &dyn Backend, cluster: ClusterName, now: Timestamp) -> Result<Self> {
        if let Some(stored) = Self::load(backend).await? {
            return Ok(stored.into_authority());
        }
        let key = Key::new(AUTHORITY_KEY)?;
        let created = Self::create(cluster, now)?;
        match backend.create(&key, record::encode(&created)?.into()).await {
            Ok(_) => {
                tracing::info!(cluster = %created.cluster, ca_pin = %created.pin(), "created the certificate authority");
                Ok(created)
            }
            Err(refit_backend::Error::AlreadyExists { .. }) => match Self::load(backend).await? {
                Some(stored) => Ok(stored.into_authority()),
                None => Err(refit_backend::Error::NotFound { key }.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// A new authority that is stored nowhere.
    pub(crate) fn create(cluster: ClusterName, now: Timestamp) -> Result<Self> {
        let key = create_key(&cluster, now)?;
        Ok(Self::from_parts(cluster, key, None, None))
    }

    pub(crate) fn from_parts(
        cluster: ClusterName,
        current: AuthorityKey,
        new: Option<AuthorityKey>,
        rotation: Option<Rotation>,
    ) -> Self {
        Self { cluster, current, new, rotation }
    }

    /// The authority in another phase of its rotation; `mode` holds from then on. Nothing is stored yet.
    ///
    /// From `init` on there are new keys. In `standby` only one set of keys is left: the new one at the
    /// end of a rotation, the old one after a rollback.
    pub fn advance(
        &self,
        to: Phase,
        mode: RotationMode,
        now: Timestamp,
    ) -> std::result::Result<Self, RotationError> {
        let from = self.phase();
        let impossible = || RotationError::Impossible { from, to };
        if !from.possible().contains(&to) {
            return Err(impossible());
        }
        let rotation = match (to, &self.rotation) {
            (Phase::Init, _) => {
                let id = Uuid::new_v4().to_string();
                Rotation { id, phase: to, mode, started_at: now, phase_since: now }
            }
            (_, Some(running)) => Rotation { phase: to, mode, phase_since: now, ..running.clone() },
            (_, None) => return Err(impossible()),
        };
        let (current, new) = match (to, from, self.new.clone()) {
            (Phase::Init, ..) => (self.current.clone(), Some(create_key(&self.cluster, now)?)),
            (Phase::Standby, Phase::UpdateServers, Some(new)) => (new, None),
            (Phase::Standby, ..) => (self.current.clone(), None),
            (_, _, new) => (self.current.clone(), new),
        };
        Ok(Self::from_parts(self.cluster.clone(), current, new, Some(rotation)))
    }

    /// The cluster that this authority speaks for, which may not be the one asked for.
    pub fn cluster(&self) -> &ClusterName {
        &self.cluster
    }

    /// The rotation that runs, or the last one that did, if there ever was one.
    pub fn rotation(&self) -> Option<&Rotation> {
        self.rotation.as_ref()
    }

    /// How far the rotation has come.
    pub fn phase(&self) -> Phase {
        self.rotation.as_ref().map_or(Phase::Standby, |rotation| rotation.phase)
    }

    /// The certificate of the key that signs for agents and users.
    pub fn certificate(&self) -> &Certificate {
        &self.signing().certificate
    }

    /// The certificate of the key that signs for servers, which follow the clients in a rotation.
    pub fn server_certificate(&self) -> &Certificate {
        &self.server_signing().certificate
    }

    /// Every certificate to trust, the one that signs for agents and users first.
    pub fn certificates(&self) -> impl Iterator<Item = &Certificate> {
        self.trusted().map(|key| &key.certificate)
    }

    /// Every SSH authority to trust, in the form of `authorized_keys` and the order of
    /// [`Authority::certificates`].
    pub fn ssh_authorities(&self) -> impl Iterator<Item = String> {
        self.trusted().map(|key| key.ssh.to_authorized_key())
    }

    /// What joining hosts are given to recognise this cluster's servers by.
    pub fn pin(&self) -> CaPin {
        CaPin::of(self.server_certificate())
    }

    /// What a server needs to authenticate callers.
    pub fn trust(&self) -> Result<Trust> {
        Ok(Trust::new(self.cluster.clone(), self.certificates().cloned())?)
    }

    /// The authorities and their phase, as agents are told.
    pub fn authorities(&self) -> Authorities {
        Authorities {
            tls: self.certificates().cloned().collect(),
            ssh: self.ssh_authorities().collect(),
            rotation_id: self.rotation().map(|rotation| rotation.id.clone()).unwrap_or_default(),
            phase: self.phase(),
        }
    }

    pub(crate) fn signing(&self) -> &AuthorityKey {
        self.new.as_ref().filter(|_| self.phase().updates_clients()).unwrap_or(&self.current)
    }

    pub(crate) fn server_signing(&self) -> &AuthorityKey {
        self.new.as_ref().filter(|_| self.phase() == Phase::UpdateServers).unwrap_or(&self.current)
    }

    /// All keys, the new ones last.
    pub(crate) fn keys(&self) -> impl DoubleEndedIterator<Item = &AuthorityKey> {
        std::iter::once(&self.current).chain(&self.new)
    }

    fn trusted(&self) -> impl Iterator<Item = &AuthorityKey> {
        let mut keys: Vec<&AuthorityKey> = self.keys().collect();
        if self.phase().updates_clients() {
            keys.reverse();
        }
        keys.into_iter()
    }
}

fn create_key(cluster: &ClusterName, now: Timestamp) -> Result<AuthorityKey> {
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
    let ssh = SshAuthority::new(PrivateKey::generate_for_ssh()?)?;
    Ok(AuthorityKey { certificate, key, ssh })
}
