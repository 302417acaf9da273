//! The filters of the host table: parsed from the query and applied to the fleet in memory.

use std::ops::ControlFlow;
use std::sync::Arc;

use refit_types::{Expression, HostId, HostRecord, Version};

use super::request::Fields;
use super::summary::{STATES, state_at, state_index};
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

/// Validation errors of a query, by field.
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

/// A host with its group and status.
pub(super) struct Found {
    pub(super) host_record: Arc<HostRecord>,
    pub(super) position: HostPosition,
    pub(super) group: Option<String>,
    pub(super) reason: String,
}

impl HostFilter {
    /// Parses a query. With an error there is no filter, so that no page looks like a valid result.
    pub(super) fn parse(query: &Fields) -> (Option<Self>, ValidationErrors) {
        let mut errors = ValidationErrors::default();
        let labels = query.some("labels").map(str::parse::<Expression>).transpose();
        let labels = labels.map_err(|error| errors.labels = error.to_string());
        let state = query.some("state").map(|word| {
            let found = (0..STATES).find(|position| state_at(*position).0 == word);
            found.ok_or_else(|| {
                let allowed: Vec<&str> = (0..STATES).map(|position| state_at(position).0).collect();
                errors.state = format!("This is not a state; expected one of {}.", allowed.join(", "));
            })
        });
        let state = state.transpose();
        let version = query.some("version").map(|word| match word {
            NONE => Ok(None),
            version => version.trim_start_matches('v').parse::<Version>().map(Some),
        });
        let version = version.transpose().map_err(|error| errors.version = error.to_string());
        let (Ok(labels), Ok(state), Ok(version)) = (labels, state, version) else { return (None, errors) };
        let search = query.get("q").to_lowercase();
        let group = query.some("group").map(str::to_owned);
        (Some(Self { search, labels, state, group, version }), errors)
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
            let statuses = rollouts.statuses();
            for host_record in some {
                if !self.runs(host_record) || !self.is_named(host_record) || !self.is_labelled(host_record) {
                    continue;
                }
                let position = statuses.position(host_record);
                let group = name(&statuses, position);
                let in_group = match self.group.as_deref() {
                    Some(NONE) => group.is_none(),
                    chosen => chosen.is_none() || chosen == group,
                };
                if !in_group || self.state.is_some_and(|state| state != state_index(position)) {
                    continue;
                }
                if page.len() == limit {
                    more = true;
                    return ControlFlow::Break(());
                }
                let (group, reason) = (group.map(str::to_owned), statuses.reason(host_record, position));
                page.push(Found { host_record: Arc::clone(host_record), position, group, reason });
            }
            ControlFlow::Continue(())
        });
        (page, more)
    }

    fn runs(&self, host_record: &HostRecord) -> bool {
        let runs = host_record.report.as_ref().map(|report| &report.version);
        self.version.as_ref().is_none_or(|version| version.as_ref() == runs)
    }

    fn is_named(&self, host_record: &HostRecord) -> bool {
        contains(&host_record.hostname, &self.search) || begins(host_record.host_id, &self.search)
    }

    /// Whether the expression holds of the agent's labels, or of the host's.
    fn is_labelled(&self, host_record: &HostRecord) -> bool {
        let Some(expression) = &self.labels else { return true };
        host_record.report.as_ref().is_some_and(|report| {
            expression.holds(&report.instance_labels) || expression.holds(&report.node_labels)
        })
    }
}

/// The name of a host's group.
pub(super) fn name(statuses: &HostStatuses, position: HostPosition) -> Option<&str> {
    statuses.plan()?.groups.get(position.group?).map(|group| group.name.as_str())
}

/// Whether a UUID begins with that text. A text shorter than the UUID's first group, like "db", is meant as a name:
/// many UUIDs would match by chance.
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
