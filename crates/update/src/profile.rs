//! The profile: what is managed, as data. Refit's own is built in; others are read from a file by `validation`.

mod validation;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::SignedDuration;
use refit_identity::HOST_TTL;
use refit_types::{Edition, HOST_OS, Version, host_arch};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// The description of an agent: nothing in the updater is specific to one product.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The name of the agent.
    pub name: String,
    /// The binaries, in `bin/` of an installed version and linked under these names. The first is the agent.
    pub binaries: Vec<String>,
    /// The binary of the updater, if it is one of them.
    #[serde(default)]
    pub updater: Option<String>,
    /// The arguments with which a binary prints its version.
    #[serde(default = "version_arguments")]
    pub version_arguments: Vec<String>,
    /// The service.
    pub unit: String,
    /// Units that run the updater on schedule; in an archive they are beside the unit of the service.
    #[serde(default)]
    pub updater_units: Vec<UpdaterUnit>,
    /// How units of a second agent on the host differ: by unit, the text of a drop-in in which `{suffix}`, `{bin_dir}`,
    /// `{data_dir}` and `{config}` are filled in. Without any, there can be no second agent.
    #[serde(default)]
    pub suffix_drop_ins: BTreeMap<String, String>,
    /// The address of an archive: `{base_url}`, `{edition}`, `{version}`, `{os}` and `{arch}` are filled in.
    pub artifact: String,
    /// The one directory at the top of an archive; without it, binaries are at the top.
    #[serde(default)]
    pub archive_root: Option<String>,
    /// The path of the unit in the archive.
    pub archive_unit: String,
    /// The agent's data directory.
    pub data_dir: PathBuf,
    /// Its database, below that.
    pub database: PathBuf,
    /// Its configuration, which names the proxy.
    pub config: PathBuf,
    /// Where links to binaries go.
    #[serde(default = "bin_dir")]
    pub bin_dir: PathBuf,
    /// Where units are copied to.
    #[serde(default = "unit_dir")]
    pub unit_dir: PathBuf,
    /// How it reports that it is healthy.
    pub readiness: Readiness,
    /// The system's package of the same agent, which `enable` replaces.
    #[serde(default)]
    pub package: Option<String>,
    /// How long an identity of the agent lives, at least: a backup whose identity is not known must be younger to be
    /// restored.
    #[serde(default = "identity_lifetime", deserialize_with = "lifetime")]
    pub identity_lifetime: SignedDuration,
}

/// A unit that runs or triggers the updater.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpdaterUnit {
    /// Its name.
    pub name: String,
    /// The target that starts it at boot.
    #[serde(default)]
    pub wanted_by: Option<String>,
}

/// How an agent reports that it is healthy.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Readiness {
    /// A socket below the data directory that reports version, start time and connection.
    Socket(PathBuf),
    /// An HTTP address that responds with 200 when the agent is ready, and its pid file, absolute or below the data
    /// directory.
    Http {
        /// The address.
        url: String,
        /// The file.
        pid_file: PathBuf,
    },
}

/// A profile that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the profile {path} cannot be used: {reason}", path = .path.display())]
pub struct ProfileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

fn version_arguments() -> Vec<String> {
    vec!["version".into()]
}

fn identity_lifetime() -> SignedDuration {
    SignedDuration::try_from(HOST_TTL).unwrap_or(SignedDuration::MAX)
}

/// Reads `720h`.
fn lifetime<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SignedDuration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let parsed = text.parse::<SignedDuration>().ok().filter(|lifetime| lifetime.is_positive());
    parsed
        .ok_or_else(|| D::Error::custom(format!("{text:?} is not a lifetime; expected something like 720h")))
}

fn bin_dir() -> PathBuf {
    "/usr/local/bin".into()
}

fn unit_dir() -> PathBuf {
    "/usr/local/lib/systemd/system".into()
}

fn own_updater_units() -> Vec<UpdaterUnit> {
    let unit = |name: &str, target: Option<&str>| UpdaterUnit {
        name: name.into(),
        wanted_by: target.map(str::to_owned),
    };
    vec![
        unit("refit-update.service", None),
        unit("refit-update.timer", Some("timers.target")),
        unit("refit-update.path", Some("multi-user.target")),
    ]
}

fn own_drop_ins() -> BTreeMap<String, String> {
    let texts = [
        (
            "refit.service",
            "[Service]\nEnvironment=REFIT_DATA_DIR={data_dir} REFIT_CONFIG={config}\n\
             EnvironmentFile=\nEnvironmentFile=-/etc/default/refit-{suffix}\n\
             ExecStartPre=\nExecStartPre=-+/bin/sh -c '[ ! -x {data_dir}/active.back/bin/refit-update ] || exec {data_dir}/active.back/bin/refit-update --install-suffix {suffix} recover'\n\
             ExecStartPre=-+{bin_dir}/refit-update --install-suffix {suffix} recover\n\
             ExecStart=\nExecStart={bin_dir}/refit agent start\n",
        ),
        (
            "refit-update.service",
            "[Service]\nExecStartPre=\nExecStartPre=-/usr/bin/env sh -c '[ ! -x {data_dir}/active.back/bin/refit-update ] || exec {data_dir}/active.back/bin/refit-update --install-suffix {suffix} recover'\n\
             ExecStart=\nExecStart=/usr/bin/env sh -c 'own={bin_dir}/refit-update data={data_dir} other= past=; \
             REFIT_UPDATE_LAUNCHED=1 \"$$own\" --install-suffix {suffix} update; code=$$?; \
             case $$code in 0|129|130|143) exit $$code;; 3) exit 1;; esac; \
             for file in $$(ls -d \"$$data\"/versions/*/sha256 | sort -V); do dir=$${file%%/*}; \
             if [ \"$$dir\" -ef \"$$data/active\" ]; then past=1; continue; fi; \
             [ -e \"$$dir/proved\" ] && [ -x \"$$dir/bin/refit-update\" ] || continue; \
             [ \"$$past\" ] && [ \"$$other\" ] || other=$$dir; \
             done; [ \"$$other\" ] || exit $$code; \
             REFIT_UPDATE_HANDED=1 \"$$other/bin/refit-update\" --install-suffix {suffix} update || exit 1'\n",
        ),
        (
            "refit-update.path",
            "[Path]\nPathChanged=\nPathChanged={data_dir}/versions/wake\nUnit=refit-update-{suffix}.service\n",
        ),
    ];
    texts.map(|(unit, text)| (unit.to_owned(), text.to_owned())).into()
}

impl Profile {
    /// The path of a unit in an archive.
    pub(crate) fn archive_path(&self, unit: &str) -> PathBuf {
        match unit == self.unit {
            true => self.archive_unit.clone().into(),
            false => Path::new(&self.archive_unit).with_file_name(unit),
        }
    }

    /// All units, the service first.
    pub(crate) fn units(&self) -> impl Iterator<Item = &str> {
        [self.unit.as_str()].into_iter().chain(self.updater_units.iter().map(|unit| unit.name.as_str()))
    }

    /// Refit's own agent.
    pub fn refit() -> Self {
        Self {
            name: "refit".into(),
            binaries: ["refit", "refitctl", "refit-update"].map(Into::into).into(),
            updater: Some("refit-update".into()),
            version_arguments: version_arguments(),
            unit: "refit.service".into(),
            updater_units: own_updater_units(),
            suffix_drop_ins: own_drop_ins(),
            artifact: "{base_url}/refit-{edition}-v{version}-{os}-{arch}-bin.tar.gz".into(),
            archive_root: Some("refit".into()),
            archive_unit: "etc/systemd/refit.service".into(),
            data_dir: "/var/lib/refit".into(),
            database: "proc/sqlite.db".into(),
            config: "/etc/refit.yaml".into(),
            bin_dir: bin_dir(),
            unit_dir: unit_dir(),
            readiness: Readiness::Socket("agent.sock".into()),
            package: Some("refit".into()),
            identity_lifetime: identity_lifetime(),
        }
    }

    /// The address of an archive.
    pub fn artifact_url(&self, base_url: &str, edition: Edition, version: &Version) -> String {
        self.artifact
            .replace("{base_url}", base_url.trim_end_matches('/'))
            .replace("{edition}", edition.as_str())
            .replace("{version}", &version.to_string())
            .replace("{os}", HOST_OS)
            .replace("{arch}", host_arch())
    }
}
