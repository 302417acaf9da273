//! The fleet page: counts by version, state and group, and the filtered host table.

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::http::Response;
use jiff::{SignedDuration, Timestamp};
use refit_types::{HostId, HostRecord, Labels, Version};

use super::Web;
use super::cached::aside;
use super::chart::Chart;
use super::format::{Moment, in_words};
use super::host_filter::{FILTERS, Found, HostFilter, NONE, ValidationErrors};
use super::request::PageRequest;
use super::response::{Frame, Refusal, rendered};
use super::summary::{STATES, Summary, state_at, state_index};

const PAGE: usize = 50;
/// Labels that a row has room for.
const MOST_LABELS: usize = 6;
/// A shorter chart would show nothing.
const SHORTEST: SignedDuration = SignedDuration::from_mins(1);
/// The periods that the chart can show.
const SPANS: [(&str, &str, i64); 3] = [("1h", "hour", 1), ("1d", "day", 24), ("7d", "week", 7 * 24)];

/// How many hosts run which version.
type Versions = BTreeMap<Option<Version>, u64>;

#[derive(Template)]
#[template(path = "fleet.html")]
struct FleetPage {
    frame: Frame,
    hosts: u64,
    connected: u64,
    away: u64,
    states: Vec<Bar>,
    versions: Vec<Bar>,
    groups: Vec<Bar>,
    chart: Option<Chart>,
    spans: Vec<Choice>,
    span: &'static str,
    form: Form,
    rows: Vec<Row>,
    next: Option<String>,
    first: Option<String>,
}

/// One line of a small bar chart.
struct Bar {
    class: String,
    name: String,
    link: Option<String>,
    count: u64,
    /// Out of a thousand.
    share: u64,
    percent: String,
}

struct Choice {
    value: String,
    name: String,
    link: String,
    chosen: bool,
}

struct Form {
    search: String,
    labels: String,
    states: Vec<Choice>,
    groups: Vec<Choice>,
    versions: Vec<Choice>,
    errors: ValidationErrors,
    is_filtered: bool,
}

pub(super) struct Row {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) group: Option<String>,
    pub(super) state: (&'static str, &'static str),
    pub(super) reason: String,
    pub(super) labels: Vec<(String, String)>,
    pub(super) more_labels: usize,
    pub(super) seen: Moment,
    pub(super) ago: String,
}

impl Web {
    /// The summary of the whole fleet, at most seconds old.
    pub(super) async fn summarized(&self) -> Result<Arc<Summary>, Refusal> {
        let (fleet, rollouts) = (self.fleet.clone(), self.rollouts.clone());
        self.summary.get(move || Summary::of(&fleet, &rollouts)).await
    }

    pub(super) async fn fleet_page(&self, request: &PageRequest) -> Result<Response<Body>, Refusal> {
        request.caller("/refit.nodes.v1.NodeService/ListNodes", None)?;
        let summary = self.summarized().await?;
        let (filter, errors) = HostFilter::parse(&request.query);
        let after = after(request)?;
        let (found, more) = match filter {
            Some(filter) => {
                let (fleet, rollouts) = (self.fleet.clone(), self.rollouts.clone());
                aside(move || filter.page(&fleet, &rollouts, after, PAGE)).await?
            }
            None => (Vec::new(), false),
        };
        let now = (self.now)();
        let rows: Vec<Row> = found.iter().map(|found| self.row(found, now)).collect();
        let here = |after: &str, span: &str| {
            let mut address = form_urlencoded::Serializer::new(String::new());
            let kept = FILTERS.map(|name| (name, request.query.get(name)));
            for (name, value) in kept.into_iter().chain([("after", after), ("span", span)]) {
                if !value.is_empty() {
                    address.append_pair(name, value);
                }
            }
            format!("/web/?{}", address.finish())
        };
        let versions = self.fleet.versions();
        let span = request.query.get("span");
        let (chart, chosen) = self.chart(span, now);
        let next = rows.last().filter(|_| more).map(|last| here(&last.id, span));
        let spans = SPANS.iter().map(|(value, name, _)| Choice {
            value: (*value).into(),
            name: (*name).into(),
            link: here("", value),
            chosen: *value == chosen.0,
        });
        let (span_now, spans) = (chosen.1, spans.collect());
        rendered(&FleetPage {
            frame: request.frame(self, "fleet", "Fleet"),
            hosts: summary.hosts,
            connected: summary.connected,
            away: summary.hosts.saturating_sub(summary.connected),
            states: states(&summary),
            form: form(request, &summary, &versions, errors),
            versions: version_bars(&versions),
            groups: groups(&summary),
            chart,
            spans,
            span: span_now,
            next,
            first: after.map(|_| here("", span)),
            rows,
        })
    }

    fn chart(&self, span: &str, now: Timestamp) -> (Option<Chart>, (&'static str, &'static str)) {
        let is_young = self.samples.begin().is_none_or(|begin| now.duration_since(begin).as_hours() < 1);
        let asked = SPANS.iter().find(|(value, _, _)| *value == span);
        let (value, name, hours) = asked.copied().unwrap_or(SPANS[usize::from(!is_young)]);
        let from = now.checked_sub(SignedDuration::from_hours(hours)).unwrap_or(Timestamp::UNIX_EPOCH);
        // The chart of a young cluster begins at its first sample.
        let seen = self.samples.begin().map_or(now, |begin| begin.max(from));
        let least = now.checked_sub(SHORTEST).unwrap_or(now);
        let from = seen.min(least);
        (Chart::of(&self.samples.since(from, now), from, now), (value, name))
    }

    pub(super) fn row(&self, found: &Found, now: Timestamp) -> Row {
        let host_record: &HostRecord = &found.host_record;
        let report = host_record.report.as_ref();
        let all = |labels: Option<&Labels>| -> Vec<(String, String)> {
            let pairs = labels.into_iter().flat_map(Labels::iter);
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let mut labels = all(report.map(|report| &report.instance_labels));
        labels.extend(all(report.map(|report| &report.node_labels)));
        let more_labels = labels.len().saturating_sub(MOST_LABELS);
        labels.truncate(MOST_LABELS);
        let seen = self.fleet.last_seen(host_record);
        Row {
            id: host_record.host_id.to_string(),
            name: host_record.hostname.to_string(),
            version: report.map(|report| format!("v{}", report.version)).unwrap_or_default(),
            group: found.group.clone(),
            state: state_at(state_index(found.position)),
            reason: found.reason.clone(),
            labels,
            more_labels,
            seen: Moment(seen),
            ago: in_words(seen, now),
        }
    }
}

/// The host after which a page begins.
pub(super) fn after(request: &PageRequest) -> Result<Option<HostId>, Refusal> {
    let after = request.query.some("after").map(str::parse::<HostId>).transpose();
    after.map_err(|error| Refusal::Bad(format!("after: {error}")))
}

fn bar(class: &str, name: String, link: Option<String>, count: u64, whole: u64) -> Bar {
    let share = (count * 1000).checked_div(whole).unwrap_or_default();
    let percent = match (share, count) {
        (0, 1..) => "< 1%".into(),
        _ => format!("{}%", (share + 5) / 10),
    };
    Bar { class: class.to_owned(), name, link, count, share, percent }
}

/// The name of a version in addresses, and on pages.
fn named(version: Option<&Version>) -> (String, String) {
    match version {
        Some(version) => (version.to_string(), format!("v{version}")),
        None => (NONE.into(), "never reported".into()),
    }
}

fn version_bars(versions: &Versions) -> Vec<Bar> {
    let whole = versions.values().sum();
    let bars = versions.iter().rev().map(|(version, count)| {
        let (value, name) = named(version.as_ref());
        let value: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
        bar("version", name, Some(format!("/web/?version={value}#hosts")), *count, whole)
    });
    bars.collect()
}

fn states(summary: &Summary) -> Vec<Bar> {
    let shown = (0..STATES).filter(|position| summary.states[*position] > 0);
    let bars = shown.map(|position| {
        let (word, name) = state_at(position);
        let link = Some(format!("/web/?state={word}#hosts"));
        bar(word, name.into(), link, summary.states[position], summary.hosts)
    });
    bars.collect()
}

fn groups(summary: &Summary) -> Vec<Bar> {
    let shown = summary.groups.iter().filter(|group| group.name.is_some() || group.hosts > 0);
    let bars = shown.map(|group| {
        let (name, value) = match &group.name {
            Some(name) => (name.clone(), name.as_str()),
            None => ("without a group".into(), NONE),
        };
        let value: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
        bar("group", name, Some(format!("/web/?group={value}#hosts")), group.hosts, summary.hosts)
    });
    bars.collect()
}

fn form(request: &PageRequest, summary: &Summary, versions: &Versions, errors: ValidationErrors) -> Form {
    let query = &request.query;
    let choice = |value: &str, name: &str, asked: &str| Choice {
        value: value.into(),
        name: name.into(),
        link: String::new(),
        chosen: value == asked,
    };
    let states = (0..STATES).map(|position| {
        let (word, name) = state_at(position);
        choice(word, name, query.get("state"))
    });
    let groups = summary.groups.iter().map(|group| match &group.name {
        Some(name) => choice(name, name, query.get("group")),
        None => choice(NONE, "without a group", query.get("group")),
    });
    let versions = versions.keys().rev().map(|version| {
        let (value, name) = named(version.as_ref());
        choice(&value, &name, query.get("version"))
    });
    Form {
        search: query.get("q").into(),
        labels: query.get("labels").into(),
        states: states.collect(),
        groups: groups.collect(),
        versions: versions.collect(),
        errors,
        is_filtered: FILTERS.iter().any(|name| !query.get(name).is_empty()),
    }
}
