//! How an agent is configured: settings from the file, the environment and the command line, laid over each
//! other and checked.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use refit_identity::CaPin;
use refit_types::{AgentRole, ConfigError, DataDir, Labels, ValidationErrors};

use crate::{DEFAULT_UNREACHABLE_EXIT, LabelCommand, SHORTEST_UNREACHABLE_EXIT};

mod file;
mod node_name;
mod period;
mod proxy;
mod token;

pub use file::CommandSettings;
pub use node_name::NodeName;
pub use period::{LONGEST_PERIOD, SHORTEST_PERIOD};
pub use proxy::{DEFAULT_PORT, ProxyAddress};
pub use token::Token;

/// What may be set, in one place of several: the file, the environment, the command line. All optional;
/// [`Settings::over`] lays one over another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Where everything of this agent is kept.
    pub data_dir: Option<PathBuf>,
    /// What the host is called, if not by its own name.
    pub nodename: Option<String>,
    /// `HOST[:PORT]` of the control plane's servers.
    pub proxies: Option<Vec<String>>,
    /// What lets the host join.
    pub token: Option<Token>,
    /// By what the control plane is known before the host has joined.
    pub ca_pin: Option<String>,
    /// What the agent does on this host.
    pub roles: Option<Vec<String>>,
    /// Labels of the agent, for groups to select by.
    pub instance_labels: Option<Vec<(String, String)>>,
    /// Likewise, with values that programs print.
    pub instance_commands: Option<Vec<CommandSettings>>,
    /// Labels of the host as something to connect to.
    pub node_labels: Option<Vec<(String, String)>>,
    /// Likewise, with values that programs print.
    pub node_commands: Option<Vec<CommandSettings>>,
    /// After how long without the control plane the agent exits.
    pub unreachable_exit: Option<String>,
}

/// How an agent runs, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentConfig {
    /// Where everything of this agent is kept.
    pub data_dir: DataDir,
    /// What the host is called; without it, its own name.
    pub nodename: Option<NodeName>,
    /// The control plane's servers, at least one.
    pub proxies: Vec<ProxyAddress>,
    /// What lets the host join; not needed once it has.
    pub token: Option<Token>,
    /// By what the control plane is known before the host has joined; without it, by a public certificate.
    pub ca_pin: Option<CaPin>,
    /// What the agent does on this host, at least one thing.
    pub roles: BTreeSet<AgentRole>,
    /// Labels of the agent, for groups to select by.
    pub instance_labels: Labels,
    /// Likewise, with values that programs print.
    pub instance_commands: Vec<LabelCommand>,
    /// Labels of the host as something to connect to.
    pub node_labels: Labels,
    /// Likewise, with values that programs print.
    pub node_commands: Vec<LabelCommand>,
    /// How long after the loss of its connection the agent exits.
    pub unreachable_exit: Duration,
}

impl Settings {
    /// Reads a YAML file; keys that are not known are refused, with their line and column.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.into(), source })?;
        file::parse(&text).map_err(|error| ConfigError::Invalid { path: path.into(), error })
    }

    /// These settings, and `lower` where they say nothing.
    pub fn over(self, lower: Self) -> Self {
        Self {
            data_dir: self.data_dir.or(lower.data_dir),
            nodename: self.nodename.or(lower.nodename),
            proxies: self.proxies.or(lower.proxies),
            token: self.token.or(lower.token),
            ca_pin: self.ca_pin.or(lower.ca_pin),
            roles: self.roles.or(lower.roles),
            instance_labels: self.instance_labels.or(lower.instance_labels),
            instance_commands: self.instance_commands.or(lower.instance_commands),
            node_labels: self.node_labels.or(lower.node_labels),
            node_commands: self.node_commands.or(lower.node_commands),
            unreachable_exit: self.unreachable_exit.or(lower.unreachable_exit),
        }
    }

    /// Checks every value, and fills in what is not set. Every error is reported, by its place in the file.
    pub fn check(self, default_data_dir: &Path) -> Result<AgentConfig, ConfigError> {
        let mut errors = ValidationErrors::default();
        let data_dir = self.data_dir.unwrap_or_else(|| default_data_dir.to_owned());
        if !data_dir.is_absolute() {
            let problem = format!("{:?} is not an absolute path, like /var/lib/refit", data_dir.display());
            errors.add("refit.data_dir", problem);
        }
        let nodename = self.nodename.and_then(|name| errors.take("refit.nodename", name.parse()));
        let proxies = proxies(self.proxies, &mut errors);
        let token = self.token.and_then(|token| errors.take("refit.token", token.checked()));
        let ca_pin = self.ca_pin.and_then(|pin| errors.take("refit.ca_pin", pin.parse()));
        let roles = roles(self.roles, &mut errors);
        let places = ("refit.labels", "refit.commands");
        let (instance_labels, instance_commands) =
            labels(places, self.instance_labels, self.instance_commands, &mut errors);
        let unreachable_exit = self.unreachable_exit.and_then(|text| {
            let parsed = period::parse_from(SHORTEST_UNREACHABLE_EXIT, &text);
            errors.take("refit.unreachable_exit", parsed)
        });
        let places = ("ssh_service.labels", "ssh_service.commands");
        let (node_labels, node_commands) = labels(places, self.node_labels, self.node_commands, &mut errors);
        let config = AgentConfig {
            data_dir: DataDir::new(data_dir),
            nodename,
            proxies,
            token,
            ca_pin,
            roles,
            instance_labels,
            instance_commands,
            node_labels,
            node_commands,
            unreachable_exit: unreachable_exit.unwrap_or(DEFAULT_UNREACHABLE_EXIT),
        };
        errors.or(Some(config)).map_err(ConfigError::Settings)
    }
}

fn proxies(given: Option<Vec<String>>, errors: &mut ValidationErrors) -> Vec<ProxyAddress> {
    let given = given.unwrap_or_default();
    if given.is_empty() {
        errors.add("refit.proxy", "is missing; expected HOST[:PORT] of the control plane");
    }
    let mut proxies = Vec::new();
    for (n, text) in given.iter().enumerate() {
        let place = if given.len() == 1 { "refit.proxy".into() } else { format!("refit.proxies[{n}]") };
        match errors.take(place.as_str(), text.parse::<ProxyAddress>()) {
            Some(proxy) if proxies.contains(&proxy) => errors.add(place, format!("{proxy} is there twice")),
            Some(proxy) => proxies.push(proxy),
            None => {}
        }
    }
    proxies
}

fn roles(given: Option<Vec<String>>, errors: &mut ValidationErrors) -> BTreeSet<AgentRole> {
    let Some(given) = given else { return BTreeSet::from([AgentRole::Node]) };
    if given.is_empty() {
        errors.add("refit.roles", "is empty; expected at least one role, like [node]");
    }
    let parsed = given.iter().enumerate();
    parsed.filter_map(|(n, role)| errors.take(format!("refit.roles[{n}]"), role.parse())).collect()
}

fn labels(
    (fixed_place, command_place): (&str, &str),
    fixed: Option<Vec<(String, String)>>,
    commands: Option<Vec<CommandSettings>>,
    errors: &mut ValidationErrors,
) -> (Labels, Vec<LabelCommand>) {
    let mut labels = Labels::default();
    for (name, value) in fixed.unwrap_or_default() {
        errors.take(format!("{fixed_place}.{name}"), labels.insert(&name, &value));
    }
    let mut all = labels.clone();
    let mut checked = Vec::new();
    for (n, command) in commands.unwrap_or_default().into_iter().enumerate() {
        let place = |field: &str| format!("{command_place}[{n}].{field}");
        if all.get(&command.name).is_some() {
            errors.add(place("name"), format!("there is another label {:?}", command.name));
        }
        errors.take(place("name"), all.insert(&command.name, ""));
        if command.command.first().is_none_or(|program| program.is_empty()) {
            errors.add(place("command"), "names no program; expected a list, like ['/bin/uname', '-p']");
        }
        let period = errors.take(place("period"), period::parse(&command.period));
        let CommandSettings { name, command, .. } = command;
        checked.extend(period.map(|period| LabelCommand { name, command, period }));
    }
    (labels, checked)
}

#[cfg(test)]
mod tests;
