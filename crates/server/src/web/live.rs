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

/// No part is told to have changed more often.
const TICK: Duration = Duration::from_secs(1);
/// Keeps what lies between from hanging up, and finds out whether the session has ended.
const HEARTBEAT: Duration = Duration::from_secs(15);
const MOST_STREAMS: usize = 500;
const MOST_OF_ONE: usize = 20;

/// Counts up for each part of the dashboard that looks different now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Marks {
    rollout: u64,
    fleet: u64,
    audit: u64,
}

/// Tells browsers what has changed.
#[derive(Debug, Default)]
pub(super) struct Live {
    marks: watch::Sender<Marks>,
    /// Streams that are open, by user.
    open: Mutex<HashMap<String, usize>>,
}

/// One place among the streams, given up when it is dropped.
struct StreamPermit {
    live: Arc<Live>,
    user: String,
}

impl Live {
    fn sit(self: &Arc<Self>, user: &str) -> Option<StreamPermit> {
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
    /// Looks once a second whether anything is different, while somebody watches.
    pub(super) async fn notice(&self, mut stop: watch::Receiver<bool>) {
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
            let marks = Marks { rollout, fleet: self.fleet.changes(), audit: self.history.seen() };
            self.live.marks.send_if_modified(|known| std::mem::replace(known, marks) != marks);
        }
    }

    /// A stream that tells which parts have changed.
    pub(super) fn stream(self: &Arc<Self>, visit: &PageRequest) -> Result<Response<Body>, Refusal> {
        let guest = visit.signed_in()?.clone();
        let seat = self.live.sit(&guest.session.user).ok_or(Refusal::TooMany(HEARTBEAT))?;
        let marks = self.live.marks.subscribe();
        let watcher = Watcher { web: self.clone(), guest, marks, last: None, checked: Instant::now(), seat };
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
    guest: SignedInUser,
    marks: watch::Receiver<Marks>,
    last: Option<Marks>,
    checked: Instant,
    #[allow(dead_code, reason = "held for as long as the stream lasts")]
    seat: StreamPermit,
}

impl Watcher {
    /// What to say next; nothing ends the stream.
    async fn next(&mut self) -> Option<String> {
        let Some(last) = self.last else {
            let marks = *self.marks.borrow_and_update();
            self.last = Some(marks);
            return Some(format!("retry: 2000\n{}", told("hello", marks)));
        };
        let mut stop = self.web.stop.clone();
        let stopped = async { drop(stop.wait_for(|stop| *stop).await) };
        let is_news = tokio::select! {
            changed = self.marks.changed() => changed.map(|()| true).ok()?,
            () = tokio::time::sleep_until(self.checked + HEARTBEAT) => false,
            () = stopped => return None,
        };
        if is_news {
            let marks = *self.marks.borrow_and_update();
            self.last = Some(marks);
            return Some(if marks == last { ": \n\n".into() } else { told("changed", marks) });
        }
        self.checked = Instant::now();
        let trust = self.web.authorities.current().trust.clone();
        match self.web.sessions.find(&self.guest.secret, &trust).await {
            Ok(None) => None,
            // A store that is away is no reason to hang up.
            Ok(Some(_)) | Err(_) => Some(": alive\n\n".into()),
        }
    }
}

fn told(event: &str, marks: Marks) -> String {
    let Marks { rollout, fleet, audit } = marks;
    format!("event: {event}\ndata: {{\"rollout\":{rollout},\"fleet\":{fleet},\"audit\":{audit}}}\n\n")
}

/// The status without what is different at every moment.
fn without_time(mut rollout: refit_proto::rollouts::v1::Rollout) -> refit_proto::rollouts::v1::Rollout {
    rollout.now = None;
    for group in &mut rollout.groups {
        // The sentence counts the minutes; the reason that it is made from does not.
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
        let mut seats: Vec<StreamPermit> = (0..MOST_OF_ONE).filter_map(|_| live.sit("alice")).collect();
        assert!(seats.len() == MOST_OF_ONE && live.sit("alice").is_none());
        seats.pop();
        assert!(live.sit("alice").is_some(), "a place is free again");
        let others: Vec<StreamPermit> =
            (0..MOST_STREAMS).filter_map(|n| live.sit(&format!("u{n}"))).collect();
        assert_eq!(seats.len() + others.len(), MOST_STREAMS);
        drop((seats, others));
        assert!(!live.is_watched());
    }
}
