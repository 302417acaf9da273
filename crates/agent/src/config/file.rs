//! The agent's configuration file as YAML.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::{Settings, Token};

/// A label whose value a program prints, as it is configured.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandSettings {
    /// What the label is called.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// How often, like `1h0m0s`.
    pub period: String,
}

/// The form of `/etc/refit.yaml`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ConfigFile {
    refit: Option<RefitSection>,
    ssh_service: Option<SshSection>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RefitSection {
    data_dir: Option<PathBuf>,
    nodename: Option<String>,
    proxy: Option<String>,
    proxies: Option<Vec<String>>,
    token: Option<Token>,
    ca_pin: Option<String>,
    roles: Option<Vec<String>>,
    labels: Option<BTreeMap<String, String>>,
    commands: Option<Vec<CommandSettings>>,
    unreachable_exit: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SshSection {
    labels: Option<BTreeMap<String, String>>,
    commands: Option<Vec<CommandSettings>>,
}

pub(super) fn parse(text: &str) -> Result<Settings, String> {
    let blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    if text.lines().all(blank) {
        return Ok(Settings::default());
    }
    let file: ConfigFile = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let refit = file.refit.unwrap_or_default();
    let ssh = file.ssh_service.unwrap_or_default();
    if refit.proxy.is_some() && refit.proxies.is_some() {
        return Err("refit.proxy and refit.proxies are both set; keep one of them".into());
    }
    Ok(Settings {
        data_dir: refit.data_dir,
        nodename: refit.nodename,
        proxies: refit.proxy.map(|proxy| vec![proxy]).or(refit.proxies),
        token: refit.token,
        ca_pin: refit.ca_pin,
        roles: refit.roles,
        instance_labels: refit.labels.map(|labels| labels.into_iter().collect()),
        instance_commands: refit.commands,
        node_labels: ssh.labels.map(|labels| labels.into_iter().collect()),
        node_commands: ssh.commands,
        unreachable_exit: refit.unreachable_exit,
    })
}
