//! The store on an etcd cluster, which any number of servers may share.

mod address;
mod client;
mod keyspace;
mod member;
mod proto;
mod redact;
mod request;
mod rpc_error;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream;

pub use address::EtcdAddress;

use self::client::{Client, Retry};
use self::keyspace::{Keyspace, revision};
use self::proto::etcdserverpb::{
    DeleteRangeRequest, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, LeaseTimeToLiveRequest,
    RangeRequest, ResponseHeader, TxnRequest, TxnResponse,
};
use self::rpc_error::EtcdError;
use self::watch::Follower;
use crate::Backoff;
use crate::{
    Backend, Error, KeyRange, Lease, LeaseId, Page, Read, Result, Revision, Snapshot, Transaction, Watch,
};

const CONNECT_FOR: Duration = Duration::from_secs(15);
const ASK_FOR: Duration = Duration::from_secs(10);

/// A store on etcd, for when more than one server is to share it.
#[derive(Clone)]
pub struct EtcdBackend {
    client: Arc<Client>,
    keys: Keyspace,
}

impl EtcdBackend {
    /// Connects, and checks that the store responds and accepts our credentials, so that no server starts without one.
    pub async fn connect(address: &EtcdAddress) -> Result<Self> {
        let client = Arc::new(Client::new(address).await?);
        let keys = Keyspace::new(&address.prefix, client.store());
        let backend = Self { client, keys };
        backend.check().await.map_err(|error| backend.error(error))?;
        Ok(backend)
    }

    async fn check(&self) -> Result<(), EtcdError> {
        let Some(all) = self.keys.span(&KeyRange::all()) else { return Ok(()) };
        let any = RangeRequest {
            key: all.start,
            range_end: all.end,
            limit: 1,
            keys_only: true,
            ..Default::default()
        };
        let mut backoff = Backoff::of(CONNECT_FOR);
        let ask = self.client.ask(Retry::Safe, &mut backoff, |session| {
            let any = any.clone();
            async move { Ok(session.kv().range(any).await?) }
        });
        ask.await.map(drop)
    }

    async fn txn(&self, retry: Retry, request: TxnRequest) -> Result<TxnResponse, EtcdError> {
        let mut backoff = Backoff::of(ASK_FOR);
        let ask = self.client.ask(retry, &mut backoff, |session| {
            let request = request.clone();
            async move { Ok(session.kv().txn(request).await?.into_inner()) }
        });
        ask.await
    }

    /// Finds out which lease of the transaction is missing, because etcd does not report it.
    async fn missing_lease(&self, transaction: &Transaction) -> Result<LeaseId, EtcdError> {
        let mut leases: Vec<LeaseId> = request::leases(transaction).collect();
        leases.dedup();
        while let [lease, _, ..] = leases[..] {
            if self.is_over(lease).await? {
                return Ok(lease);
            }
            leases.remove(0);
        }
        leases.pop().ok_or(EtcdError::NoLease)
    }

    async fn is_over(&self, lease: LeaseId) -> Result<bool, EtcdError> {
        let mut backoff = Backoff::of(ASK_FOR);
        let ask = self.client.ask(Retry::Safe, &mut backoff, |session| async move {
            let request = LeaseTimeToLiveRequest { id: lease.0 };
            Ok(session.lease().lease_time_to_live(request).await?.into_inner().ttl <= 0)
        });
        match ask.await {
            Err(EtcdError::NoLease) => Ok(true),
            answer => answer,
        }
    }

    fn error(&self, error: EtcdError) -> Error {
        error.into_error(self.client.store())
    }

    fn lease_error(&self, lease: LeaseId, error: EtcdError) -> Error {
        match error {
            EtcdError::NoLease => Error::LeaseNotFound(lease),
            other => self.error(other),
        }
    }

    fn page(&self, read: &Read, answers: &mut impl Iterator<Item = Page>, revision: Revision) -> Page {
        match request::question(read, &self.keys) {
            Some(_) => answers.next().unwrap_or_default(),
            None => Page { revision, ..Page::default() },
        }
    }
}

impl fmt::Debug for EtcdBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EtcdBackend").field(&self.client.store()).finish()
    }
}

#[async_trait]
impl Backend for EtcdBackend {
    fn describe(&self) -> String {
        self.client.store().into()
    }

    async fn read(&self, reads: &[Read]) -> Result<Snapshot> {
        Read::check(reads)?;
        let request = request::snapshot(reads, &self.keys);
        let response = self.txn(Retry::Safe, request).await.map_err(|error| self.error(error))?;
        let revision = moment(response.header);
        let answers = response.responses.into_iter().map(|answer| {
            let range = request::range_of(answer);
            let items = range.kvs.into_iter().map(|found| self.keys.item(found)).collect::<Result<_>>()?;
            Ok(Page { items, more: range.more, revision })
        });
        let mut answers = answers.collect::<Result<Vec<Page>>>()?.into_iter();
        let pages = reads.iter().map(|read| self.page(read, &mut answers, revision)).collect();
        Ok(Snapshot { revision, pages })
    }

    async fn transact(&self, transaction: Transaction) -> Result<Revision> {
        transaction.check()?;
        request::check_leases(&transaction)?;
        let request = request::transaction(&transaction, &self.keys);
        let retry = if transaction.is_empty() { Retry::Safe } else { Retry::Unsafe };
        let response = match self.txn(retry, request).await {
            Ok(response) => response,
            Err(EtcdError::NoLease) => {
                let lease = self.missing_lease(&transaction).await.map_err(|error| self.error(error))?;
                return Err(Error::LeaseNotFound(lease));
            }
            Err(error) => return Err(self.error(error)),
        };
        if response.succeeded {
            return Ok(moment(response.header));
        }
        match request::first_conflict(&transaction, response.responses) {
            Some(key) => Err(Error::Conflict { key }),
            None => Err(self.client.failed("it refused a transaction whose conditions all hold")),
        }
    }

    async fn delete_range(&self, range: &KeyRange) -> Result<u64> {
        let Some(span) = self.keys.span(range) else { return Ok(0) };
        let request = DeleteRangeRequest { key: span.start, range_end: span.end };
        let mut backoff = Backoff::of(ASK_FOR);
        let ask = self.client.ask(Retry::Unsafe, &mut backoff, |session| {
            let request = request.clone();
            async move { Ok(session.kv().delete_range(request).await?.into_inner().deleted) }
        });
        let deleted = ask.await.map_err(|error| self.error(error))?;
        Ok(u64::try_from(deleted).unwrap_or_default())
    }

    async fn grant_lease(&self, ttl: Duration) -> Result<Lease> {
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let request = LeaseGrantRequest { ttl: i64::try_from(seconds.max(1)).unwrap_or(i64::MAX), id: 0 };
        let mut backoff = Backoff::of(ASK_FOR);
        // A lease that was granted and never heard of ends by itself.
        let ask = self.client.ask(Retry::Safe, &mut backoff, |session| async move {
            Ok(session.lease().lease_grant(request).await?.into_inner())
        });
        let granted = ask.await.map_err(|error| self.error(error))?;
        let ttl = u64::try_from(granted.ttl).unwrap_or_default();
        match granted.error.is_empty() && ttl > 0 {
            true => Ok(Lease { id: LeaseId(granted.id), ttl: Duration::from_secs(ttl) }),
            false => Err(self.client.failed(granted.error)),
        }
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<()> {
        let mut backoff = Backoff::of(ASK_FOR);
        let ask = self.client.ask(Retry::Safe, &mut backoff, |session| async move {
            let requests = stream::iter([LeaseKeepAliveRequest { id: lease.0 }]);
            let response = session.lease().lease_keep_alive(requests).await?.into_inner().message().await?;
            match response {
                Some(response) if response.ttl > 0 => Ok(()),
                Some(_) => Err(EtcdError::NoLease),
                None => Err(EtcdError::Unknown("it ended the keep-alive without an answer".into())),
            }
        });
        ask.await.map_err(|error| self.lease_error(lease, error))
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<()> {
        let mut backoff = Backoff::of(ASK_FOR);
        let ask = self.client.ask(Retry::Unsafe, &mut backoff, |session| async move {
            Ok(session.lease().lease_revoke(LeaseRevokeRequest { id: lease.0 }).await?)
        });
        ask.await.map(drop).map_err(|error| self.lease_error(lease, error))
    }

    async fn watch(&self, range: &KeyRange, after: Revision) -> Result<Watch> {
        let Some(span) = self.keys.span(range) else { return Ok(Watch::new(stream::pending())) };
        let backoff = Backoff::of(ASK_FOR);
        let follower = Follower::open(self.client.clone(), self.keys.clone(), span, after, backoff).await?;
        Ok(follower.into_watch())
    }
}

fn moment(header: Option<ResponseHeader>) -> Revision {
    revision(header.unwrap_or_default().revision)
}
