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

/// Whether a request may be sent again when nobody knows what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Doing it twice is as good as doing it once.
    Harmless,
    /// Doing it twice may undo what someone else did in between.
    Harmful,
}

/// Gets requests to some member of the cluster, whichever is there.
pub(super) struct Client {
    members: Vec<Member>,
    /// The member to ask first: the last one that was not found wanting.
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
            user.password().await.map_err(|fault| address.fault(fault))?;
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

    /// Asks member after member until one answers, there is no time left, or another attempt could do harm.
    pub(super) async fn ask<T, F>(
        &self,
        repeat: Repeat,
        patience: &mut Backoff,
        request: impl Fn(Session) -> F,
    ) -> Result<T, EtcdError>
    where
        F: Future<Output = Result<T, EtcdError>> + Send,
    {
        let mut asked = 0;
        let mut hopeless = 0;
        let mut renewed = false;
        loop {
            let index = self.current.load(Ordering::Relaxed) % self.members.len();
            let member = &self.members[index];
            let token = self.token.lock().await.clone();
            let answer =
                timeout(REQUEST_TIMEOUT.min(patience.left()), request(member.session(index, token.clone())));
            let mut fault = match answer.await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(fault)) => fault,
                Err(_) => EtcdError::Unknown("no answer in time".into()),
            };
            if let EtcdError::Token(reason) = fault {
                if renewed {
                    return Err(EtcdError::Refused(reason));
                }
                match self.renew(member, token.as_ref()).await {
                    Ok(true) => {
                        renewed = true;
                        continue;
                    }
                    Ok(false) => return Err(EtcdError::Refused(reason)),
                    Err(cause) => fault = cause,
                }
            }
            match fault {
                EtcdError::NotDone(_) => hopeless = 0,
                EtcdError::Hopeless(_) => hopeless += 1,
                EtcdError::Unknown(_) if repeat == Repeat::Harmless => hopeless = 0,
                EtcdError::Unknown(_) => {
                    self.leave(index);
                    return Err(fault.at(&member.name));
                }
                other => return Err(other),
            }
            self.leave(index);
            asked += 1;
            let round_over = asked % self.members.len() == 0;
            if hopeless >= self.members.len()
                || patience.left().is_zero()
                || round_over && !patience.pause().await
            {
                return Err(fault.at(&member.name));
            }
            tracing::debug!(member = member.name, ?fault, "asking another member");
        }
    }

    /// Makes the next request go to another member, unless one that failed beside this one did so already.
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
                Ok(Err(fault)) => return Err(fault),
                Err(_) => return Err(EtcdError::NotDone("no answer in time".into())),
            };
        }
        Ok(true)
    }
}

/// The token, or nothing if the store asks for none.
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
