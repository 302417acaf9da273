//! The filters of the host table: parsed from the query and applied to the fleet in memory.

use std::ops::ControlFlow;
use std::sync::Arc;

use refit_types::{Expression, HostId, HostRecord, Version};

use super::request::Fields;
use super::summary::{STATES, position, state_at};
use crate::fleet::Fleet;
use crate::rollout::{HostPosition, HostStatuses, Rollouts};

/// What stands for no group where groups are chosen, and for no version where versions are.
pub(super) const NONE: &str = "-";
/// What a query can ask for.
pub(super) const FILTERS: [&str; 5] = ["q", "labels", "state", "group", "version"];

/// Which hosts a page is to show.
#[derive(Debug, Clone, Default)]
pub(super) struct HostFilter {
    /// Part of a name, or the beginning of a UUID, in small letters.
    search: String,
    labels: Option<Expression>,
    /// The position of a state.
    state: Option<usize>,
    group: Option<String>,
    /// The version, or that none was ever reported.
    version: Option<Option<Version>>,
}

/// What was asked for and cannot be, at its place.
#[derive(Debug, Clone, Default)]
pub(super) struct ValidationErrors {
    pub(super) labels: String,
    pub(super) state: String,
    pub(super) version: String,
}

impl ValidationErrors {
    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.state.is_empty() && self.version.is_empty()
    }
}

/// A host, and where it stands.
pub(super) struct Found {
    pub(super) instance: Arc<HostRecord>,
    pub(super) place: HostPosition,
    pub(super) group: Option<String>,
    pub(super) reason: String,
}

impl HostFilter {
    /// What a query asks for. A fault wants nothing: no page looks as if it were the answer.
    pub(super) fn parse(query: &Fields) -> (Option<Self>, ValidationErrors) {
        let mut faults = ValidationErrors::default();
        let labels = query.some("labels").map(str::parse::<Expression>).transpose();
        let labels = labels.map_err(|error| faults.labels = error.to_string());
        let state = query.some("state").map(|word| {
            let found = (0..STATES).find(|position| state_at(*position).0 == word);
            found.ok_or_else(|| {
                let allowed: Vec<&str> = (0..STATES).map(|position| state_at(position).0).collect();
                faults.state = format!("This is not a state; expected one of {}.", allowed.join(", "));
            })
        });
        let state = state.transpose();
        let version = query.some("version").map(|word| match word {
            NONE => Ok(None),
            version => version.trim_start_matches('v').parse::<Version>().map(Some),
        });
        let version = version.transpose().map_err(|error| faults.version = error.to_string());
        let (Ok(labels), Ok(state), Ok(version)) = (labels, state, version) else { return (None, faults) };
        let search = query.get("q").to_lowercase();
        let group = query.some("group").map(str::to_owned);
        (Some(Self { search, labels, state, group, version }), faults)
    }

    /// Up to `limit` hosts behind `after`, and whether there are more.
    pub(super) fn page(
        &self,
        fleet: &Fleet,
        rollouts: &Rollouts,
        after: Option<HostId>,
        limit: usize,
    ) -> (Vec<Found>, bool) {
        let (mut page, mut more) = (Vec::new(), false);
        fleet.walk(after, |some| {
            let survey = rollouts.survey();
            for instance in some {
                if !self.runs(instance) || !self.is_named(instance) || !self.is_labelled(instance) {
                    continue;
                }
                let place = survey.place(instance);
                let group = name(&survey, place);
                let in_group = match self.group.as_deref() {
                    Some(NONE) => group.is_none(),
                    wanted => wanted.is_none() || wanted == group,
                };
                if !in_group || self.state.is_some_and(|state| state != position(place)) {
                    continue;
                }
                if page.len() == limit {
                    more = true;
                    return ControlFlow::Break(());
                }
                let (group, reason) = (group.map(str::to_owned), survey.reason(instance, place));
                page.push(Found { instance: Arc::clone(instance), place, group, reason });
            }
            ControlFlow::Continue(())
        });
        (page, more)
    }

    fn runs(&self, instance: &HostRecord) -> bool {
        let runs = instance.report.as_ref().map(|report| &report.version);
        self.version.as_ref().is_none_or(|wanted| wanted.as_ref() == runs)
    }

    fn is_named(&self, instance: &HostRecord) -> bool {
        contains(&instance.hostname, &self.search) || begins(instance.host_id, &self.search)
    }

    /// Whether the expression holds of the agent's labels, or of the host's.
    fn is_labelled(&self, instance: &HostRecord) -> bool {
        let Some(expression) = &self.labels else { return true };
        instance.report.as_ref().is_some_and(|report| {
            expression.holds(&report.instance_labels) || expression.holds(&report.node_labels)
        })
    }
}

/// The name of a host's group.
pub(super) fn name(survey: &HostStatuses, place: HostPosition) -> Option<&str> {
    survey.plan()?.groups.get(place.group?).map(|group| group.name.as_str())
}

/// Whether a UUID begins so. What is shorter than its first group, like "db", is meant as a name: many a UUID would
/// have it by chance.
fn begins(host_id: HostId, beginning: &str) -> bool {
    beginning.len() >= 8 && {
        let mut text = uuid::Uuid::encode_buffer();
        host_id.uuid().hyphenated().encode_lower(&mut text).starts_with(beginning)
    }
}

/// Whether a text has a part, which is in small letters; nearly all names are ASCII.
fn contains(text: &str, part: &str) -> bool {
    match text.is_ascii() && part.is_ascii() {
        true => {
            let (text, part) = (text.as_bytes(), part.as_bytes());
            let Some(first) = part.first() else { return true };
            let begins = memchr::memchr2_iter(*first, first.to_ascii_uppercase(), text);
            begins
                .filter_map(|at| text.get(at..at + part.len()))
                .any(|found| found.eq_ignore_ascii_case(part))
        }
        false => text.to_lowercase().contains(part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case() {
        assert!(
            contains("Web-01.example", "web-01") && contains("ÄRGER", "ärger") && !contains("web", "webx")
        );
    }

    #[test]
    fn a_uuid_is_found_by_its_beginning_and_not_by_what_it_has_by_chance() {
        let whole = "0f3ac4db-3b1e-4c55-9d2f-70cafe0db310";
        let host_id: HostId = whole.parse().unwrap();
        assert!(begins(host_id, whole) && begins(host_id, "0f3ac4db") && begins(host_id, "0f3ac4db-3"));
        for part in ["db", "db-3", "0f3a", "cafe0db310", "3b1e-4c55"] {
            assert!(!begins(host_id, part), "{part}");
        }
    }
}
