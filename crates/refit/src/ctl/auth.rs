//! `refitctl auth`: signs identities for people, exports the authorities, and groups the rotation commands.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use refit_identity::{CaPin, Certificate, Identity, PrivateKey, Role, UserName};
use refit_proto::auth::v1::SignUserRequest;
use refit_proto::auth::v1::auth_service_client::AuthServiceClient;
use serde::Serialize;

use super::{Global, duration};
use crate::exit::Failure;
use crate::invocation::{Invocation, quoted};
use crate::output;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Make an identity for a person
    Sign(Sign),
    /// Print the authorities that your identity trusts, for browsers and other programs
    ///
    /// They are certificates in PEM, and no secret; during a rotation there are two. A browser that is told to trust
    /// them opens the dashboard without a warning, by each name in `public_names`.
    Export(Export),
    /// Replace the cluster's authorities
    Rotate(super::rotate::Rotate),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  refitctl auth export > refit-ca.pem\n  \
    curl --cacert refit-ca.pem https://refit.example.com:3080/web/")]
pub(crate) struct Export {}

/// An authority, for programs.
#[derive(Serialize)]
struct Exported {
    pin: String,
    expires: Timestamp,
    pem: String,
}

impl Export {
    fn run(self, global: &Global) -> Result<(), Failure> {
        let identity = global.target.identity()?;
        let exported = |authority: &Certificate| Exported {
            pin: CaPin::of(authority).to_string(),
            expires: authority.not_after(),
            pem: authority.to_pem(),
        };
        let all: Vec<Exported> = identity.authorities().iter().map(exported).collect();
        output::show(global.format, &all, || all.iter().map(|authority| authority.pem.as_str()).collect())
    }
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  refitctl auth sign --user alice --roles viewer,rollout-editor --ttl 8h --out alice.json"
)]
pub(crate) struct Sign {
    /// Who it is for
    #[arg(long, value_name = "NAME", value_parser = UserName::from_str)]
    user: UserName,
    /// What they may do: admin, rollout-editor, version-editor, viewer
    #[arg(long, value_name = "ROLE,…", value_delimiter = ',', required = true, value_parser = Role::from_str)]
    roles: Vec<Role>,
    /// How long it is good for, like 30m, 8h or 7d; 90d at most
    #[arg(long, value_name = "TIME", default_value = "8h", value_parser = duration)]
    ttl: Duration,
    /// The file to write, which nobody else may read
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    overwrite: bool,
}

#[derive(Serialize)]
struct Signed {
    user: String,
    roles: Vec<String>,
    expires: Timestamp,
    file: PathBuf,
}

impl Command {
    pub(crate) async fn run(self, global: &Global, invocation: &Invocation) -> Result<(), Failure> {
        match self {
            Self::Sign(sign) => sign.run(global, invocation).await,
            Self::Export(export) => export.run(global),
            Self::Rotate(rotate) => rotate.run(global).await,
        }
    }
}

impl Sign {
    async fn run(self, global: &Global, invocation: &Invocation) -> Result<(), Failure> {
        if !self.overwrite && self.out.exists() {
            let out = self.out.display();
            return Err(Failure::failed(format!(
                "{out} exists already; name another file, or give --overwrite"
            )));
        }
        let mut client = AuthServiceClient::new(global.target.connect().await?);
        let key = PrivateKey::generate().map_err(Failure::failed)?;
        let request = SignUserRequest {
            user: self.user.to_string(),
            roles: self.roles.iter().map(ToString::to_string).collect(),
            ttl: self.ttl.try_into().ok(),
            certificate_request: key.signing_request().map_err(Failure::failed)?,
        };
        let signed = client.sign_user(request).await?.into_inner();
        let certificate = Certificate::from_pem(&signed.tls_cert).map_err(Failure::failed)?;
        let authorities = signed.tls_ca_certs.iter().map(|pem| Certificate::from_pem(pem));
        let authorities = authorities.collect::<Result<Vec<_>, _>>().map_err(Failure::failed)?;
        let identity =
            Identity::new(self.user.as_str(), key, certificate, authorities).map_err(Failure::failed)?;
        identity.write(&self.out).map_err(Failure::failed)?;
        let answer = Signed {
            user: self.user.to_string(),
            roles: self.roles.iter().map(ToString::to_string).collect(),
            expires: identity.expires(),
            file: self.out.clone(),
        };
        let message = format!(
            "Wrote the identity of {} ({}) to {}.\nIt is good until {}. Try it with:\n  {} --identity {} --server {} status",
            self.user,
            answer.roles.join(", "),
            self.out.display(),
            output::moment(answer.expires, Timestamp::now()),
            invocation.refitctl(),
            quoted(&self.out),
            global.target.address()?,
        );
        output::done(global.format, &answer, message)
    }
}
