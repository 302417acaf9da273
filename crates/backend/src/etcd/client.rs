//! Sends requests to the cluster with failover between members, retries and login. The only caller of [`Member`].

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::timeout;
use tonic::Code;

use super::address::{EtcdAddress, Password, User};
use super::member::{Member, Session, Token};
use super::proto::etcdserverpb::AuthenticateRequest;
use super::rpc_error::EtcdError;
use crate::Backoff;
use crate::{Error, Result};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether a request may be sent again when its result is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Retry {
    /// Idempotent.
    Safe,
    /// Repeating it could overwrite a write that happened in between.
    Unsafe,
}

/// Sends requests to whichever member of the cluster responds.
pub(super) struct Client {
    members: Vec<Member>,
    /// The member to ask first: the last one that worked.
    current: AtomicUsize,
    user: Option<User>,
    token: Mutex<Option<Token>>,
    store: String,
}

impl Client {
    pub(super) async fn new(address: &EtcdAddress) -> Result<Self> {
        let client = Self {
            members: Member::all_of(address).await?,
            current: AtomicUsize::new(0),
            user: address.user.clone(),
            token: Mutex::new(None),
            store: format!("etcd {} {}", address.hosts(), address.prefix),
        };
        if let Some(user) = &client.user {
            user.password().await.map_err(|error| address.error(error))?;
        }
        Ok(client)
    }

    /// Names the store for people.
    pub(super) fn store(&self) -> &str {
        &self.store
    }

    pub(super) fn failed(&self, reason: impl Into<String>) -> Error {
        Error::Failed { store: self.store.clone(), reason: reason.into() }
    }

    /// Asks one member after the other until one answers, the time is up, or a retry would be unsafe.
    pub(super) async fn ask<T, F>(
        &self,
        retry: Retry,
        backoff: &mut Backoff,
        request: impl Fn(Session) -> F,
    ) -> Result<T, EtcdError>
    where
        F: Future<Output = Result<T, EtcdError>> + Send,
    {
        let mut asked = 0;
        let mut permanent = 0;
        let mut renewed = false;
        loop {
            let index = self.current.load(Ordering::Relaxed) % self.members.len();
            let member = &self.members[index];
            let token = self.token.lock().await.clone();
            let answer =
                timeout(REQUEST_TIMEOUT.min(backoff.left()), request(member.session(index, token.clone())));
            let mut error = match answer.await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => error,
                Err(_) => EtcdError::Unknown("no response in time".into()),
            };
            if let EtcdError::Token(reason) = error {
                if renewed {
                    return Err(EtcdError::Refused(reason));
                }
                match self.renew(member, token.as_ref()).await {
                    Ok(true) => {
                        renewed = true;
                        continue;
                    }
                    Ok(false) => return Err(EtcdError::Refused(reason)),
                    Err(cause) => error = cause,
                }
            }
            match error {
                EtcdError::NotDone(_) => permanent = 0,
                EtcdError::Permanent(_) => permanent += 1,
                EtcdError::Unknown(_) if retry == Retry::Safe => permanent = 0,
                EtcdError::Unknown(_) => {
                    self.leave(index);
                    return Err(error.at(&member.name));
                }
                other => return Err(other),
            }
            self.leave(index);
            asked += 1;
            let round_over = asked % self.members.len() == 0;
            if permanent >= self.members.len()
                || backoff.left().is_zero()
                || round_over && !backoff.pause().await
            {
                return Err(error.at(&member.name));
            }
            tracing::debug!(member = member.name, ?error, "etcd request failed; trying another member");
        }
    }

    /// Makes the next request go to another member, unless a concurrent request already moved on.
    pub(super) fn leave(&self, index: usize) {
        let next = (index + 1) % self.members.len();
        let _ = self.current.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Logs in again, unless someone has done so since `stale` was taken; false if there is no user to log in.
    async fn renew(&self, member: &Member, stale: Option<&Token>) -> Result<bool, EtcdError> {
        let Some(user) = &self.user else { return Ok(false) };
        let mut token = self.token.lock().await;
        if token.as_ref() == stale {
            *token = None;
            *token = match timeout(REQUEST_TIMEOUT, log_in(member, user)).await {
                Ok(Ok(token)) => token,
                Ok(Err(EtcdError::Unknown(reason))) => return Err(EtcdError::NotDone(reason)),
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(EtcdError::NotDone("no answer in time".into())),
            };
        }
        Ok(true)
    }
}

/// The token, or none if the cluster does not use authentication.
async fn log_in(member: &Member, user: &User) -> Result<Option<Token>, EtcdError> {
    let password = user.password().await.map_err(EtcdError::Refused)?;
    let request = AuthenticateRequest { name: user.name.clone(), password };
    match member.auth().authenticate(request).await {
        Ok(response) => {
            let mut token: Token = (response.into_inner().token.parse())
                .map_err(|_| EtcdError::Failed("it gave a token that cannot be sent back".into()))?;
            token.set_sensitive(true);
            Ok(Some(token))
        }
        Err(status)
            if status.code() == Code::FailedPrecondition && status.message().contains("not enabled") =>
        {
            Ok(None)
        }
        Err(status) => Err(status.into()),
    }
}

impl User {
    async fn password(&self) -> Result<String, String> {
        match &self.password {
            Password::Given(secret) => Ok(secret.reveal().to_owned()),
            Password::File(file) => match tokio::fs::read_to_string(file).await {
                Ok(text) => Ok(text.trim_end_matches(['\r', '\n']).to_owned()),
                Err(error) => Err(format!("password_file={}: {error}", file.display())),
            },
        }
    }
}
