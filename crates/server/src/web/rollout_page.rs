//! The rollout page and the page of one group.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::http::Response;
use jiff::Timestamp;
use refit_convert::moment;
use refit_proto::rollouts::v1 as wire;
use refit_types::{HostId, Kind};

use super::Web;
use super::fleet_page::after;
use super::forecast::{Forecast, Proposal, cohorts};
use super::format::{Moment, Prose, counted, in_words};
use super::graph::Graph;
use super::group_card::{GroupCard, hours, status};
use super::request::PageRequest;
use super::response::{Frame, Refusal, rendered};
use super::summary::in_words as state_in_words;
use super::timeline::Timeline;
use crate::events::Event;
use crate::rollout::HostStatus;

const PAGE: usize = 50;
/// Events of the rollout that a page lists.
const MOST_PAST: usize = 40;
/// Events that the timeline is drawn from: enough for a hundred groups that open, halt and resume.
const MOST_HAPPENED: usize = 1000;
pub(super) const RUN: &str = "/refit.rollouts.v1.RolloutService/RunGroup";
pub(super) const PAUSE: &str = "/refit.rollouts.v1.RolloutService/Pause";
pub(super) const RESUME: &str = "/refit.rollouts.v1.RolloutService/Resume";
pub(super) const MARK_DONE: &str = "/refit.rollouts.v1.RolloutService/MarkDone";
pub(super) const UPSERT: &str = "/refit.resources.v1.ResourceService/UpsertResource";

/// The actions that the user may take.
pub(super) struct Permissions {
    pub(super) run: bool,
    pub(super) pause: bool,
    pub(super) mark_done: bool,
    pub(super) choose: bool,
}

impl Permissions {
    fn of(request: &PageRequest) -> Self {
        Self {
            run: request.may(RUN, None),
            pause: request.may(PAUSE, None) && request.may(RESUME, None),
            mark_done: request.may(MARK_DONE, None),
            choose: request.may(UPSERT, Some(Kind::AutoupdateVersion)),
        }
    }
}

#[derive(Template)]
#[template(path = "rollout.html")]
struct RolloutPage {
    frame: Frame,
    done: String,
    permissions: Permissions,
    status: Prose,
    /// Why this server makes no decisions; empty if it does.
    stopped: String,
    paused: bool,
    version: String,
    chosen: bool,
    schedule: String,
    since: Option<Prose>,
    cards: Vec<GroupCard>,
    graph: Option<Graph>,
    ungrouped: Option<(String, Option<Prose>)>,
    timeline: Option<Timeline>,
    past: Vec<Past>,
    forecast: Option<Forecast>,
}

/// A past event.
pub(super) struct Past {
    pub(super) id: String,
    pub(super) at: Moment,
    pub(super) kind: String,
    pub(super) who: String,
    /// The same in full.
    pub(super) whole: String,
    pub(super) what: String,
    pub(super) message: String,
    pub(super) differences: Vec<(String, String, String)>,
}

impl Past {
    pub(super) fn of(event: &Event) -> Self {
        let shown = |value: &str| if value.is_empty() { "(none)".to_owned() } else { value.to_owned() };
        let differences = event.differences.iter();
        Self {
            id: event.id.clone(),
            at: Moment(event.at),
            kind: event.event_type.clone(),
            who: who(&event.actor),
            whole: event.actor.clone(),
            what: event.subject.clone(),
            message: event.message.clone(),
            differences: differences
                .map(|one| (one.path.clone(), shown(&one.before), shown(&one.after)))
                .collect(),
        }
    }
}

/// The actor of an event; the UUID of a server is shortened.
pub(super) fn who(actor: &str) -> String {
    match actor.strip_prefix("server ").and_then(|id| id.get(..8)) {
        Some(id) => format!("server {id}…"),
        None => actor.to_owned(),
    }
}

#[derive(Template)]
#[template(path = "group.html")]
struct GroupPage {
    frame: Frame,
    permissions: Permissions,
    card: GroupCard,
    version: String,
    outcomes: Vec<(&'static str, &'static str, bool)>,
    outcome: String,
    hosts: Vec<Member>,
    next: Option<String>,
    first: Option<String>,
}

struct Member {
    id: String,
    name: String,
    version: String,
    state: (String, &'static str),
    reason: String,
    told: Option<Moment>,
    attempt: u64,
}

impl Web {
    async fn rollout(&self, request: &PageRequest) -> Result<wire::Rollout, Refusal> {
        request.caller("/refit.rollouts.v1.RolloutService/GetRollout", None)?;
        self.rollouts.sync_from_store().await?;
        Ok(self.rollouts.status())
    }

    pub(super) async fn rollout_page(&self, request: &PageRequest) -> Result<Response<Body>, Refusal> {
        let rollout = self.rollout(request).await?;
        let now = moment(rollout.now).unwrap_or_else(self.now);
        let cards: Vec<GroupCard> = rollout.groups.iter().map(|group| GroupCard::of(group, now)).collect();
        let began = moment(rollout.began_at);
        let since = |at| Prose::default().time(at).text(&format!(" ({})", in_words(at, now)));
        let ungrouped = rollout.ungrouped.filter(|ungrouped| ungrouped.hosts > 0).map(|ungrouped| {
            let hosts = counted(ungrouped.hosts.into(), "host");
            let window = moment(ungrouped.opens_at).zip(moment(ungrouped.closes_at));
            let text = format!("{hosts}, {} on v{}", ungrouped.on_version, rollout.version);
            (text, window.map(|(opens, closes)| hours(opens, closes, None, now)))
        });
        let events = began.map(|began| self.happened(began)).unwrap_or_default();
        let forecast = self.coming(now).await?;
        let timeline = began.and_then(|began| Timeline::of(&cards, &events, forecast.as_ref(), began, now));
        let schedule = rollout.schedule_text();
        rendered(&RolloutPage {
            frame: request.frame(self, "rollout", "Rollout"),
            done: super::actions::said(request),
            permissions: Permissions::of(request),
            status: status(&rollout, now),
            paused: rollout.paused_at.is_some(),
            stopped: rollout.stopped,
            chosen: !schedule.is_empty(),
            since: began.map(since),
            graph: Graph::of(&cards),
            ungrouped,
            timeline,
            past: events.iter().take(MOST_PAST).map(|event| Past::of(event)).collect(),
            forecast,
            version: rollout.version,
            schedule,
            cards,
        })
    }

    /// The events of the rollout so far, newest first.
    fn happened(&self, began: Timestamp) -> Vec<Arc<Event>> {
        let of_rollout = |event: &Event| {
            event.subject == "rollout" || event.subject.starts_with("group/") || is_setting(&event.subject)
        };
        self.history.newest(MOST_HAPPENED, |event| event.at >= began && of_rollout(event))
    }

    /// The forecast of the rest of the rollout.
    async fn coming(&self, now: Timestamp) -> Result<Option<Forecast>, Refusal> {
        let (_, Some(record)) = self.rollouts.settings() else { return Ok(None) };
        let (fleet, rollouts) = (self.fleet.clone(), self.rollouts.clone());
        let proposal = Proposal::of(record.version, record.schedule, &rollouts, now);
        let plan = proposal.plan.clone();
        let cohorts = self.cohorts.get(move || cohorts(&plan, &fleet, &rollouts)).await?;
        let preview = proposal.preview(&cohorts, now);
        Ok((!preview.has_succeeded()).then(|| Forecast::of(&preview)))
    }

    pub(super) async fn group_page(
        &self,
        request: &PageRequest,
        name: &str,
    ) -> Result<Response<Body>, Refusal> {
        request.caller("/refit.rollouts.v1.RolloutService/ListGroupHosts", None)?;
        let rollout = self.rollout(request).await?;
        let now = moment(rollout.now).unwrap_or_else(self.now);
        let Some(group) = rollout.groups.iter().find(|group| group.name == name) else {
            return Err(Refusal::NotFound(format!("There is no group {name:?} in this rollout.")));
        };
        let outcome = request.query.get("outcome").to_owned();
        let filter = Some(outcome.as_str()).filter(|word| !word.is_empty()).map(HostStatus::parse);
        let filter = filter.transpose().map_err(Refusal::Bad)?;
        let after: Option<HostId> = after(request)?;
        let (rollouts, asked) = (self.rollouts.clone(), name.to_owned());
        let found = super::cached::aside(move || rollouts.group_hosts(&asked, filter, after, PAGE)).await?;
        let (hosts, more) = found.map_err(|error| Refusal::Conflict(error.to_string()))?;
        let here = |after: &str| {
            let mut address = form_urlencoded::Serializer::new(String::new());
            [("outcome", outcome.as_str()), ("after", after)].iter().for_each(|(name, value)| {
                if !value.is_empty() {
                    address.append_pair(name, value);
                }
            });
            format!("/web/rollout/{name}?{}", address.finish())
        };
        let outcomes =
            HostStatus::ALL.iter().map(|(_, word)| (*word, state_in_words(word), *word == outcome));
        rendered(&GroupPage {
            frame: request.frame(self, "group", format!("Group {name}")),
            permissions: Permissions::of(request),
            card: GroupCard::of(group, now),
            version: rollout.version.clone(),
            outcomes: outcomes.collect(),
            next: hosts.last().filter(|_| more).map(|last| here(&last.host_id)),
            first: after.map(|_| here("")),
            hosts: hosts.into_iter().map(member).collect(),
            outcome,
        })
    }
}

fn is_setting(subject: &str) -> bool {
    [Kind::AutoupdateVersion, Kind::ClusterMaintenanceConfig].iter().any(|kind| kind.name() == subject)
}

fn member(host: wire::GroupHost) -> Member {
    let outcome = host.outcome_text();
    let known = HostStatus::ALL.iter().find(|(_, word)| *word == outcome);
    Member {
        id: host.host_id,
        name: host.hostname,
        version: host.version,
        state: (outcome, known.map_or("", |(_, word)| state_in_words(word))),
        reason: host.reason,
        told: moment(host.started_at).map(Moment),
        attempt: host.attempt,
    }
}
