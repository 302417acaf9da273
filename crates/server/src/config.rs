//! The configuration of a server: the YAML file, its defaults and its validation. Reads the file, touches nothing else.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use refit_authority::StaticToken;
use refit_backend::{Error as StoreError, EtcdAddress};
use refit_identity::ClusterName;
use refit_types::DataDir;
use rustls::pki_types::ServerName;
use serde::Deserialize;

/// The port that serves everything.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 3080);
/// Health and metrics, for this host only.
const DEFAULT_DIAG_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 3081);

/// Ten thousand hosts behind one address that poll every ten minutes need 17.
const DEFAULT_FIND_REQUESTS_PER_SECOND: u32 = 100;
/// More than any server can answer, and the interval between two requests is still not zero.
const MOST_FIND_REQUESTS_PER_SECOND: u32 = 1_000_000;

/// Shorter ones can be guessed.
const SHORTEST_STATIC_TOKEN: usize = 16;

/// The settings of one source: the file, the environment, or the command line. All are optional; [`Settings::over`]
/// merges sources.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Where everything of this server is kept.
    pub data_dir: Option<PathBuf>,
    /// `ADDR:PORT` of the TLS port.
    pub listen: Option<String>,
    /// `ADDR:PORT` of the port for health and metrics.
    pub diag_listen: Option<String>,
    /// The store: `sqlite:PATH` or `etcd://…`.
    pub backend: Option<String>,
    /// What the cluster is called when it is created.
    pub cluster_name: Option<String>,
    /// Further host names and addresses under which clients reach this server.
    pub public_names: Option<Vec<String>>,
    /// Tokens that let hosts join for as long as they stand here.
    pub static_tokens: Option<Vec<StaticToken>>,
    /// How often one address may ask `find`; 0 for as often as it likes.
    pub find_requests_per_second: Option<u32>,
}

/// How a server runs, checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where everything of this server is kept.
    pub data_dir: DataDir,
    /// The TLS port.
    pub listen: SocketAddr,
    /// The port for health and metrics.
    pub diag_listen: SocketAddr,
    /// Where the cluster's data is kept.
    pub store: Store,
    /// What the cluster is called when it is created; the host's name if this is not given.
    pub cluster_name: Option<ClusterName>,
    /// Further names under which clients reach this server.
    pub public_names: Vec<ServerName<'static>>,
    /// Tokens that let hosts join for as long as they are configured.
    pub static_tokens: Vec<StaticToken>,
    /// How often one address may ask `find`; 0 for as often as it likes.
    pub find_requests_per_second: u32,
}

/// Which store a server uses.
#[derive(Debug, Clone)]
pub enum Store {
    /// A file of this server alone.
    Sqlite(PathBuf),
    /// Shared with other servers.
    Etcd(EtcdAddress),
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("the configuration file {path} cannot be read: {source}", path = .path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file does not say what it should.
    #[error("{path}: {problem}", path = .path.display())]
    Invalid {
        /// Which file.
        path: PathBuf,
        /// What is wrong, with line and column.
        problem: String,
    },
    /// One setting has a value that cannot be used.
    #[error("{setting}: {problem}")]
    Setting {
        /// Which one.
        setting: &'static str,
        /// What is wrong with its value.
        problem: String,
    },
    /// The store's address cannot be used.
    #[error("backend: {0}")]
    Store(StoreError),
}

impl Settings {
    /// Reads a YAML file; keys that are not known are refused, with their line and column.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.into(), source })?;
        Self::parse(&text).map_err(|problem| ConfigError::Invalid { path: path.into(), problem })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
        if text.lines().all(blank) {
            return Ok(Self::default());
        }
        // Without the surrounding lines: one of them may contain the store's password.
        let options = serde_saphyr::options! { with_snippet: false };
        serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())
    }

    /// These settings, with `lower` for those that are not set.
    pub fn over(self, lower: Self) -> Self {
        Self {
            data_dir: self.data_dir.or(lower.data_dir),
            listen: self.listen.or(lower.listen),
            diag_listen: self.diag_listen.or(lower.diag_listen),
            backend: self.backend.or(lower.backend),
            cluster_name: self.cluster_name.or(lower.cluster_name),
            public_names: self.public_names.or(lower.public_names),
            static_tokens: self.static_tokens.or(lower.static_tokens),
            find_requests_per_second: self.find_requests_per_second.or(lower.find_requests_per_second),
        }
    }

    /// Checks every value, and fills in what is not set.
    pub fn check(self, default_data_dir: &Path) -> Result<Config, ConfigError> {
        let data_dir = DataDir::new(self.data_dir.unwrap_or_else(|| default_data_dir.to_owned()));
        let listen = address("listen", self.listen, DEFAULT_LISTEN)?;
        let diag_listen = address("diag_listen", self.diag_listen, DEFAULT_DIAG_LISTEN)?;
        let store = match self.backend {
            None => Store::Sqlite(data_dir.store()),
            Some(text) => Store::parse(&text)?,
        };
        let cluster_name = self.cluster_name.map(|name| setting("cluster_name", name.parse())).transpose()?;
        let public_names = self.public_names.unwrap_or_default().into_iter();
        let public_names = public_names
            .map(|name| {
                let shown = name.clone();
                ServerName::try_from(name).map_err(|_| ConfigError::Setting {
                    setting: "public_names",
                    problem: format!("{shown:?} is neither a host name nor an address"),
                })
            })
            .collect::<Result<_, _>>()?;
        let static_tokens = self.static_tokens.unwrap_or_default();
        if static_tokens.iter().any(|token| token.token.len() < SHORTEST_STATIC_TOKEN) {
            let problem = format!("a token of fewer than {SHORTEST_STATIC_TOKEN} characters can be guessed");
            return Err(ConfigError::Setting { setting: "static_tokens", problem });
        }
        let find_requests_per_second =
            self.find_requests_per_second.unwrap_or(DEFAULT_FIND_REQUESTS_PER_SECOND);
        if find_requests_per_second > MOST_FIND_REQUESTS_PER_SECOND {
            let problem = format!(
                "{find_requests_per_second} is more than {MOST_FIND_REQUESTS_PER_SECOND}; 0 sets no limit"
            );
            return Err(ConfigError::Setting { setting: "find_requests_per_second", problem });
        }
        Ok(Config {
            data_dir,
            listen,
            diag_listen,
            store,
            cluster_name,
            public_names,
            static_tokens,
            find_requests_per_second,
        })
    }
}

impl Store {
    fn parse(text: &str) -> Result<Self, ConfigError> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                let problem = "sqlite: needs a path, like sqlite:/var/lib/refit/backend/sqlite.db".into();
                return Err(ConfigError::Setting { setting: "backend", problem });
            }
            return Ok(Self::Sqlite(path.into()));
        }
        if text.starts_with("etcd:") {
            return EtcdAddress::parse(text).map(Self::Etcd).map_err(ConfigError::Store);
        }
        // Only the scheme of an invalid address is shown: the rest may contain a password.
        let scheme = text.split_once(':').map(|(scheme, _)| scheme);
        let scheme = scheme.filter(|scheme| scheme.chars().all(|c| c.is_ascii_alphanumeric()));
        let found = scheme.map_or_else(|| "it".into(), |scheme| format!("{scheme:?}"));
        let problem =
            format!("{found} is not a kind of store; expected sqlite:PATH or etcd://HOST:2379/PREFIX");
        Err(ConfigError::Setting { setting: "backend", problem })
    }
}

fn setting<T, E: std::fmt::Display>(setting: &'static str, value: Result<T, E>) -> Result<T, ConfigError> {
    value.map_err(|error| ConfigError::Setting { setting, problem: error.to_string() })
}

fn address(name: &'static str, text: Option<String>, default: SocketAddr) -> Result<SocketAddr, ConfigError> {
    let Some(text) = text else { return Ok(default) };
    let numeric = text.replacen("localhost:", "127.0.0.1:", 1);
    let parsed = numeric
        .parse()
        .map_err(|_| format!("{text:?} is not ADDRESS:PORT, like 0.0.0.0:3080, [::]:3080 or 127.0.0.1:0"));
    setting(name, parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_and_wrong_keys_are_refused_with_their_place() {
        let unknown = Settings::parse("listen: 127.0.0.1:0\nlisten_addr: x\n").unwrap_err();
        assert!(
            unknown.contains("listen_addr") && unknown.contains("line 2") && unknown.contains("column 1"),
            "{unknown}"
        );
        let wrong = Settings::parse("listen: [1, 2]\n").unwrap_err();
        assert!(wrong.contains("line 1"), "{wrong}");
        let twice = Settings::parse("listen: a\nlisten: b\n").unwrap_err();
        assert!(twice.contains("line 2"), "{twice}");
        for empty in ["", "# nothing\n", "\n  \n"] {
            assert_eq!(Settings::parse(empty).unwrap(), Settings::default());
        }
    }

    #[test]
    fn the_nearer_setting_holds() {
        let of = |listen: &str| Settings { listen: Some(listen.into()), ..Settings::default() };
        let file = Settings { backend: Some("sqlite:/x".into()), ..of("127.0.0.1:1") };
        let merged = of("127.0.0.1:3").over(of("127.0.0.1:2")).over(file);
        assert_eq!(merged.listen.as_deref(), Some("127.0.0.1:3"));
        assert_eq!(merged.backend.as_deref(), Some("sqlite:/x"));
    }

    #[test]
    fn values_are_checked_with_the_name_of_the_setting() {
        let check = |settings: Settings| settings.check(Path::new("/d")).unwrap_err().to_string();
        let listen = check(Settings { listen: Some("3080".into()), ..Settings::default() });
        assert!(listen.starts_with(r#"listen: "3080" is not ADDRESS:PORT"#), "{listen}");
        let backend = check(Settings { backend: Some("postgres://x".into()), ..Settings::default() });
        assert!(backend.contains(r#""postgres" is not a kind of store"#), "{backend}");
        let name = check(Settings { cluster_name: Some("a b".into()), ..Settings::default() });
        assert!(name.starts_with("cluster_name:"), "{name}");
        let often = check(Settings { find_requests_per_second: Some(u32::MAX), ..Settings::default() });
        assert!(often.starts_with("find_requests_per_second: 4294967295 is more than"), "{often}");
        let config = Settings::default().check(Path::new("/d")).unwrap();
        assert_eq!(config.find_requests_per_second, 100);
        assert!(matches!(config.store, Store::Sqlite(path) if path == Path::new("/d/backend/sqlite.db")));
        assert_eq!((config.listen, config.diag_listen), (DEFAULT_LISTEN, DEFAULT_DIAG_LISTEN));
    }
}
