//! Server-sent events that tell open pages which of their parts changed. Polls in memory, only while somebody watches.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, header};
use futures::stream;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Web;
use super::request::{PageRequest, SignedInUser};
use super::response::Refusal;

/// How often changes are checked and sent.
const TICK: Duration = Duration::from_secs(1);
/// Keeps proxies from closing idle streams, and checks that the session is still valid.
const HEARTBEAT: Duration = Duration::from_secs(15);
const MOST_STREAMS: usize = 500;
const MOST_OF_ONE: usize = 20;

/// A counter for each part of the dashboard; it increases when the part changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PartVersions {
    rollout: u64,
    fleet: u64,
    audit: u64,
}

/// Pushes changes to browsers.
#[derive(Debug, Default)]
pub(super) struct Live {
    versions: watch::Sender<PartVersions>,
    /// Streams that are open, by user.
    open: Mutex<HashMap<String, usize>>,
}

/// Permission for one open stream; dropping it releases the slot.
struct StreamPermit {
    live: Arc<Live>,
    user: String,
}

impl Live {
    fn open_stream(self: &Arc<Self>, user: &str) -> Option<StreamPermit> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let own = open.get(user).copied().unwrap_or_default();
        if own >= MOST_OF_ONE || open.values().sum::<usize>() >= MOST_STREAMS {
            return None;
        }
        *open.entry(user.to_owned()).or_default() += 1;
        Some(StreamPermit { live: self.clone(), user: user.to_owned() })
    }

    fn is_watched(&self) -> bool {
        !self.open.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut open = self.live.open.lock().unwrap_or_else(PoisonError::into_inner);
        match open.get_mut(&self.user) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(open.remove(&self.user)),
        }
    }
}

impl Web {
    /// Checks for changes once a second, while streams are open.
    pub(super) async fn detect_changes(&self, mut stop: watch::Receiver<bool>) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut rollout, mut shown) = (0, None);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            if !self.live.is_watched() {
                continue;
            }
            let looks = Some(without_time(self.rollouts.status()));
            rollout += u64::from(looks != shown);
            shown = looks;
            let versions = PartVersions { rollout, fleet: self.fleet.changes(), audit: self.history.seen() };
            self.live.versions.send_if_modified(|known| std::mem::replace(known, versions) != versions);
        }
    }

    /// The event stream of one browser.
    pub(super) fn stream(self: &Arc<Self>, request: &PageRequest) -> Result<Response<Body>, Refusal> {
        let user = request.signed_in()?.clone();
        let permit = self.live.open_stream(&user.session.user).ok_or(Refusal::TooMany(HEARTBEAT))?;
        let versions = self.live.versions.subscribe();
        let watcher =
            Watcher { web: self.clone(), user, versions, last: None, checked: Instant::now(), permit };
        let body = stream::unfold(Some(watcher), |watcher| async move {
            let mut watcher = watcher?;
            let said = watcher.next().await?;
            Some((Ok::<_, std::convert::Infallible>(Bytes::from(said)), Some(watcher)))
        });
        let mut response = Response::new(Body::from_stream(body));
        let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        Ok(response)
    }
}

struct Watcher {
    web: Arc<Web>,
    user: SignedInUser,
    versions: watch::Receiver<PartVersions>,
    last: Option<PartVersions>,
    checked: Instant,
    #[allow(dead_code, reason = "held for as long as the stream lasts")]
    permit: StreamPermit,
}

impl Watcher {
    /// The next event; none ends the stream.
    async fn next(&mut self) -> Option<String> {
        let Some(last) = self.last else {
            let versions = *self.versions.borrow_and_update();
            self.last = Some(versions);
            return Some(format!("retry: 2000\n{}", told("hello", versions)));
        };
        let mut stop = self.web.stop.clone();
        let stopped = async { drop(stop.wait_for(|stop| *stop).await) };
        let is_news = tokio::select! {
            changed = self.versions.changed() => changed.map(|()| true).ok()?,
            () = tokio::time::sleep_until(self.checked + HEARTBEAT) => false,
            () = stopped => return None,
        };
        if is_news {
            let versions = *self.versions.borrow_and_update();
            self.last = Some(versions);
            return Some(if versions == last { ": \n\n".into() } else { told("changed", versions) });
        }
        self.checked = Instant::now();
        let trust = self.web.authorities.current().trust.clone();
        match self.web.sessions.find(&self.user.secret, &trust).await {
            Ok(None) => None,
            // A store that is unreachable does not end the stream.
            Ok(Some(_)) | Err(_) => Some(": alive\n\n".into()),
        }
    }
}

fn told(event: &str, versions: PartVersions) -> String {
    let PartVersions { rollout, fleet, audit } = versions;
    format!("event: {event}\ndata: {{\"rollout\":{rollout},\"fleet\":{fleet},\"audit\":{audit}}}\n\n")
}

/// The status without the fields that change with time alone.
fn without_time(mut rollout: refit_proto::rollouts::v1::Rollout) -> refit_proto::rollouts::v1::Rollout {
    rollout.now = None;
    for group in &mut rollout.groups {
        // The text counts minutes; the structured reason does not.
        group.waiting.clear();
    }
    rollout
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_limited_for_each_and_for_all() {
        let live = Arc::new(Live::default());
        let mut permits: Vec<StreamPermit> =
            (0..MOST_OF_ONE).filter_map(|_| live.open_stream("alice")).collect();
        assert!(permits.len() == MOST_OF_ONE && live.open_stream("alice").is_none());
        permits.pop();
        assert!(live.open_stream("alice").is_some(), "a place is free again");
        let others: Vec<StreamPermit> =
            (0..MOST_STREAMS).filter_map(|n| live.open_stream(&format!("u{n}"))).collect();
        assert_eq!(permits.len() + others.len(), MOST_STREAMS);
        drop((permits, others));
        assert!(!live.is_watched());
    }
}
