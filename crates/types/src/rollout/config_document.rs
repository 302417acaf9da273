//! `cluster_maintenance_config` as a document: what may stand in it, and what it says when left out.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde_json::{Map, Value, json};

use super::config::{
    AutoUpdate, ClusterMaintenanceConfig, Group, GroupName, Groups, Immediate, MAX_GROUPS, PolicySchedule,
};
use super::requires_graph;
use super::{Day, Days, Expression, Selector, TimeZoneName, WeeklyWindow};
use crate::resource_kind::{Detail, Editors, Header, KindInfo, Naming, ResourceKind};
use crate::validation::{Fields, ValidationErrors, shown};

const JITTER: std::ops::RangeInclusive<u32> = 0..=3600;

impl ResourceKind for ClusterMaintenanceConfig {
    const INFO: KindInfo = KindInfo {
        name: "cluster_maintenance_config",
        document_version: "v1",
        naming: Naming::Singleton("cluster-maintenance-config"),
        editors: Editors::Rollouts,
        drives_rollouts: true,
        columns: &[],
        draft: None,
    };

    fn description(&self) -> &str {
        &self.description
    }

    fn defaults() -> Option<Self> {
        Some(Self::default())
    }

    fn from_parts(header: Header, spec: Value, errors: &mut ValidationErrors) -> Option<Self> {
        let mut fields = Fields::of("spec", spec, errors);
        let agent_auto_update = auto_update(&mut fields);
        let mut groups = fields.map("agent_auto_update_groups");
        let regular = read_groups(&mut groups, "regular");
        let critical = read_groups(&mut groups, "critical");
        groups.end();
        fields.end();
        let agent_auto_update_groups = Groups { regular, critical };
        Some(Self { description: header.description, agent_auto_update, agent_auto_update_groups })
    }

    fn spec(&self, detail: Detail) -> Value {
        let mut spec = Written { map: Map::new(), detail };
        let auto_update = &self.agent_auto_update;
        let off = AutoUpdate { enabled: false, ..AutoUpdate::default() };
        match (detail, auto_update) {
            (Detail::Compact, auto_update) if *auto_update == off => {
                spec.always("agent_auto_update", json!(false))
            }
            _ => spec.unless_default(
                "agent_auto_update",
                auto_update.written(detail),
                *auto_update == AutoUpdate::default(),
            ),
        }
        let Groups { regular, critical } = &self.agent_auto_update_groups;
        let mut groups = Written { map: Map::new(), detail };
        for (name, list) in [("regular", regular), ("critical", critical)] {
            let list: Vec<Value> = list.iter().map(|group| group.written(detail)).collect();
            let is_empty = list.is_empty();
            groups.unless_default(name, list.into(), is_empty);
        }
        let is_empty = groups.map.is_empty();
        spec.unless_default("agent_auto_update_groups", groups.map.into(), is_empty);
        spec.map.into()
    }
}

fn auto_update(fields: &mut Fields<'_>) -> AutoUpdate {
    let default = AutoUpdate::default();
    let mut map = match fields.take("agent_auto_update") {
        None => return default,
        Some(Value::Bool(enabled)) => return AutoUpdate { enabled, ..default },
        Some(map @ Value::Object(_)) => fields.map_of("agent_auto_update", map),
        Some(other) => {
            let problem = format!("expected true, false or a map, found {}", shown(&other));
            fields.add_error("agent_auto_update", problem);
            return default;
        }
    };
    let enabled = map.flag("enabled").unwrap_or(true);
    let mut immediate = map.map("immediate");
    let jitter_seconds = immediate.number("jitter_seconds", JITTER).unwrap_or(0);
    immediate.end();
    let regular = policy(map.map("regular"));
    let critical = policy(map.map("critical"));
    map.end();
    AutoUpdate { enabled, immediate: Immediate { jitter_seconds }, regular, critical }
}

fn policy(mut fields: Fields<'_>) -> PolicySchedule {
    let (days, start_hour) = (days(&mut fields), fields.number("start_hour", 0..=23));
    let jitter_seconds = fields.number("jitter_seconds", JITTER).unwrap_or(0);
    let window = window(&mut fields, days, start_hour);
    fields.end();
    PolicySchedule { window, jitter_seconds }
}

fn window(fields: &mut Fields<'_>, days: Option<Days>, start_hour: Option<u32>) -> WeeklyWindow {
    let default = WeeklyWindow::default();
    let hours = |hours: Option<u32>| hours.and_then(|hours| u8::try_from(hours).ok());
    WeeklyWindow {
        timezone: fields.text("timezone", TimeZoneName::from_str).unwrap_or(default.timezone),
        window_hours: hours(fields.number("window_hours", 1..=24)).unwrap_or(default.window_hours),
        days: days.unwrap_or(default.days),
        start_hour: hours(start_hour).unwrap_or(default.start_hour),
    }
}

fn days(fields: &mut Fields<'_>) -> Option<Days> {
    let list = fields.list("days", "days")?;
    if list == ["*"] {
        return Some(Days::ALL);
    }
    let mut days = Vec::new();
    for (n, value) in list.iter().enumerate() {
        match value.as_str().and_then(|text| text.parse::<Day>().ok()) {
            Some(day) => days.push(day),
            None => fields.add_error(
                &format!("days[{n}]"),
                format!(
                    "expected one of Mon, Tue, Wed, Thu, Fri, Sat, Sun, or only \"*\", found {}",
                    shown(value)
                ),
            ),
        }
    }
    if list.is_empty() {
        fields.add_error("days", "is empty; expected days, or \"*\" for all");
    }
    Days::of(days)
}

fn read_groups(fields: &mut Fields<'_>, schedule: &'static str) -> Vec<Group> {
    let before = fields.error_count();
    let Some(list) = fields.list(schedule, "groups") else { return Vec::new() };
    if list.len() > MAX_GROUPS {
        fields.add_error(schedule, format!("has {} groups; at most {MAX_GROUPS} are allowed", list.len()));
        return Vec::new();
    }
    let count = list.len();
    let groups: Vec<Option<Group>> = list
        .into_iter()
        .enumerate()
        .map(|(n, value)| read_group(fields.map_of(&format!("{schedule}[{n}]"), value)))
        .collect();
    let mut places: BTreeMap<&GroupName, usize> = BTreeMap::new();
    for (n, group) in groups.iter().enumerate() {
        let Some(group) = group else { continue };
        if let Some(first) = places.get(&group.name) {
            let problem = format!("{:?} is the name of {schedule}[{first}] already", group.name.as_str());
            fields.add_error(&format!("{schedule}[{n}].name"), problem);
        } else {
            places.insert(&group.name, n);
        }
    }
    let known = || places.keys().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    for (n, group) in groups.iter().enumerate() {
        let Some(group) = group else { continue };
        for (m, required) in group.requires.iter().enumerate() {
            let name = required.as_str();
            let problem = if *required == group.name {
                format!("{name:?} is the group itself")
            } else if group.requires[..m].contains(required) {
                format!("{name:?} stands there twice")
            } else if !places.contains_key(required) {
                format!("{name:?} is not a group of this schedule; expected one of {}", known())
            } else {
                continue;
            };
            fields.add_error(&format!("{schedule}[{n}].requires[{m}]"), problem);
        }
    }
    let readable: Vec<(usize, &Group)> =
        groups.iter().enumerate().filter_map(|(n, group)| Some((n, group.as_ref()?))).collect();
    for (n, problem) in requires_graph::cycles(&readable) {
        fields.add_error(&format!("{schedule}[{n}].requires"), problem);
    }
    let groups: Vec<Group> = groups.into_iter().flatten().collect();
    // How long a chain takes can be said only of groups that are right each by itself.
    if groups.len() == count && fields.error_count() == before {
        for (n, problem) in requires_graph::long_chains(&groups) {
            fields.add_error(&format!("{schedule}[{n}].requires"), problem);
        }
    }
    groups
}

fn read_group(mut fields: Fields<'_>) -> Option<Group> {
    let name = fields.required_text("name", GroupName::from_str);
    let mut agents = fields.map("agents");
    let selector = Selector {
        node_labels_expression: agents.text("node_labels_expression", Expression::from_str),
        instance_labels_expression: agents.text("instance_labels_expression", Expression::from_str),
    };
    agents.end();
    let (days, start_hour) = (days(&mut fields), fields.number("start_hour", 0..=23));
    let jitter_seconds = fields.number("jitter_seconds", JITTER);
    let window = window(&mut fields, days, start_hour);
    let max_in_flight = fields.host_limit("max_in_flight");
    let timeout_seconds = fields.number("timeout_seconds", 30..=900);
    let failure_seconds = fields.number("failure_seconds", 0..=900);
    let max_failed_before_halt = fields.host_limit("max_failed_before_halt");
    let max_timeout_before_halt = fields.host_limit("max_timeout_before_halt");
    let requires = requires(&mut fields);
    let allow_empty = fields.flag("allow_empty");
    fields.end();
    let default = Group::named(name?);
    Some(Group {
        agents: selector,
        window,
        jitter_seconds: jitter_seconds.unwrap_or(default.jitter_seconds),
        max_in_flight: max_in_flight.unwrap_or(default.max_in_flight),
        timeout_seconds: timeout_seconds.unwrap_or(default.timeout_seconds),
        failure_seconds: failure_seconds.unwrap_or(default.failure_seconds),
        max_failed_before_halt: max_failed_before_halt.unwrap_or(default.max_failed_before_halt),
        max_timeout_before_halt: max_timeout_before_halt.unwrap_or(default.max_timeout_before_halt),
        requires,
        allow_empty: allow_empty.unwrap_or(default.allow_empty),
        name: default.name,
    })
}

fn requires(fields: &mut Fields<'_>) -> Vec<GroupName> {
    let list = fields.list("requires", "names of groups").unwrap_or_default();
    let mut names = Vec::new();
    for (n, value) in list.iter().enumerate() {
        let place = format!("requires[{n}]");
        match value.as_str().map(str::parse::<GroupName>) {
            Some(Ok(name)) => names.push(name),
            Some(Err(error)) => fields.add_error(&place, error.to_string()),
            None => fields.add_error(&place, format!("expected a text, found {}", shown(value))),
        }
    }
    names
}

/// A map that is being written, with or without what is at its default.
struct Written {
    map: Map<String, Value>,
    detail: Detail,
}

impl Written {
    fn always(&mut self, field: &str, value: Value) {
        self.map.insert(field.into(), value);
    }

    fn unless_default(&mut self, field: &str, value: Value, is_default: bool) {
        if self.detail == Detail::Full || !is_default {
            self.always(field, value);
        }
    }

    fn field<T: PartialEq>(&mut self, field: &str, value: &T, default: &T, write: impl Fn(&T) -> Value) {
        self.unless_default(field, write(value), value == default);
    }

    fn window_start(&mut self, window: &WeeklyWindow) {
        let default = WeeklyWindow::default();
        self.field("days", &window.days, &default.days, |days| match *days == Days::ALL {
            true => json!(["*"]),
            false => days.iter().map(Day::as_str).collect(),
        });
        self.field("start_hour", &window.start_hour, &default.start_hour, |hour| json!(hour));
    }

    fn window_rest(&mut self, window: &WeeklyWindow) {
        let default = WeeklyWindow::default();
        self.field("timezone", &window.timezone, &default.timezone, |zone| json!(zone.as_str()));
        self.field("window_hours", &window.window_hours, &default.window_hours, |hours| json!(hours));
    }
}

impl AutoUpdate {
    fn written(&self, detail: Detail) -> Value {
        let default = Self::default();
        let mut map = Written { map: Map::new(), detail };
        map.field("enabled", &self.enabled, &default.enabled, |enabled| json!(enabled));
        map.field(
            "immediate",
            &self.immediate,
            &default.immediate,
            |immediate| json!({ "jitter_seconds": immediate.jitter_seconds }),
        );
        map.field("regular", &self.regular, &default.regular, |policy| policy.written(detail));
        map.field("critical", &self.critical, &default.critical, |policy| policy.written(detail));
        map.map.into()
    }
}

impl PolicySchedule {
    fn written(&self, detail: Detail) -> Value {
        let mut map = Written { map: Map::new(), detail };
        map.window_start(&self.window);
        map.field("jitter_seconds", &self.jitter_seconds, &0, |seconds| json!(seconds));
        map.window_rest(&self.window);
        map.map.into()
    }
}

impl Group {
    fn written(&self, detail: Detail) -> Value {
        let default = Self::named(self.name.clone());
        let mut map = Written { map: Map::new(), detail };
        map.always("name", json!(self.name.as_str()));
        let mut agents = Map::new();
        let Selector { node_labels_expression: node, instance_labels_expression: instance } = &self.agents;
        for (field, expression) in
            [("node_labels_expression", node), ("instance_labels_expression", instance)]
        {
            if let Some(expression) = expression {
                agents.insert(field.into(), json!(expression.source()));
            }
        }
        let takes_all = agents.is_empty();
        map.unless_default("agents", agents.into(), takes_all);
        map.window_start(&self.window);
        map.field("jitter_seconds", &self.jitter_seconds, &default.jitter_seconds, |seconds| json!(seconds));
        map.window_rest(&self.window);
        map.field("max_in_flight", &self.max_in_flight, &default.max_in_flight, |share| json!(share));
        map.field("timeout_seconds", &self.timeout_seconds, &default.timeout_seconds, |seconds| {
            json!(seconds)
        });
        map.field("failure_seconds", &self.failure_seconds, &default.failure_seconds, |seconds| {
            json!(seconds)
        });
        map.field(
            "max_failed_before_halt",
            &self.max_failed_before_halt,
            &default.max_failed_before_halt,
            |share| json!(share),
        );
        map.field(
            "max_timeout_before_halt",
            &self.max_timeout_before_halt,
            &default.max_timeout_before_halt,
            |share| json!(share),
        );
        map.field("requires", &self.requires, &default.requires, |names| json!(names));
        map.field("allow_empty", &self.allow_empty, &default.allow_empty, |allowed| json!(allowed));
        map.map.into()
    }
}
