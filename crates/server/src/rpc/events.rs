//! The service of events: the history in pages, and a stream that follows it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, stream};
use jiff::Timestamp;
use refit_backend::Error as StoreError;
use refit_proto::events::v1 as wire;
use refit_proto::events::v1::event_service_server::EventService;
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use super::{paging, store_status, timestamp};
use crate::access::{Caller, caller};
use crate::authorities::Authorities;
use crate::events::{Event, Events as History, Follower};

/// Shows what was done to the cluster.
#[derive(Clone)]
pub(crate) struct Events {
    pub(crate) history: Arc<History>,
    pub(crate) authorities: Arc<Authorities>,
    pub(crate) now: fn() -> Timestamp,
    pub(crate) stop: watch::Receiver<bool>,
}

#[tonic::async_trait]
impl EventService for Events {
    async fn list_events(
        &self,
        request: Request<wire::ListEventsRequest>,
    ) -> Result<Response<wire::ListEventsResponse>, Status> {
        let request = request.into_inner();
        let (size, since) = (paging::size(request.page_size)?, moment(request.since)?);
        let after = paging::name_in(&request.page_token)?;
        let page = self.history.page(since, after.as_deref(), size).await.map_err(store_status)?;
        Ok(Response::new(wire::ListEventsResponse {
            events: page.events.into_iter().map(on_the_wire).collect(),
            next_page_token: page.next.as_deref().map(paging::token_after).unwrap_or_default(),
        }))
    }

    type FollowEventsStream = Pin<Box<dyn Stream<Item = Result<wire::Event, Status>> + Send>>;

    async fn follow_events(
        &self,
        request: Request<wire::FollowEventsRequest>,
    ) -> Result<Response<Self::FollowEventsStream>, Status> {
        let caller = caller(&request)?.clone();
        let since = moment(request.into_inner().since)?;
        let following = Following {
            follower: self.history.clone().follow(since).map_err(store_status)?,
            changes: self.authorities.subscribe(),
            events: self.clone(),
            caller,
        };
        Ok(Response::new(Box::pin(stream::unfold(Some(following), |following| async move {
            let mut following = following?;
            match following.next().await {
                Ok(event) => Some((Ok(on_the_wire(event)), Some(following))),
                Err(status) => Some((Err(status), None)),
            }
        }))))
    }
}

/// One caller that follows, for as long as its certificate is good.
struct Following {
    events: Events,
    caller: Caller,
    changes: watch::Receiver<()>,
    follower: Follower,
}

impl Following {
    async fn next(&mut self) -> Result<Event, Status> {
        let mut stop = self.events.stop.clone();
        loop {
            let now = (self.events.now)();
            let trust = &self.events.authorities.current().trust;
            let good = self.caller.peer.principal(trust, now);
            good.map_err(|error| Status::unauthenticated(error.to_string()))?;
            let expires = self.caller.peer.expires().unwrap_or(Timestamp::MAX);
            let left: Duration = expires.duration_since(now).try_into().unwrap_or_default();
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => {
                    return Err(Status::unavailable("this server is stopping; follow another"));
                }
                _ = self.changes.changed() => {}
                () = tokio::time::sleep(left) => {}
                event = self.follower.next() => return event.map_err(|error| match error {
                    StoreError::Closed => Status::unavailable("this server is stopping; follow another"),
                    other => store_status(other),
                }),
            }
        }
    }
}

fn moment(at: Option<prost_types::Timestamp>) -> Result<Option<Timestamp>, Status> {
    let at = at.map(|at| Timestamp::new(at.seconds, at.nanos)).transpose();
    at.map_err(|error| Status::invalid_argument(format!("since: {error}")))
}

fn on_the_wire(event: Event) -> wire::Event {
    let differences = event.differences.into_iter();
    wire::Event {
        id: event.id,
        at: Some(timestamp(event.at)),
        r#type: event.event_type,
        actor: event.actor,
        subject: event.subject,
        message: event.message,
        differences: differences
            .map(|one| wire::Difference { path: one.path, before: one.before, after: one.after })
            .collect(),
    }
}
