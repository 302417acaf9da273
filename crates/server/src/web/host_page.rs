//! The page of one host: its record, its updater's status, and its past updates and events.

use askama::Template;
use axum::body::Body;
use axum::http::Response;
use jiff::Timestamp;
use refit_types::{HostId, HostRecord, Labels, Outcome, Platform};

use super::Web;
use super::failed_agent::ShownAgent;
use super::format::{Moment, in_words};
use super::host_filter::name;
use super::request::PageRequest;
use super::response::{Frame, Refusal, rendered};
use super::summary::{state_at, state_index};
use crate::events::Event;

/// Events of a host and its group that its page shows.
const MOST_EVENTS: usize = 30;

#[derive(Template)]
#[template(path = "host.html")]
struct HostPage {
    frame: Frame,
    id: String,
    name: String,
    roles: String,
    version: Option<String>,
    edition: String,
    platform: String,
    upgrader: String,
    node_labels: Vec<(String, String)>,
    instance_labels: Vec<(String, String)>,
    group: Option<String>,
    state: (&'static str, &'static str),
    reason: String,
    connected: bool,
    duplicate: bool,
    first_seen: Moment,
    last_seen: (Moment, String),
    identity: Option<(Moment, String, bool)>,
    updater: Option<Updater>,
    failure: Option<Failure>,
    history: Vec<Entry>,
}

/// The status of the host's updater.
struct Updater {
    enabled: bool,
    desired: Option<String>,
    previous: Option<String>,
    last: Option<Moment>,
    pinned: Option<String>,
    held: Option<String>,
    obstacle: Option<Obstacle>,
    failures: u32,
}

/// What keeps the host's updater from beginning, and when it tries again.
struct Obstacle {
    what: String,
    next_try: Option<Moment>,
}

struct Failure {
    at: Moment,
    version: String,
    step: String,
    reason: String,
    attempt: u64,
    agent: Option<ShownAgent>,
}

/// Something that happened to the host, or to its group.
struct Entry {
    at: Timestamp,
    time: Moment,
    what: String,
    who: String,
}

fn entry(at: Timestamp, what: impl Into<String>) -> Entry {
    Entry { at, time: Moment(at), what: what.into(), who: String::new() }
}

impl Web {
    pub(super) fn host_page(&self, request: &PageRequest, id: &str) -> Result<Response<Body>, Refusal> {
        request.caller("/refit.nodes.v1.NodeService/ListNodes", None)?;
        let host: HostId =
            id.parse().map_err(|_| Refusal::NotFound("This is not the UUID of a host.".into()))?;
        let Some((host_record, _)) = self.fleet.known(host) else {
            return Err(Refusal::NotFound(format!("There is no host {host}; it may have been removed.")));
        };
        let (group, state, reason, connected) = {
            let statuses = self.rollouts.statuses();
            let position = statuses.position(&host_record);
            let group = name(&statuses, position).map(str::to_owned);
            (
                group,
                state_at(state_index(position)),
                statuses.reason(&host_record, position),
                statuses.is_connected(&host_record),
            )
        };
        let now = (self.now)();
        let report = host_record.report.as_ref();
        let updater = report.and_then(|report| report.updater.as_deref());
        let seen = self.fleet.last_seen(&host_record);
        let roles: Vec<&str> = host_record.roles.iter().map(|role| role.as_str()).collect();
        let identity = host_record.identity_expires;
        rendered(&HostPage {
            frame: request.frame(self, "host", host_record.hostname.to_string()),
            id: host.to_string(),
            name: host_record.hostname.to_string(),
            roles: roles.join(", "),
            version: report.map(|report| report.version.to_string()),
            edition: report.map(|report| report.edition.to_string()).unwrap_or_default(),
            platform: report.and_then(|report| report.platform.as_deref()).map(in_short).unwrap_or_default(),
            upgrader: report.map(|report| report.upgrader.to_string()).unwrap_or_default(),
            node_labels: listed(report.map(|report| &report.node_labels)),
            instance_labels: listed(report.map(|report| &report.instance_labels)),
            history: self.history_of(&host_record, group.as_deref()),
            group,
            state,
            reason,
            connected,
            duplicate: host_record.duplicate_at.is_some(),
            first_seen: Moment(host_record.first_seen),
            last_seen: (Moment(seen), in_words(seen, now)),
            identity: identity.map(|at| (Moment(at), in_words(at, now), at <= now)),
            updater: updater.map(|updater| Updater {
                enabled: updater.agent_updates_enabled,
                desired: updater.agent_version_desired.as_ref().map(ToString::to_string),
                previous: updater.agent_version_previous.as_ref().map(ToString::to_string),
                last: updater.agent_update_time_last.map(Moment),
                pinned: updater.pinned_version.as_ref().map(ToString::to_string),
                held: updater.held.clone(),
                obstacle: updater.current_obstacle().map(|obstacle| Obstacle {
                    what: obstacle.to_string(),
                    next_try: obstacle.next_try.map(Moment),
                }),
                failures: updater.failures,
            }),
            failure: updater.and_then(|updater| updater.version_failure()).map(|failure| Failure {
                at: Moment(failure.at),
                version: failure.version.to_string(),
                step: failure.step.clone(),
                reason: failure.reason.clone(),
                attempt: failure.attempt,
                agent: failure.agent.as_deref().map(ShownAgent::from),
            }),
        })
    }

    /// The host's history, newest first: from its record, its updater's status, and the events of the host and its group.
    fn history_of(&self, host_record: &HostRecord, group: Option<&str>) -> Vec<Entry> {
        let mut entries = vec![entry(host_record.first_seen, "joined the cluster")];
        let marked = host_record.upgrade.as_deref();
        if let Some(upgrade) = marked {
            let (attempt, group) = (upgrade.attempt, &upgrade.group_name);
            let told = |at| entry(at, format!("told to update with {group}, attempt {attempt}"));
            entries.extend(upgrade.start_time.map(told));
            entries.extend(upgrade.outcome.as_ref().map(|outcome| match outcome {
                Outcome::Upgraded { at } => entry(*at, "upgraded"),
                Outcome::Failed { at, reason } => entry(*at, format!("failed: {reason}")),
                Outcome::TimedOut { at } => entry(*at, "timed out"),
            }));
        }
        entries.extend(host_record.past.iter().map(|update| {
            let (from, to) = (&update.from, &update.to);
            match &update.failure {
                None => entry(update.at, format!("went from v{from} to v{to}")),
                Some(why) => entry(update.at, format!("tried v{to} and went back to v{from}, at {why}")),
            }
        }));
        let (own, of_group) =
            (format!("node/{}", host_record.host_id), group.map(|name| format!("group/{name}")));
        let concern = |event: &Event| event.subject == own || Some(&event.subject) == of_group.as_ref();
        let events =
            self.history.newest(MOST_EVENTS, |event| event.at >= host_record.first_seen && concern(event));
        entries.extend(events.iter().map(|event| Entry {
            who: super::rollout_page::who(&event.actor),
            ..entry(event.at, event.message.clone())
        }));
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.at));
        entries
    }
}

/// `linux/amd64, debian 13`.
fn in_short(platform: &Platform) -> String {
    let Platform { os, os_version, arch } = platform;
    match os_version.is_empty() {
        true => format!("{os}/{arch}"),
        false => format!("{os}/{arch}, {os_version}"),
    }
}

fn listed(labels: Option<&Labels>) -> Vec<(String, String)> {
    let pairs = labels.into_iter().flat_map(Labels::iter);
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
