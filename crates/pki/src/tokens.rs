use std::fmt;
use std::time::Duration;

use data_encoding::HEXLOWER;
use jiff::{SignedDuration, Timestamp};
use refit_backend::{Error as StoreError, Key, KeyRange, SharedBackend, Transaction};
use refit_types::AgentRole;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The shortest life of a token: time enough to paste a line.
const MIN_TTL: Duration = Duration::from_secs(60);
/// The longest: who needs more has static tokens in mind.
const MAX_TTL: Duration = Duration::from_secs(30 * 86_400);
/// How long a token that has expired is kept, so that its holder is told so.
const KEPT_FOR: Duration = Duration::from_secs(86_400);
/// Random bytes of a token.
const SECRET_BYTES: usize = 16;
/// Characters of a token's hash that name it.
const NAME_LENGTH: usize = 12;

/// Why a token does not let a host join, or cannot be made or found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Nobody made it, or somebody deleted it.
    #[error("the token is not known to this cluster; make one with `refitctl nodes add`")]
    Unknown,
    /// It was good once.
    #[error("the token expired at {0}; make a new one with `refitctl nodes add`")]
    Expired(Timestamp),
    /// It lets hosts join, but not as this.
    #[error(
        "the token does not allow the role {wanted}, only {allowed}; make one that does with `refitctl nodes add --roles`"
    )]
    Role {
        /// What was asked for.
        wanted: AgentRole,
        /// What it allows.
        allowed: String,
    },
    /// A life that is too short or too long.
    #[error("a token is good for a minute at least and 30 days at most")]
    Ttl,
    /// A name that names no token, or several.
    #[error("there is {count} token whose name begins with {name:?}; see `refitctl tokens ls`", count = if *.several { "more than one" } else { "no" })]
    Name {
        /// What was asked for.
        name: String,
        /// Whether there are several.
        several: bool,
    },
    /// Only its configuration takes it away.
    #[error("the token {0} is in a server's configuration; remove it there")]
    Static(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A token that the configuration of a server gives: it does not expire.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticToken {
    /// The secret.
    pub token: String,
    /// What hosts may join as with it.
    pub roles: Vec<AgentRole>,
}

impl fmt::Debug for StaticToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaticToken").field("roles", &self.roles).finish_non_exhaustive()
    }
}

/// A token that was just made: the only time that its secret is seen.
pub struct NewToken {
    secret: String,
    token: Token,
    expires: Timestamp,
}

impl NewToken {
    /// What a host joins with.
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// What it is called from now on.
    pub fn name(&self) -> &str {
        self.token.name()
    }

    /// Until when hosts can join with it.
    pub fn expires(&self) -> Timestamp {
        self.expires
    }
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken").field("token", &self.token).finish_non_exhaustive()
    }
}

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    hash: String,
    roles: Vec<AgentRole>,
    expires: Option<Timestamp>,
}

impl Token {
    /// The beginning of its hash: enough to name it, nothing to join with.
    pub fn name(&self) -> &str {
        self.hash.get(..NAME_LENGTH).unwrap_or(&self.hash)
    }

    /// What hosts may join as with it.
    pub fn roles(&self) -> &[AgentRole] {
        &self.roles
    }

    /// Until when; for ever if it is static.
    pub fn expires(&self) -> Option<Timestamp> {
        self.expires
    }

    fn allows(&self, wanted: &[AgentRole], now: Timestamp) -> Result<(), TokenError> {
        if let Some(expires) = self.expires.filter(|expires| *expires <= now) {
            return Err(TokenError::Expired(expires));
        }
        match wanted.iter().find(|role| !self.roles.contains(role)) {
            Some(wanted) => {
                let allowed: Vec<&str> = self.roles.iter().map(|role| role.as_str()).collect();
                Err(TokenError::Role { wanted: *wanted, allowed: allowed.join(", ") })
            }
            None => Ok(()),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Record {
    roles: Vec<AgentRole>,
    expires: Timestamp,
    created_by: String,
}

/// The tokens by which hosts join. Only their hashes are stored: whoever reads the store cannot join.
#[derive(Debug)]
pub struct TokenStore {
    backend: SharedBackend,
    statics: Vec<Token>,
}

impl TokenStore {
    /// The tokens of the store, and those of the server's configuration.
    pub fn new(backend: SharedBackend, statics: &[StaticToken]) -> Self {
        let token = |given: &StaticToken| Token {
            hash: hash(&given.token),
            roles: given.roles.clone(),
            expires: None,
        };
        Self { backend, statics: statics.iter().map(token).collect() }
    }

    /// Makes a token that lets hosts join as any of `roles`. What `alongside` makes of it is stored in the same
    /// transaction: the event that tells of it.
    pub async fn create(
        &self,
        roles: &[AgentRole],
        ttl: Duration,
        created_by: &str,
        now: Timestamp,
        alongside: impl FnOnce(&NewToken) -> Result<Vec<(Key, Vec<u8>)>, StoreError>,
    ) -> Result<NewToken, TokenError> {
        if !(MIN_TTL..=MAX_TTL).contains(&ttl) {
            return Err(TokenError::Ttl);
        }
        let life = SignedDuration::try_from(ttl).map_err(|_| TokenError::Ttl)?;
        let expires = now.checked_add(life).map_err(|_| TokenError::Ttl)?;
        let mut bytes = [0; SECRET_BYTES];
        rand::fill(&mut bytes);
        let secret = HEXLOWER.encode(&bytes);
        let record = Record { roles: roles.to_vec(), expires, created_by: created_by.into() };
        let value = serde_json::to_vec(&record).map_err(|error| StoreError::Invalid(error.to_string()))?;
        let hash = hash(&secret);
        let key = key(&hash)?;
        let made =
            NewToken { secret, token: Token { hash, roles: record.roles, expires: Some(expires) }, expires };
        let transaction = Transaction::new().expect_absent(&key).put(&key, value).put_all(&alongside(&made)?);
        self.backend.transact(transaction).await?;
        Ok(made)
    }

    /// Whether a host with this token may join as all of `wanted`.
    pub async fn check(&self, secret: &str, wanted: &[AgentRole], now: Timestamp) -> Result<(), TokenError> {
        let hash = hash(secret);
        if let Some(token) = self.statics.iter().find(|token| token.hash == hash) {
            return token.allows(wanted, now);
        }
        let item = self.backend.get(&key(&hash)?).await?.ok_or(TokenError::Unknown)?;
        let token = decode(&hash, &item.value).ok_or(TokenError::Unknown)?;
        token.allows(wanted, now)
    }

    /// All of them, the static ones first.
    pub async fn list(&self) -> Result<Vec<Token>, TokenError> {
        let (mut all, mut scan) = (self.statics.clone(), self.backend.scan(KeyRange::below(&prefix()?)));
        while let Some(items) = scan.next_page().await? {
            all.extend(items.iter().filter_map(|item| decode(last_part(&item.key), &item.value)));
        }
        Ok(all)
    }

    /// Deletes the one whose hash begins with `name`, and stores what `alongside` makes of it in the same
    /// transaction.
    pub async fn delete(
        &self,
        name: &str,
        alongside: impl FnOnce(&Token) -> Result<Vec<(Key, Vec<u8>)>, StoreError>,
    ) -> Result<(), TokenError> {
        let all = self.list().await?;
        let mut named = all.iter().filter(|token| !name.is_empty() && token.hash.starts_with(name));
        let no_token = |several| TokenError::Name { name: name.chars().take(80).collect(), several };
        let (Some(token), None) = (named.next(), named.next()) else {
            let several = all.iter().any(|token| !name.is_empty() && token.hash.starts_with(name));
            return Err(no_token(several));
        };
        if token.expires.is_none() {
            return Err(TokenError::Static(token.name().into()));
        }
        let key = key(&token.hash)?;
        let transaction = Transaction::new().expect_present(&key).delete(&key).put_all(&alongside(token)?);
        match self.backend.transact(transaction).await {
            // Somebody else was quicker.
            Err(StoreError::Conflict { .. }) => Err(no_token(false)),
            other => Ok(other.map(drop)?),
        }
    }

    /// Removes those that expired more than a day ago.
    pub async fn sweep(&self, now: Timestamp) -> Result<(), TokenError> {
        let kept = SignedDuration::try_from(KEPT_FOR).unwrap_or(SignedDuration::ZERO);
        for token in self.list().await? {
            if token.expires.is_some_and(|expires| now.duration_since(expires) > kept) {
                match self.backend.delete(&key(&token.hash)?).await {
                    Ok(_) | Err(StoreError::NotFound { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }
}

fn prefix() -> Result<Key, StoreError> {
    Key::new("/tokens/v1/join")
}

fn key(hash: &str) -> Result<Key, StoreError> {
    prefix()?.child(hash)
}

fn last_part(key: &Key) -> &str {
    key.as_str().rsplit('/').next().unwrap_or_default()
}

fn hash(secret: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(secret.trim()))
}

fn decode(hash: &str, value: &[u8]) -> Option<Token> {
    let record: Record = serde_json::from_slice(value).ok()?;
    Some(Token { hash: hash.into(), roles: record.roles, expires: Some(record.expires) })
}
