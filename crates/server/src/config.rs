//! The configuration of a server: the YAML file, its defaults and its validation. Reads the file, touches nothing else.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use refit_authority::StaticToken;
use refit_backend::EtcdAddress;
use refit_identity::ClusterName;
use refit_types::{ConfigError, DataDir, ValidationErrors};
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

impl Settings {
    /// Reads a YAML file; keys that are not known are refused, with their line and column.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.into(), source })?;
        Self::parse(&text).map_err(|error| ConfigError::Invalid { path: path.into(), error })
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

    /// Checks every value, and fills in what is not set. Every error is reported, by the name of its setting.
    pub fn check(self, default_data_dir: &Path) -> Result<Config, ConfigError> {
        let mut errors = ValidationErrors::default();
        let data_dir = DataDir::new(self.data_dir.unwrap_or_else(|| default_data_dir.to_owned()));
        let listen = address(self.listen, DEFAULT_LISTEN);
        let listen = errors.take("listen", listen).unwrap_or(DEFAULT_LISTEN);
        let diag_listen = address(self.diag_listen, DEFAULT_DIAG_LISTEN);
        let diag_listen = errors.take("diag_listen", diag_listen).unwrap_or(DEFAULT_DIAG_LISTEN);
        let store = self.backend.and_then(|text| errors.take("backend", Store::parse(&text)));
        let cluster_name = self.cluster_name.and_then(|name| errors.take("cluster_name", name.parse()));
        let names = self.public_names.unwrap_or_default().into_iter();
        let public_names = names.filter_map(|name| errors.take("public_names", server_name(name))).collect();
        let static_tokens = self.static_tokens.unwrap_or_default();
        if static_tokens.iter().any(|token| token.token.len() < SHORTEST_STATIC_TOKEN) {
            let problem = format!("a token of fewer than {SHORTEST_STATIC_TOKEN} characters can be guessed");
            errors.add("static_tokens", problem);
        }
        let find_requests_per_second =
            self.find_requests_per_second.unwrap_or(DEFAULT_FIND_REQUESTS_PER_SECOND);
        if find_requests_per_second > MOST_FIND_REQUESTS_PER_SECOND {
            let problem = format!(
                "{find_requests_per_second} is more than {MOST_FIND_REQUESTS_PER_SECOND}; 0 sets no limit"
            );
            errors.add("find_requests_per_second", problem);
        }
        let config = Config {
            store: store.unwrap_or_else(|| Store::Sqlite(data_dir.store())),
            data_dir,
            listen,
            diag_listen,
            cluster_name,
            public_names,
            static_tokens,
            find_requests_per_second,
        };
        errors.or(Some(config)).map_err(ConfigError::Settings)
    }
}

impl Store {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() {
                return Err("sqlite: needs a path, like sqlite:/var/lib/refit/backend/sqlite.db".into());
            }
            return Ok(Self::Sqlite(path.into()));
        }
        if text.starts_with("etcd:") {
            return EtcdAddress::parse(text).map(Self::Etcd).map_err(|error| error.to_string());
        }
        // Only the scheme of an invalid address is shown: the rest may contain a password.
        let scheme = text.split_once(':').map(|(scheme, _)| scheme);
        let scheme = scheme.filter(|scheme| scheme.chars().all(|c| c.is_ascii_alphanumeric()));
        let found = scheme.map_or_else(|| "it".into(), |scheme| format!("{scheme:?}"));
        Err(format!("{found} is not a kind of store; expected sqlite:PATH or etcd://HOST:2379/PREFIX"))
    }
}

fn server_name(name: String) -> Result<ServerName<'static>, String> {
    let shown = name.clone();
    ServerName::try_from(name).map_err(|_| format!("{shown:?} is neither a host name nor an address"))
}

fn address(text: Option<String>, default: SocketAddr) -> Result<SocketAddr, String> {
    let Some(text) = text else { return Ok(default) };
    let numeric = text.replacen("localhost:", "127.0.0.1:", 1);
    numeric
        .parse()
        .map_err(|_| format!("{text:?} is not ADDRESS:PORT, like 0.0.0.0:3080, [::]:3080 or 127.0.0.1:0"))
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
        assert!(listen.contains(r#"listen: "3080" is not ADDRESS:PORT"#), "{listen}");
        let backend = check(Settings { backend: Some("postgres://x".into()), ..Settings::default() });
        assert!(backend.contains(r#""postgres" is not a kind of store"#), "{backend}");
        let name = check(Settings { cluster_name: Some("a b".into()), ..Settings::default() });
        assert!(name.contains("cluster_name: "), "{name}");
        let often = check(Settings { find_requests_per_second: Some(u32::MAX), ..Settings::default() });
        assert!(often.contains("find_requests_per_second: 4294967295 is more than"), "{often}");
        let listen = Some("3080".into());
        let both = check(Settings { listen, cluster_name: Some("a b".into()), ..Settings::default() });
        assert!(
            both.contains("listen: ") && both.contains("cluster_name: "),
            "every error is reported: {both}"
        );
        let config = Settings::default().check(Path::new("/d")).unwrap();
        assert_eq!(config.find_requests_per_second, 100);
        assert!(matches!(config.store, Store::Sqlite(path) if path == Path::new("/d/backend/sqlite.db")));
        assert_eq!((config.listen, config.diag_listen), (DEFAULT_LISTEN, DEFAULT_DIAG_LISTEN));
    }
}
