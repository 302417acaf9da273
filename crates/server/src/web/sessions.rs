//! Sign-in codes and sessions in the store, as hashes of their secrets. Every server of the cluster honours them.

use std::time::Duration;

use data_encoding::{BASE64, HEXLOWER};
use jiff::{SignedDuration, Timestamp};
use refit_backend::{Error, Item, Key, KeyRange, Result, SharedBackend, Transaction};
use refit_identity::{Principal, Trust};
use refit_types::{UnknownFields, keep_unknown_fields};
use rustls::pki_types::CertificateDer;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::format::utc;
use crate::events::{Event, Events};

/// Time enough to paste an address into a browser.
const CODE_TTL: SignedDuration = SignedDuration::from_mins(5);
/// How long a session lasts unless somebody says otherwise: a working day.
const DEFAULT_TTL: Duration = Duration::from_secs(8 * 3600);
const MIN_TTL: Duration = Duration::from_secs(60);
const MAX_TTL: Duration = Duration::from_secs(24 * 3600);
/// Sessions of one person. The oldest is removed when there are more, so that forgotten sessions lock nobody out.
const MOST_OF_ONE: usize = 20;
/// Sessions of everyone.
const MOST: usize = 1000;
/// Too many to guess in five minutes, and few enough for an address that fits into a line of a terminal.
const CODE_BYTES: usize = 16;
const SESSION_BYTES: usize = 32;

/// Why a sign-in failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignInError {
    /// A session of another length.
    #[error("ttl: a session lasts a minute at least and 24 hours at most")]
    Ttl,
    /// An unknown code, or one that was used.
    #[error("this address was used already, or is not one that this cluster gave")]
    Unknown,
    /// An expired code.
    #[error("this address could be used until {}, which is over", utc(*.0))]
    Expired(Timestamp),
    /// A code for an identity whose authority has been replaced since.
    #[error("this address was given to an identity that is no longer trusted")]
    Untrusted,
    /// Too many people at once.
    #[error("{MOST} sessions are open already; sign out of one, or wait until some end")]
    Full,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Error),
}

/// A new code: the only time that its secret is available.
pub(crate) struct NewCode {
    pub(crate) secret: String,
    pub(crate) expires: Timestamp,
    pub(crate) session_expires: Timestamp,
}

/// The identity of the user who asks for a code: a session has its role, and expires with it.
pub(crate) struct Bearer<'a> {
    pub(crate) user: &'a str,
    pub(crate) chain: &'a [CertificateDer<'static>],
    pub(crate) expires: Timestamp,
}

/// The record of a code, stored under its hash.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Self")]
struct Code {
    user: String,
    chain: Vec<String>,
    expires: Timestamp,
    session_expires: Timestamp,
    /// Unknown fields of a newer release, which the session inherits.
    #[serde(skip)]
    unknown: UnknownFields,
}

/// Somebody who is signed in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub(crate) struct Session {
    pub(crate) user: String,
    /// The certificates of the identity, in base64.
    chain: Vec<String>,
    pub(crate) began: Timestamp,
    pub(crate) expires: Timestamp,
    /// What a newer release wrote.
    #[serde(skip)]
    unknown: UnknownFields,
}

keep_unknown_fields!(Code, Session);

/// A record that expires.
trait Ends {
    /// When that is.
    fn expires(&self) -> Timestamp;
}

impl Ends for Code {
    fn expires(&self) -> Timestamp {
        self.expires
    }
}

impl Ends for Session {
    fn expires(&self) -> Timestamp {
        self.expires
    }
}

impl Session {
    /// The principal of the identity that the session was made with; none once its authority is no longer trusted.
    fn principal(&self, trust: &Trust, now: Timestamp) -> Option<Principal> {
        let der = self.chain.iter().map(|text| BASE64.decode(text.as_bytes()).map(CertificateDer::from));
        let chain = der.collect::<Result<Vec<_>, _>>().ok()?;
        trust.verify_client(&chain, now).ok()
    }
}

/// The sessions of the dashboard. They are in the store, so that every server honours them, under hashes of their
/// secrets, so that a copy of the store lets nobody sign in.
#[derive(Debug)]
pub(crate) struct Sessions {
    backend: SharedBackend,
    now: fn() -> Timestamp,
}

impl Sessions {
    pub(crate) fn new(backend: SharedBackend, now: fn() -> Timestamp) -> Self {
        Self { backend, now }
    }

    /// A code for somebody, for as long as their identity is good.
    pub(crate) async fn invite(
        &self,
        bearer: Bearer<'_>,
        ttl: Option<Duration>,
    ) -> Result<NewCode, SignInError> {
        let ttl = ttl.unwrap_or(DEFAULT_TTL);
        if !(MIN_TTL..=MAX_TTL).contains(&ttl) {
            return Err(SignInError::Ttl);
        }
        let now = (self.now)();
        let life = SignedDuration::try_from(ttl).map_err(|_| SignInError::Ttl)?;
        let session_expires = later(now, life).min(bearer.expires);
        let expires = later(now, CODE_TTL).min(bearer.expires);
        let (waiting, _) = self.living::<Code>(&codes()?).await?;
        self.make_room(waiting.iter().map(|(item, code)| (item, code.user.as_str())), bearer.user).await?;
        let secret = secret::<CODE_BYTES>();
        let chain = bearer.chain.iter().map(|der| BASE64.encode(der)).collect();
        let unknown = UnknownFields::default();
        let code = Code { user: bearer.user.into(), chain, expires, session_expires, unknown };
        self.backend.create(&codes()?.child(hash(&secret))?, encoded(&code)?.into()).await?;
        Ok(NewCode { secret, expires, session_expires })
    }

    /// Exchanges a code for a session. Returns the session's secret.
    pub(crate) async fn sign_in(
        &self,
        code: &str,
        trust: &Trust,
        events: &Events,
    ) -> Result<(String, Session), SignInError> {
        let now = (self.now)();
        let key = codes()?.child(hash(code))?;
        let Some(item) = self.backend.get(&key).await? else { return Err(SignInError::Unknown) };
        let code: Code = decoded(&item).ok_or(SignInError::Unknown)?;
        if code.expires <= now {
            return Err(SignInError::Expired(code.expires));
        }
        let Code { user, chain, session_expires: expires, unknown, .. } = code;
        let session = Session { user, chain, began: now, expires, unknown };
        if session.principal(trust, now).is_none() {
            return Err(SignInError::Untrusted);
        }
        let (open, all) = self.living::<Session>(&sessions()?).await?;
        if all >= MOST {
            return Err(SignInError::Full);
        }
        self.make_room(open.iter().map(|(item, session)| (item, session.user.as_str())), &session.user)
            .await?;
        let message = format!("signed in to the dashboard, until {}", utc(session.expires));
        let event = Event::new("session.began", &session.user, format!("user/{}", session.user), message);
        let (told, event) = events.entry(event)?;
        let secret = secret::<SESSION_BYTES>();
        let transaction = Transaction::new()
            .expect_revision(&key, item.revision)
            .delete(&key)
            .put(&sessions()?.child(hash(&secret))?, encoded(&session)?)
            .put(&told, event);
        match self.backend.transact(transaction).await {
            // The code was used concurrently.
            Err(Error::Conflict { .. }) => Err(SignInError::Unknown),
            other => Ok(other.map(|_| (secret, session))?),
        }
    }

    /// The session of that secret and its principal, if it has not expired and its identity is still trusted.
    pub(crate) async fn find(&self, secret: &str, trust: &Trust) -> Result<Option<(Session, Principal)>> {
        let item = self.backend.get(&sessions()?.child(hash(secret))?).await?;
        let (session, now): (Option<Session>, _) = (item.as_ref().and_then(decoded), (self.now)());
        let session = session.filter(|session| session.expires > now);
        Ok(session.and_then(|session| session.principal(trust, now).map(|principal| (session, principal))))
    }

    /// Ends a session.
    pub(crate) async fn sign_out(&self, secret: &str, session: &Session, events: &Events) -> Result<()> {
        let subject = format!("user/{}", session.user);
        let event = Event::new("session.ended", &session.user, subject, "signed out of the dashboard");
        let (told, event) = events.entry(event)?;
        let key = sessions()?.child(hash(secret))?;
        let transaction = Transaction::new().expect_present(&key).delete(&key).put(&told, event);
        match self.backend.transact(transaction).await {
            Ok(_) | Err(Error::Conflict { .. } | Error::NotFound { .. }) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// Removes expired codes and sessions.
    pub(crate) async fn sweep(&self) -> Result<()> {
        self.living::<Code>(&codes()?).await?;
        self.living::<Session>(&sessions()?).await?;
        Ok(())
    }

    /// The unexpired records, oldest first, and their number including those that only a newer release can read, which
    /// are left to a server of that release. Expired records are deleted.
    async fn living<T: DeserializeOwned + Ends>(&self, prefix: &Key) -> Result<(Vec<(Item, T)>, usize)> {
        let (mut living, mut count) = (Vec::new(), 0);
        let mut scan = self.backend.scan(KeyRange::below(prefix));
        while let Some(items) = scan.next_page().await? {
            for item in items {
                match decoded::<T>(&item) {
                    Some(value) if value.expires() <= (self.now)() => self.remove(&item).await?,
                    Some(value) => {
                        count += 1;
                        living.push((item, value));
                    }
                    None => {
                        count += 1;
                        tracing::warn!(key = %item.key, "could not read a session record; it is left for a newer release")
                    }
                }
            }
        }
        living.sort_by_key(|(item, _)| item.revision);
        Ok((living, count))
    }

    /// Removes the oldest records of a user at the limit.
    async fn make_room<'a>(
        &self,
        records: impl Iterator<Item = (&'a Item, &'a str)>,
        user: &str,
    ) -> Result<()> {
        let own: Vec<&Item> = records.filter(|(_, owner)| *owner == user).map(|(item, _)| item).collect();
        let surplus = (own.len() + 1).saturating_sub(MOST_OF_ONE);
        for item in own.into_iter().take(surplus) {
            self.remove(item).await?;
        }
        Ok(())
    }

    async fn remove(&self, item: &Item) -> Result<()> {
        match self.backend.delete(&item.key).await {
            Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The token that a form of the session must carry, derived from the session's secret.
pub(crate) fn form_token(secret: &str) -> String {
    hash(&format!("form {secret}"))
}

fn codes() -> Result<Key> {
    Key::new("/web/v1/code")
}

fn sessions() -> Result<Key> {
    Key::new("/web/v1/session")
}

fn hash(secret: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(secret))
}

fn secret<const BYTES: usize>() -> String {
    let mut bytes = [0; BYTES];
    rand::fill(&mut bytes);
    HEXLOWER.encode(&bytes)
}

fn later(now: Timestamp, by: SignedDuration) -> Timestamp {
    now.checked_add(by).unwrap_or(Timestamp::MAX)
}

fn encoded(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| Error::Invalid(error.to_string()))
}

fn decoded<T: DeserializeOwned>(item: &Item) -> Option<T> {
    serde_json::from_slice(&item.value).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use refit_authority::Authority;
    use refit_backend::MemoryBackend;
    use refit_identity::{PrivateKey, Role, Roles, SigningRequest};
    use refit_testbed::with_newer_fields;
    use serde_json::Value;

    use super::*;

    struct World {
        records: Sessions,
        events: Events,
        trust: Trust,
        chain: [CertificateDer<'static>; 1],
    }

    impl World {
        async fn new() -> Self {
            let (backend, now): (SharedBackend, _) = (Arc::new(MemoryBackend::default()), Timestamp::now());
            let cluster = "example".parse().unwrap();
            let authority = Authority::load_or_create(&*backend, cluster, now).await.unwrap();
            let request = PrivateKey::generate().unwrap().signing_request().unwrap();
            let request = SigningRequest::from_pem(&request).unwrap();
            let (name, roles) = ("a".parse().unwrap(), Roles::from(Role::Viewer));
            let certificate = authority.issue_user(&request, &name, &roles, MAX_TTL, now).unwrap();
            Self {
                records: Sessions::new(backend.clone(), Timestamp::now),
                events: Events::new(backend, Timestamp::now),
                trust: authority.trust().unwrap(),
                chain: [certificate.der().clone()],
            }
        }

        fn until(&self, expires: Timestamp) -> Bearer<'_> {
            Bearer { user: "a", chain: &self.chain, expires }
        }

        fn long(&self) -> Bearer<'_> {
            self.until(later(Timestamp::now(), SignedDuration::from_hours(1000)))
        }

        async fn signed_in(&self, code: &NewCode) -> Result<(String, Session), SignInError> {
            self.records.sign_in(&code.secret, &self.trust, &self.events).await
        }
    }

    #[tokio::test]
    async fn a_session_ends_no_later_than_the_identity_and_the_longest_there_is() {
        let world = World::new().await;
        let soon = later(Timestamp::now(), SignedDuration::from_mins(2));
        let code = world.records.invite(world.until(soon), None).await.unwrap();
        assert_eq!((code.expires, code.session_expires), (soon, soon));
        let code = world.records.invite(world.long(), None).await.unwrap();
        assert!(code.session_expires < later(Timestamp::now(), SignedDuration::from_hours(9)));
        for ttl in [Duration::ZERO, MAX_TTL + Duration::from_secs(1)] {
            let refused = world.records.invite(world.long(), Some(ttl)).await;
            assert!(matches!(refused, Err(SignInError::Ttl)));
        }
    }

    #[tokio::test]
    async fn nobody_has_more_than_their_share() {
        let world = World::new().await;
        let mut secrets = Vec::new();
        for _ in 0..MOST_OF_ONE + 2 {
            let code = world.records.invite(world.long(), None).await.unwrap();
            secrets.push(world.signed_in(&code).await.unwrap().0);
        }
        let mut open = Vec::new();
        for secret in &secrets {
            let key = sessions().unwrap().child(hash(secret)).unwrap();
            open.push(world.records.backend.get(&key).await.unwrap().is_some());
        }
        assert_eq!(open.iter().filter(|open| **open).count(), MOST_OF_ONE);
        assert!(!open[0] && !open[1] && open[2], "the oldest end first");
    }

    #[tokio::test]
    async fn what_a_newer_server_wrote_into_a_code_is_in_its_session() {
        let world = World::new().await;
        let code = world.records.invite(world.long(), None).await.unwrap();
        let stored = async |key: &Key| -> Value {
            serde_json::from_slice(&world.records.backend.get(key).await.unwrap().unwrap().value).unwrap()
        };
        let key = codes().unwrap().child(hash(&code.secret)).unwrap();
        let newer = with_newer_fields(&stored(&key).await);
        world.records.backend.put(&key, newer.to_string().into()).await.unwrap();
        let (secret, session) = world.signed_in(&code).await.unwrap();
        let written = stored(&sessions().unwrap().child(hash(&secret)).unwrap()).await;
        assert_eq!(written["newer"], newer["newer"]);
        let read: Session = serde_json::from_value(written.clone()).unwrap();
        assert_eq!((serde_json::to_value(&read).unwrap(), read), (written, session));
    }

    #[tokio::test]
    async fn what_only_a_newer_server_can_read_is_never_deleted() {
        let world = World::new().await;
        let (now, hour) = (Timestamp::now(), SignedDuration::from_hours(1));
        let backend = &world.records.backend;
        let ending = |expires: Timestamp| format!(r#"{{"subject":{{"user":"a"}},"expires":"{expires}"}}"#);
        let texts = [ending(later(now, hour)), ending(now), "[]".into()];
        for prefix in [codes().unwrap(), sessions().unwrap()] {
            for (n, text) in texts.iter().enumerate() {
                backend.put(&prefix.child(n).unwrap(), text.clone().into()).await.unwrap();
            }
        }
        world.records.sweep().await.unwrap();
        for prefix in [codes(), sessions()] {
            let left = backend.range(&KeyRange::below(&prefix.unwrap()), 10).await.unwrap().items;
            let left: Vec<&str> = left.iter().map(|item| std::str::from_utf8(&item.value).unwrap()).collect();
            assert_eq!(left, texts);
        }
    }

    #[tokio::test]
    async fn no_secret_is_stored() {
        let world = World::new().await;
        let code = world.records.invite(world.long(), None).await.unwrap();
        let stored = |page: refit_backend::Page| {
            let texts = page.items.iter().map(|item| format!("{} {:?}", item.key, item.value));
            texts.collect::<String>()
        };
        let before = stored(world.records.backend.range(&KeyRange::all(), 100).await.unwrap());
        let (secret, _) = world.signed_in(&code).await.unwrap();
        let after = stored(world.records.backend.range(&KeyRange::all(), 100).await.unwrap());
        assert!(before.contains(&hash(&code.secret)) && !before.contains(&code.secret));
        assert!(after.contains(&hash(&secret)) && !after.contains(&secret));
        assert!(!after.contains(&hash(&code.secret)), "a code is used up");
        assert!(!after.contains(&form_token(&secret)));
    }
}
