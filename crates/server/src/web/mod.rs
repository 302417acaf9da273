//! The dashboard: pages rendered on the server, usable without scripts and updated live with them. Routes requests to
//! the pages and runs their background tasks.

mod actions;
mod assets;
mod audit_page;
mod cached;
mod chart;
mod failed_agent;
mod fleet_page;
mod forecast;
mod format;
mod graph;
mod group_card;
mod history;
mod host_filter;
mod host_page;
mod live;
mod login;
mod request;
mod response;
mod rollout_page;
mod samples;
mod sessions;
mod summary;
mod timeline;
mod version_page;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, Response};
use jiff::Timestamp;
use refit_backend::SharedBackend;
use refit_identity::ClusterName;
use refit_rollout::Cohort;
use tokio::sync::watch;

use crate::artifacts::Published;
use crate::authorities::Authorities;
use crate::connection::Peer;
use crate::events::Events;
use crate::fleet::Fleet;
use crate::limiter::{Allowance, Limiter};
use crate::rollout::Rollouts;
use crate::rpc::{Resources, RolloutRpc};
use cached::Cached;
use history::History;
use live::Live;
use request::PageRequest;
use response::{Refusal, redirect, with_headers};
use samples::Samples;
pub(crate) use sessions::{Bearer, Sessions, SignInError};
use summary::Summary;

/// Failed sign-ins are limited to six a minute for each network.
const REFUSED_SIGN_INS: Allowance =
    Allowance { burst: 10, one_every: Duration::from_secs(10), addresses: 10_000 };
/// How often expired sessions are removed.
const SWEEP_EVERY: Duration = Duration::from_secs(3600);

/// Everything that is served below `/web`.
pub(crate) struct Web {
    sessions: Arc<Sessions>,
    events: Arc<Events>,
    authorities: Arc<Authorities>,
    fleet: Arc<Fleet>,
    rollouts: Arc<Rollouts>,
    history: History,
    samples: Samples,
    live: Arc<Live>,
    summary: Cached<Summary>,
    cohorts: Cached<Vec<Cohort>>,
    published: Published,
    rollout_rpc: RolloutRpc,
    resources: Resources,
    refused: Limiter,
    now: fn() -> Timestamp,
    stop: watch::Receiver<bool>,
}

/// What the dashboard depends on.
pub(crate) struct Dependencies {
    pub(crate) backend: SharedBackend,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) events: Arc<Events>,
    pub(crate) authorities: Arc<Authorities>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) rollouts: Arc<Rollouts>,
    pub(crate) published: Published,
    /// Actions call the API as the signed-in user.
    pub(crate) rollout_rpc: RolloutRpc,
    pub(crate) resources: Resources,
    pub(crate) now: fn() -> Timestamp,
    pub(crate) stop: watch::Receiver<bool>,
}

impl Web {
    pub(crate) fn new(parts: Dependencies) -> Arc<Self> {
        Arc::new(Self {
            sessions: parts.sessions,
            events: parts.events,
            authorities: parts.authorities,
            samples: Samples::new(parts.backend, parts.fleet.clone(), parts.now),
            fleet: parts.fleet,
            rollouts: parts.rollouts,
            history: History::default(),
            live: Arc::default(),
            summary: Cached::default(),
            cohorts: Cached::default(),
            published: parts.published,
            rollout_rpc: parts.rollout_rpc,
            resources: parts.resources,
            refused: Limiter::new(REFUSED_SIGN_INS),
            now: parts.now,
            stop: parts.stop,
        })
    }

    /// Answers a request, whoever makes it.
    pub(crate) async fn answer(self: &Arc<Self>, peer: &Arc<Peer>, request: Request<Body>) -> Response<Body> {
        let is_head = request.method() == Method::HEAD;
        let answered = match PageRequest::begin(self, peer, request).await {
            Ok(request) => match self.route(&request).await {
                Ok(response) => response,
                Err(refusal) => refusal.page(self, &request),
            },
            Err(refusal) => refusal.bare(),
        };
        let answered = if is_head { answered.map(|_| Body::empty()) } else { answered };
        with_headers(answered)
    }

    async fn route(self: &Arc<Self>, request: &PageRequest) -> Result<Response<Body>, Refusal> {
        let parts: Vec<&str> = request.path.split('/').skip(2).collect();
        let reads = request.method == Method::GET || request.method == Method::HEAD;
        match (reads, parts.as_slice()) {
            (true, []) => Ok(redirect("/web/")),
            (true, [""]) => self.fleet_page(request).await,
            (true, ["rollout"]) => self.rollout_page(request).await,
            (true, ["rollout", group]) => self.group_page(request, group).await,
            (true, ["hosts", id]) => self.host_page(request, id),
            (true, ["audit"]) => self.audit_page(request),
            (true, ["version"]) => self.version_page(request).await,
            (false, ["version"]) => self.choose(request).await,
            (true, ["actions", action]) => self.confirm(request, action).await,
            (false, ["actions", action]) => self.act(request, action).await,
            (true, ["live"]) => self.stream(request),
            (true, ["assets", name]) => assets::answer(name),
            (true, ["login", _]) => self.show_sign_in(request),
            (false, ["login", code]) => self.sign_in(request, code).await,
            (false, ["logout"]) => self.sign_out(request).await,
            _ => {
                request.signed_in()?;
                Err(Refusal::NotFound("There is no such page.".into()))
            }
        }
    }

    fn cluster(&self) -> ClusterName {
        self.authorities.current().authority().cluster().clone()
    }

    /// Runs the background tasks of the pages, until the server stops.
    pub(crate) async fn keep(self: Arc<Self>) {
        let stop = &self.stop;
        tokio::join!(
            self.sweep(stop.clone()),
            self.history.follow(self.events.clone(), stop.clone()),
            self.samples.take(stop.clone()),
            self.detect_changes(stop.clone()),
        );
    }

    async fn sweep(&self, mut stop: watch::Receiver<bool>) {
        let mut ticks = tokio::time::interval(SWEEP_EVERY);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            if let Err(error) = self.sessions.sweep().await {
                tracing::warn!(%error, "could not remove expired sessions; retrying");
            }
        }
    }
}
