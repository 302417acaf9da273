//! The hosts that `plan` and `simulate` work on: read from a description file, or listed from the cluster, and merged
//! into cohorts of equal hosts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use refit_proto::nodes::v1::node_service_client::NodeServiceClient;
use refit_proto::nodes::v1::{ListNodesRequest, Node};
use refit_rollout::{Cohort, MAX_HOSTS, held_by};
use refit_types::{Labels, UpdaterStatus, ValidationErrors, Version};
use serde_json::{Map, Value};

use crate::ctl::{Global, resources};
use crate::exit::Failure;

/// Where the hosts come from.
#[derive(Debug, clap::Args)]
pub(super) struct Source {
    /// Hosts as a file describes them [default: those of the cluster]
    #[arg(long, value_name = "FILE")]
    fleet: Option<PathBuf>,
}

impl Source {
    /// Whether no cluster is asked.
    pub(super) fn is_a_file(&self) -> bool {
        self.fleet.is_some()
    }

    /// The hosts, as they look to a rollout of that version.
    pub(super) async fn fleet(&self, global: &Global, version: &Version) -> Result<Vec<Cohort>, Failure> {
        match &self.fleet {
            Some(file) => described(file),
            None => of_cluster(global, version).await,
        }
    }
}

fn described(file: &Path) -> Result<Vec<Cohort>, Failure> {
    let mut fleet = Vec::new();
    let mut told = String::new();
    for document in resources::read_documents(file)? {
        match cohorts(document) {
            Ok(cohorts) => fleet.extend(cohorts),
            Err(errors) => errors.list().iter().for_each(|error| told.push_str(&format!("\n  {error}"))),
        }
    }
    match told.is_empty() {
        true => Ok(fleet),
        false => Err(Failure::failed(format!("{} cannot be used:{told}", file.display()))),
    }
}

/// Reads a description of a fleet; every error is reported at once.
fn cohorts(document: Value) -> Result<Vec<Cohort>, ValidationErrors> {
    let mut errors = ValidationErrors::default();
    let mut fields = Entry::of("", document, &mut errors);
    let hosts = fields.take("hosts");
    fields.end(&["hosts"], &mut errors);
    let list = match hosts {
        Some(Value::Array(list)) => list,
        Some(other) => {
            errors.add("hosts", format!("expected a list, found {}", shown(&other)));
            Vec::new()
        }
        None => {
            if errors.list().is_empty() {
                errors.add("hosts", "is missing");
            }
            Vec::new()
        }
    };
    let mut cohorts = Vec::with_capacity(list.len());
    for (number, value) in list.into_iter().enumerate() {
        let mut entry = Entry::of(&format!("hosts[{number}]"), value, &mut errors);
        let count = entry.count(&mut errors);
        // `labels` applies to the host and to its agent, because most fleets use the same labels for both.
        let both = entry.labels("labels", &mut errors).unwrap_or_default();
        let node_labels = entry.labels("node_labels", &mut errors).unwrap_or_else(|| both.clone());
        let instance_labels = entry.labels("instance_labels", &mut errors).unwrap_or(both);
        let version = entry.version(&mut errors);
        let held = entry.flag("held", false, &mut errors);
        let live = entry.flag("live", true, &mut errors);
        let known = ["count", "labels", "node_labels", "instance_labels", "version", "held", "live"];
        let example = format!("hosts[{number}]");
        entry.end(&known, &mut errors);
        if let Some(version) = version {
            cohorts.push(Cohort { count, example, node_labels, instance_labels, version, held, live });
        }
    }
    errors.or(Some(cohorts))
}

/// Reads one map of the description field by field.
struct Entry {
    path: String,
    left: Map<String, Value>,
    is_map: bool,
}

impl Entry {
    fn of(path: &str, value: Value, errors: &mut ValidationErrors) -> Self {
        let (left, is_map) = match value {
            Value::Object(map) => (map, true),
            other => {
                let place = if path.is_empty() { "the document" } else { path };
                errors.add(place, format!("expected a map, found {}", shown(&other)));
                (Map::new(), false)
            }
        };
        Self { path: path.to_owned(), left, is_map }
    }

    fn path_of(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    fn take(&mut self, field: &str) -> Option<Value> {
        self.left.remove(field).filter(|value| !value.is_null())
    }

    fn count(&mut self, errors: &mut ValidationErrors) -> u32 {
        let Some(value) = self.take("count") else { return 1 };
        let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
        count.filter(|count| (1..=MAX_HOSTS).contains(count)).unwrap_or_else(|| {
            errors.add(self.path_of("count"), format!("expected 1 to {MAX_HOSTS}, found {}", shown(&value)));
            1
        })
    }

    fn version(&mut self, errors: &mut ValidationErrors) -> Option<Version> {
        let problem = match self.take("version") {
            Some(Value::String(text)) => match text.parse() {
                Ok(version) => return Some(version),
                Err(error) => format!("{error}"),
            },
            Some(other) => format!("expected a text, found {}", shown(&other)),
            None if !self.is_map => return None,
            None => "is missing".into(),
        };
        errors.add(self.path_of("version"), problem);
        None
    }

    fn flag(&mut self, field: &str, default: bool, errors: &mut ValidationErrors) -> bool {
        match self.take(field) {
            None => default,
            Some(Value::Bool(flag)) => flag,
            Some(other) => {
                errors.add(self.path_of(field), format!("expected true or false, found {}", shown(&other)));
                default
            }
        }
    }

    fn labels(&mut self, field: &str, errors: &mut ValidationErrors) -> Option<Labels> {
        let mut labels = Labels::default();
        let map = match self.take(field)? {
            Value::Object(map) => map,
            other => {
                errors.add(self.path_of(field), format!("expected a map, found {}", shown(&other)));
                return None;
            }
        };
        for (name, value) in &map {
            let problem = match value {
                Value::String(text) => labels.insert(name, text).err().map(|error| error.to_string()),
                other => Some(format!("expected a text, found {}", shown(other))),
            };
            if let Some(problem) = problem {
                let name: String = name.chars().take(80).collect();
                errors.add(format!("{}.{name}", self.path_of(field)), problem);
            }
        }
        Some(labels)
    }

    fn end(self, known: &[&str], errors: &mut ValidationErrors) {
        for field in self.left.keys().filter(|field| !known.contains(&field.as_str())) {
            let path = self.path_of(field);
            errors.add(path, format!("is not a known field; expected one of {}", known.join(", ")));
        }
    }
}

/// A value as it looks in the document, cut to a readable length.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

/// All hosts of the cluster, merged into cohorts.
async fn of_cluster(global: &Global, version: &Version) -> Result<Vec<Cohort>, Failure> {
    let mut client = NodeServiceClient::new(global.target.connect().await?);
    let progress = progress();
    let mut fleet = Cohorts::default();
    let mut page_token = String::new();
    loop {
        let request = ListNodesRequest { page_size: 1000, page_token, ..ListNodesRequest::default() };
        let page = client.list_nodes(request).await?.into_inner();
        progress.inc(page.nodes.len() as u64);
        for node in page.nodes {
            fleet.add(cohort(node, version)?);
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            progress.finish_and_clear();
            return Ok(fleet.cohorts);
        }
    }
}

/// Shown on a terminal only.
fn progress() -> ProgressBar {
    let progress = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} reading the fleet: {pos} hosts") {
        progress.set_style(style);
    }
    progress.enable_steady_tick(Duration::from_millis(120));
    progress
}

fn cohort(node: Node, version: &Version) -> Result<Cohort, Failure> {
    let labels = |map: HashMap<String, String>| -> Result<Labels, Failure> {
        let mut labels = Labels::default();
        for (name, value) in &map {
            labels.insert(name, value).map_err(|error| {
                Failure::failed(format!("the server sent a label that cannot be: {error}"))
            })?;
        }
        Ok(labels)
    };
    // A host that joined and never sent a heartbeat has no version and is away.
    let runs = node.version.parse::<Version>().ok();
    let updater = serde_json::from_str::<UpdaterStatus>(&node.updater_status).ok();
    Ok(Cohort {
        count: 1,
        example: if node.hostname.is_empty() { node.host_id } else { node.hostname },
        node_labels: labels(node.node_labels)?,
        instance_labels: labels(node.instance_labels)?,
        live: node.connected && runs.is_some(),
        held: updater.is_some_and(|updater| held_by(&updater, version, None).is_some()),
        version: runs.map_or_else(|| "0.0.0".parse(), Ok).map_err(Failure::failed)?,
    })
}

/// Merges equal hosts: a fleet has many hosts and few kinds of them.
#[derive(Default)]
struct Cohorts {
    cohorts: Vec<Cohort>,
    known: HashMap<String, usize>,
}

impl Cohorts {
    fn add(&mut self, host: Cohort) {
        let Cohort { node_labels, instance_labels, version, held, live, .. } = &host;
        // No label has a line break.
        let key = format!("{node_labels}\n{instance_labels}\n{version}\n{held}\n{live}");
        match self.known.get(&key).and_then(|known| self.cohorts.get_mut(*known)) {
            Some(known) => known.count += host.count,
            None => {
                self.known.insert(key, self.cohorts.len());
                self.cohorts.push(host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_fleet_is_read() {
        let fleet = cohorts(json!({ "hosts": [
            { "count": 1000, "labels": { "environment": "staging" }, "version": "15.1.0" },
            { "instance_labels": { "zone": "eu" }, "version": "15.1.1", "held": true, "live": false },
        ] }))
        .unwrap();
        assert_eq!((fleet[0].count, fleet[0].node_labels.get("environment")), (1000, Some("staging")));
        assert_eq!(fleet[0].instance_labels.get("environment"), Some("staging"));
        assert_eq!((fleet[0].held, fleet[0].live), (false, true));
        assert_eq!((fleet[1].count, fleet[1].instance_labels.get("zone")), (1, Some("eu")));
        assert_eq!((fleet[1].held, fleet[1].live), (true, false));
    }

    #[test]
    fn every_error_of_a_fleet_is_reported_with_its_path() {
        let errors = cohorts(json!({ "host": 1, "hosts": [
            { "count": 0, "labels": { "environment": 7, "a b": "c" }, "version": "latest", "size": 3 },
            { "held": "yes", "labels": [] },
            "many",
        ] }))
        .unwrap_err();
        let lines: Vec<String> = errors.list().iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "host: is not a known field; expected one of hosts",
                "hosts[0].count: expected 1 to 10000000, found 0",
                "hosts[0].labels.environment: expected a text, found 7",
                r#"hosts[0].labels.a b: "a b" is not a label's name; expected 1 to 64 letters, digits, '.', '_', '-' or '/'"#,
                r#"hosts[0].version: "latest" is not a version; expected MAJOR.MINOR.PATCH, like 15.1.1"#,
                "hosts[0].size: is not a known field; expected one of count, labels, node_labels, instance_labels, version, held, live",
                "hosts[1].labels: expected a map, found []",
                "hosts[1].version: is missing",
                r#"hosts[1].held: expected true or false, found "yes""#,
                r#"hosts[2]: expected a map, found "many""#,
            ]
        );
        assert_eq!(cohorts(json!({})).unwrap_err().to_string(), "hosts: is missing");
        assert!(cohorts(json!([])).unwrap_err().to_string().starts_with("the document: expected a map"));
    }

    #[test]
    fn equal_hosts_form_one_cohort() {
        let host = |labels: &str, example: &str| Cohort {
            node_labels: labels.parse().unwrap(),
            example: example.into(),
            ..Cohort::new(1, "15.1.0".parse().unwrap())
        };
        let mut fleet = Cohorts::default();
        for host in [host("a=1", "x"), host("a=2", "y"), host("a=1", "z")] {
            fleet.add(host);
        }
        let counts: Vec<_> = fleet.cohorts.iter().map(|host| (host.count, host.example.as_str())).collect();
        assert_eq!(counts, [(2, "x"), (1, "y")]);
    }
}
