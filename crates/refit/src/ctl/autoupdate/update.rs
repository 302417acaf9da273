//! `refitctl autoupdate update`: edits the version and the maintenance configuration field by field.

use refit_proto::resources::v1::resource_service_client::ResourceServiceClient;
use refit_types::{HostLimit, Kind, Schedule, Version};
use serde_json::{Map, Value, json};

use super::change::{change, stored};
use crate::ctl::Global;
use crate::ctl::consent::Consent;
use crate::exit::Failure;
use crate::output;

/// Changes what agents run, whether they are updated, a schedule, or a group.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  refitctl autoupdate update --set-agent-version=15.1.1\n  \
    refitctl autoupdate update --set-agent-auto-update=off\n  \
    refitctl autoupdate update --schedule regular --group staging-group --set-start-hour=3")]
pub(crate) struct Update {
    /// Turn automatic updates on or off
    #[arg(long, value_name = "on|off", value_parser = ["on", "off"])]
    set_agent_auto_update: Option<String>,
    /// The version that agents should run
    #[arg(long, value_name = "X.Y.Z")]
    set_agent_version: Option<Version>,
    /// Roll the version out by the critical schedule
    #[arg(long, requires = "set_agent_version", conflicts_with = "immediate")]
    critical: bool,
    /// Send the version everywhere at once: no groups, no windows
    #[arg(long, requires = "set_agent_version")]
    immediate: bool,
    /// Go to a lower major version
    #[arg(long, requires = "set_agent_version")]
    allow_major_downgrade: bool,
    /// Choose a version that the server does not publish for every platform of the fleet, because hosts download it from a
    /// mirror elsewhere
    #[arg(long, requires = "set_agent_version")]
    allow_missing: bool,
    /// Store an immediate version while the rollout is paused; no host is told before it is resumed
    #[arg(long, requires = "immediate")]
    even_if_paused: bool,
    /// The schedule to change: regular, critical, or immediate for its jitter
    #[arg(long)]
    schedule: Option<Schedule>,
    /// The group to change; without one, the schedule of hosts that no group takes
    #[arg(long, requires = "schedule")]
    group: Option<String>,
    /// Make the group, as the last of its schedule
    #[arg(long, requires = "group", conflicts_with = "remove")]
    add: bool,
    /// Remove the group
    #[arg(long, requires = "group")]
    remove: bool,
    #[command(flatten)]
    fields: Fields,
}

/// A flag for every field of a group.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Fields of a schedule or a group")]
struct Fields {
    /// Another name for the group
    #[arg(long, value_name = "NAME", requires = "group")]
    set_name: Option<String>,
    /// CEL over the labels of the host as a resource; empty to take all
    #[arg(long, value_name = "CEL", requires = "group")]
    set_node_labels_expression: Option<String>,
    /// CEL over the labels of the agent; empty to take all
    #[arg(long, value_name = "CEL", requires = "group")]
    set_instance_labels_expression: Option<String>,
    /// The days on which the window opens: Mon,Wed or '*'
    #[arg(long, value_name = "DAYS", value_delimiter = ',', requires = "schedule")]
    set_days: Option<Vec<String>>,
    /// The hour at which it opens, 0-23
    #[arg(long, value_name = "HOUR", requires = "schedule")]
    set_start_hour: Option<u64>,
    /// For how many hours, 1-24
    #[arg(long, value_name = "HOURS", requires = "schedule")]
    set_window_hours: Option<u64>,
    /// The time zone of the hour, as IANA names it
    #[arg(long, value_name = "ZONE", requires = "schedule")]
    set_timezone: Option<String>,
    /// Over how many seconds updaters spread their start, 0-3600
    #[arg(long, value_name = "SECONDS", requires = "schedule")]
    set_jitter_seconds: Option<u64>,
    /// How many hosts may be in flight at the same time: a share like 5% or 0.5%, or a number like 5
    #[arg(long, value_name = "LIMIT", requires = "group")]
    set_max_in_flight: Option<HostLimit>,
    /// Seconds until an update that has not changed the version times out, 30-900
    #[arg(long, value_name = "SECONDS", requires = "group")]
    set_timeout_seconds: Option<u64>,
    /// Seconds that a started host may be disconnected before it counts as failed, 0-900
    #[arg(long, value_name = "SECONDS", requires = "group")]
    set_failure_seconds: Option<u64>,
    /// How many may fail before the group halts: a share like 5%, or a number
    #[arg(long, value_name = "LIMIT", requires = "group")]
    set_max_failed_before_halt: Option<HostLimit>,
    /// How many may time out before the group halts: a share like 5%, or a number
    #[arg(long, value_name = "LIMIT", requires = "group")]
    set_max_timeout_before_halt: Option<HostLimit>,
    /// The groups that must succeed first, separated by commas; empty for none
    #[arg(long, value_name = "GROUPS", requires = "group")]
    set_requires: Option<String>,
    /// Whether the group succeeds although nobody in it runs the version
    #[arg(long, value_name = "true|false", requires = "group")]
    set_allow_empty: Option<bool>,
}

impl Fields {
    /// What was set, by the name of the field.
    fn set(&self) -> Vec<(&'static str, Value)> {
        let number = |value: Option<u64>| value.map(Value::from);
        let text = |value: &Option<String>| value.clone().map(Value::from);
        // In full, because an older server would take a number for a percentage.
        let limit = |value: Option<HostLimit>| value.map(|limit| Value::from(limit.to_string()));
        let list = |value: &str| {
            let names = value.split(',').map(str::trim).filter(|name| !name.is_empty());
            Value::from(names.collect::<Vec<_>>())
        };
        let fields = [
            ("name", text(&self.set_name)),
            ("node_labels_expression", text(&self.set_node_labels_expression)),
            ("instance_labels_expression", text(&self.set_instance_labels_expression)),
            ("days", self.set_days.clone().map(Value::from)),
            ("start_hour", number(self.set_start_hour)),
            ("window_hours", number(self.set_window_hours)),
            ("timezone", text(&self.set_timezone)),
            ("jitter_seconds", number(self.set_jitter_seconds)),
            ("max_in_flight", limit(self.set_max_in_flight)),
            ("timeout_seconds", number(self.set_timeout_seconds)),
            ("failure_seconds", number(self.set_failure_seconds)),
            ("max_failed_before_halt", limit(self.set_max_failed_before_halt)),
            ("max_timeout_before_halt", limit(self.set_max_timeout_before_halt)),
            ("requires", self.set_requires.as_deref().map(list)),
            ("allow_empty", self.set_allow_empty.map(Value::from)),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

impl Update {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let fields = self.fields.set();
        let edits_schedule = !fields.is_empty() || self.add || self.remove;
        if self.schedule.is_some() && !edits_schedule {
            return Err(Failure::usage("nothing to change: name at least one field with --set-…"));
        }
        if self.set_agent_auto_update.is_none() && self.set_agent_version.is_none() && !edits_schedule {
            return Err(Failure::usage("nothing to change: see `refitctl autoupdate update --help`"));
        }
        let mut client = ResourceServiceClient::new(global.target.connect().await?);
        let mut changed = Map::new();
        let mut notes = Vec::new();
        if self.set_agent_auto_update.is_some() || edits_schedule {
            let document =
                change(&mut client, Kind::ClusterMaintenanceConfig, Consent::default(), |document| {
                    let spec = object(document, "spec")?;
                    if let Some(switch) = &self.set_agent_auto_update {
                        set_switch(spec, switch == "on");
                    }
                    match &self.schedule {
                        Some(schedule) if edits_schedule => self.edit_schedule(spec, *schedule, &fields),
                        _ => Ok(()),
                    }
                });
            let stored = document.await?;
            notes.extend(stored.warnings.iter().map(|warning| format!("warning: {warning}")));
            changed.insert(Kind::ClusterMaintenanceConfig.name().into(), stored.document);
        }
        if let Some(version) = &self.set_agent_version {
            let before = stored(&mut client, Kind::AutoupdateVersion).await?;
            notes.extend(before.as_ref().and_then(|before| downgrade(before, version)));
            let schedule = match (self.critical, self.immediate) {
                (true, _) => Schedule::Critical,
                (_, true) => Schedule::Immediate,
                _ => Schedule::Regular,
            };
            let allowed = Consent {
                allow_major_downgrade: self.allow_major_downgrade,
                allow_missing: self.allow_missing,
                even_if_paused: self.even_if_paused,
            };
            let document = change(&mut client, Kind::AutoupdateVersion, allowed, |document| {
                let spec = object(document, "spec")?;
                spec.insert("agent_version".into(), json!(version.to_string()));
                spec.insert("agent_version_schedule".into(), json!(schedule.as_str()));
                Ok(())
            });
            changed.insert(Kind::AutoupdateVersion.name().into(), document.await?.document);
        }
        let mut message = "Automatic updates configuration has been updated.".to_owned();
        notes.iter().for_each(|note| message.push_str(&format!("\n{note}")));
        output::done(global.format, &changed, message)
    }

    fn edit_schedule(
        &self,
        spec: &mut Map<String, Value>,
        schedule: Schedule,
        fields: &[(&'static str, Value)],
    ) -> Result<(), Failure> {
        let Some(name) = &self.group else {
            let policy = policy(spec, schedule)?;
            fields.iter().for_each(|(field, value)| drop(policy.insert((*field).into(), value.clone())));
            return Ok(());
        };
        if schedule == Schedule::Immediate {
            return Err(Failure::usage("the immediate schedule has no groups"));
        }
        let groups =
            child(spec, "agent_auto_update_groups")?.entry(schedule.as_str()).or_insert_with(|| json!([]));
        let Value::Array(groups) = groups else { return Err(not_as_expected(schedule.as_str())) };
        let found = groups.iter().position(|group| group.get("name").and_then(Value::as_str) == Some(name));
        let at = match (found, self.add) {
            (Some(_), true) => {
                return Err(Failure::failed(format!(
                    "there is a group {name:?} already; change it without --add"
                )));
            }
            (Some(at), false) => at,
            (None, true) => {
                groups.push(json!({ "name": name }));
                groups.len() - 1
            }
            (None, false) => {
                let known: Vec<&str> =
                    groups.iter().filter_map(|group| group.get("name")?.as_str()).collect();
                let known = if known.is_empty() {
                    "it has none".into()
                } else {
                    format!("it has {}", known.join(", "))
                };
                return Err(Failure::failed(format!(
                    "there is no group {name:?} in the {schedule} schedule: {known}; make it with --add"
                )));
            }
        };
        if self.remove {
            groups.remove(at);
            return Ok(());
        }
        let Value::Object(group) = &mut groups[at] else { return Err(not_as_expected(name)) };
        for (field, value) in fields {
            let place = if field.ends_with("_expression") { child(group, "agents")? } else { &mut *group };
            match value.as_str() {
                Some("") => drop(place.remove(*field)),
                _ => drop(place.insert((*field).into(), value.clone())),
            }
        }
        Ok(())
    }
}

fn not_as_expected(what: &str) -> Failure {
    Failure::failed(format!(
        "what is stored of {what} is not as this version expects it; use `refitctl edit`"
    ))
}

fn object<'v>(value: &'v mut Value, field: &str) -> Result<&'v mut Map<String, Value>, Failure> {
    match value {
        Value::Object(map) => child(map, field),
        _ => Err(not_as_expected(field)),
    }
}

/// The map at a field, which is made if there is none.
fn child<'v>(map: &'v mut Map<String, Value>, field: &str) -> Result<&'v mut Map<String, Value>, Failure> {
    match map.entry(field).or_insert_with(|| json!({})) {
        Value::Object(found) => Ok(found),
        _ => Err(not_as_expected(field)),
    }
}

/// Sets the switch and keeps its form: a plain boolean stays one, a map keeps its schedules.
fn set_switch(spec: &mut Map<String, Value>, on: bool) {
    match spec.get_mut("agent_auto_update") {
        Some(Value::Object(policy)) => drop(policy.insert("enabled".into(), json!(on))),
        _ => drop(spec.insert("agent_auto_update".into(), json!(on))),
    }
}

/// The policy of a schedule for hosts without a group. A plain switch becomes a map with the same value.
fn policy(spec: &mut Map<String, Value>, schedule: Schedule) -> Result<&mut Map<String, Value>, Failure> {
    let switch = spec.entry("agent_auto_update").or_insert_with(|| json!({}));
    if let Value::Bool(on) = *switch {
        *switch = if on { json!({}) } else { json!({ "enabled": false }) };
    }
    match switch {
        Value::Object(policy) => child(policy, schedule.as_str()),
        _ => Err(not_as_expected("agent_auto_update")),
    }
}

fn downgrade(before: &Value, version: &Version) -> Option<String> {
    let present: Version = before.get("spec")?.get("agent_version")?.as_str()?.parse().ok()?;
    (*version < present)
        .then(|| format!("This is a downgrade: agents go from v{present} back to v{version}."))
}
