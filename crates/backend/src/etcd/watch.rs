//! A watch that survives the loss of a member: it resumes after the last complete revision.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use tokio::sync::oneshot;
use tonic::Streaming;

use super::client::{Client, Retry};
use super::keyspace::{Keyspace, Span};
use super::member::Session;
use super::proto::etcdserverpb::watch_request::RequestUnion;
use super::proto::etcdserverpb::{WatchCreateRequest, WatchRequest, WatchResponse};
use super::rpc_error::EtcdError;
use crate::Backoff;
use crate::{Error, Event, Result, Revision, Watch};

/// How long a watch tries to reconnect before it gives up.
const REOPEN_FOR: Duration = Duration::from_secs(30);

/// After a stream has lasted this long, the next failure starts with a fresh backoff.
const SETTLED: Duration = Duration::from_secs(10);

/// Watches a range, reconnecting to other members. Driven by its reader, so it buffers no more than one response;
/// later events wait in etcd.
pub(super) struct Follower {
    client: Arc<Client>,
    keys: Keyspace,
    span: Span,
    /// Every event up to this revision was received.
    after: Revision,
    ready: VecDeque<Event>,
    /// Events of a revision that may still be incomplete.
    partial: Vec<Event>,
    feed: Feed,
    backoff: Option<Backoff>,
}

/// One open stream of a member.
struct Feed {
    responses: Streaming<WatchResponse>,
    member: usize,
    opened: Instant,
    /// Dropping it closes the stream.
    _open: oneshot::Sender<()>,
}

impl Follower {
    pub(super) async fn open(
        client: Arc<Client>,
        keys: Keyspace,
        span: Span,
        after: Revision,
        mut backoff: Backoff,
    ) -> Result<Self> {
        let feed = Feed::open(&client, &span, after, &mut backoff).await;
        let feed = feed.map_err(|error| error.into_error(client.store()))?;
        let (ready, partial) = (VecDeque::new(), Vec::new());
        Ok(Self { client, keys, span, after, ready, partial, feed, backoff: None })
    }

    pub(super) fn into_watch(self) -> Watch {
        Watch::new(stream::unfold(Some(self), |follower| async move {
            let mut follower = follower?;
            match follower.next().await {
                Ok(events) => Some((Ok(events), Some(follower))),
                Err(error) => Some((Err(error), None)),
            }
        }))
    }

    async fn next(&mut self) -> Result<VecDeque<Event>> {
        loop {
            if !self.ready.is_empty() {
                return Ok(std::mem::take(&mut self.ready));
            }
            match self.feed.responses.message().await {
                Ok(Some(response)) => self.take(response).await?,
                Ok(None) => self.reopen(EtcdError::NotDone("the watch was ended".into())).await?,
                Err(status) => self.reopen(status.into()).await?,
            }
        }
    }

    async fn take(&mut self, response: WatchResponse) -> Result<()> {
        if response.compact_revision > 0 {
            return Err(Error::WatchLost { after: self.after });
        }
        if response.canceled {
            return self.reopen(EtcdError::NotDone(response.cancel_reason)).await;
        }
        for event in response.events {
            let event = self.keys.event(event)?;
            if self.partial.last().is_some_and(|last| last.revision < event.revision) {
                self.release();
            }
            if event.revision > self.after {
                self.partial.push(event);
            }
        }
        if !response.fragment {
            self.release();
        }
        Ok(())
    }

    /// Passes on the events of a complete revision.
    fn release(&mut self) {
        if let Some(last) = self.partial.last() {
            self.after = last.revision;
            self.backoff = None;
            self.ready.extend(self.partial.drain(..));
        }
    }

    /// Resumes after the last complete revision, with whichever member responds.
    async fn reopen(&mut self, error: EtcdError) -> Result<()> {
        tracing::debug!(?error, after = self.after.0, "the etcd watch was interrupted; resuming");
        self.partial.clear();
        self.client.leave(self.feed.member);
        if self.feed.opened.elapsed() >= SETTLED {
            self.backoff = None;
        }
        let backoff = self.backoff.get_or_insert_with(|| Backoff::of(REOPEN_FOR));
        let opened = match backoff.pause().await {
            true => Feed::open(&self.client, &self.span, self.after, backoff).await,
            false => Err(error),
        };
        self.feed = opened.map_err(|error| error.into_error(self.client.store()))?;
        Ok(())
    }
}

impl Feed {
    async fn open(
        client: &Client,
        span: &Span,
        after: Revision,
        backoff: &mut Backoff,
    ) -> Result<Self, EtcdError> {
        let create = WatchCreateRequest {
            key: span.start.clone(),
            range_end: span.end.clone(),
            start_revision: i64::try_from(after.0.saturating_add(1)).unwrap_or(i64::MAX),
            fragment: true,
            ..Default::default()
        };
        let request = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        client.ask(Retry::Safe, backoff, |session| Self::open_at(session, request.clone())).await
    }

    async fn open_at(session: Session, request: WatchRequest) -> Result<Self, EtcdError> {
        let member = session.index;
        let (open, closed) = oneshot::channel::<()>();
        let requests =
            stream::once(async { request }).chain(stream::once(closed).filter_map(|_| async { None }));
        let mut responses = session.watch().watch(requests).await?.into_inner();
        let created = responses.message().await?;
        match created.filter(|response| response.created) {
            Some(response) if response.canceled => Err(EtcdError::cancelled(&response.cancel_reason)),
            Some(_) => Ok(Self { responses, member, opened: Instant::now(), _open: open }),
            None => Err(EtcdError::NotDone("the watch was not taken".into())),
        }
    }
}
