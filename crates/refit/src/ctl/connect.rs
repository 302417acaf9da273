//! Finds the control plane's address and the caller's identity, and connects. Every `refitctl` command goes through it.

use std::path::PathBuf;

use refit_identity::{Identity, SERVER_NAME, client_config};
use refit_proto::{DialError, dial};
use refit_types::DataDir;
use rustls::pki_types::ServerName;
use tonic::transport::Channel;

use crate::data_dir::default_data_dir;
use crate::exit::Failure;

const DEFAULT_PORT: u16 = 3080;

/// Which cluster to speak to, and as whom.
#[derive(Debug, clap::Args)]
pub(crate) struct Target {
    /// The data directory of the control plane on this host
    #[arg(long, global = true, value_name = "DIR", env = "REFIT_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// An identity that `refitctl auth sign` wrote [default: the administrator's on this host]
    #[arg(long, global = true, value_name = "FILE", env = "REFIT_IDENTITY")]
    identity: Option<PathBuf>,
    /// The control plane to speak to [default: the one on this host]
    #[arg(long, global = true, value_name = "HOST:PORT", env = "REFIT_SERVER")]
    server: Option<String>,
}

impl Target {
    /// The control plane of that data directory, as its administrator.
    pub(crate) fn of(data_dir: PathBuf) -> Self {
        Self { data_dir: Some(data_dir), identity: None, server: None }
    }

    fn data_dir(&self) -> DataDir {
        DataDir::new(self.data_dir.clone().unwrap_or_else(default_data_dir))
    }

    /// The address to speak to, `HOST:PORT`.
    pub(crate) fn address(&self) -> Result<String, Failure> {
        if let Some(server) = &self.server {
            return normalized(server);
        }
        let path = self.data_dir().endpoint();
        match std::fs::read_to_string(&path) {
            Ok(text) => normalized(text.trim()),
            Err(error) => Err(Failure::failed(format!(
                "there is no control plane on this host ({}: {error}); start one with `refit server`, name its \
                 data directory with --data-dir, or another host with --server and --identity",
                path.display()
            ))),
        }
    }

    /// The caller's identity, as named or found.
    pub(crate) fn identity(&self) -> Result<Identity, Failure> {
        if let Some(path) = &self.identity {
            return Identity::read(path).map_err(Failure::failed);
        }
        Identity::read(&self.data_dir().admin_identity()).map_err(|error| {
            Failure::failed(format!(
                "{error}; name an identity that `refitctl auth sign` wrote with --identity"
            ))
        })
    }

    /// Connects with the identity that was named or found.
    pub(crate) async fn connect(&self) -> Result<Channel, Failure> {
        let address = self.address()?;
        let tls = client_config(&self.identity()?).map_err(Failure::failed)?;
        let name = ServerName::try_from(SERVER_NAME).map_err(Failure::failed)?;
        dial(&address, name, tls).await.map_err(|error| {
            Failure::failed(match error {
                DialError::Untrusted { .. } => format!("the control plane is not to be trusted: {error}"),
                _ => {
                    format!("the control plane cannot be reached: {error}; is `refit server` running there?")
                }
            })
        })
    }
}

/// Normalizes an address with a scheme or without a port to `HOST:PORT`.
fn normalized(server: &str) -> Result<String, Failure> {
    let bare = server.strip_prefix("https://").unwrap_or(server).trim_end_matches('/');
    let refused = || Failure::usage(format!("--server: {server:?} is not HOST:PORT"));
    if bare.is_empty() || bare.contains(['/', ' ', '@']) {
        return Err(refused());
    }
    let after_host = bare.rfind(']').map_or(bare, |end| &bare[end..]);
    match after_host.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => Ok(bare.to_owned()),
        Some(_) => Err(refused()),
        None => Ok(format!("{bare}:{DEFAULT_PORT}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_as_people_write_them() {
        let good = [
            ("refit.example.com", "refit.example.com:3080"),
            ("https://refit.example.com:443/", "refit.example.com:443"),
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("[::1]:5", "[::1]:5"),
            ("[::1]", "[::1]:3080"),
        ];
        for (written, meant) in good {
            assert_eq!(normalized(written).ok().as_deref(), Some(meant));
        }
        for bad in ["", "a:b", "host:99999", "a/b", "user@host", "a b"] {
            assert!(normalized(bad).is_err(), "{bad}");
        }
    }
}
