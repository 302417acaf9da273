//! `refitctl web`: prints a single-use sign-in address for the dashboard.

use std::time::Duration;

use jiff::Timestamp;
use refit_proto::auth::v1::CreateWebLoginRequest;
use refit_proto::auth::v1::auth_service_client::AuthServiceClient;
use serde::Serialize;

use super::{Global, duration, timestamp};
use crate::exit::Failure;
use crate::output;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Print an address that signs you in, once
    ///
    /// You are who you are here. The address works for five minutes. A browser warns of an authority that it does not
    /// know: `refitctl auth export` prints what it has to trust.
    Login(Login),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  refitctl web login\n  \
    refitctl --identity alice.json --server refit.example.com:3080 web login --ttl 1h")]
pub(crate) struct Login {
    /// How long the session lasts, like 30m or 8h; 24h at most, and no longer than your identity
    #[arg(long, value_name = "TIME", default_value = "8h", value_parser = duration)]
    ttl: Duration,
}

#[derive(Serialize)]
struct Invitation {
    url: String,
    expires: Option<Timestamp>,
    session_expires: Option<Timestamp>,
}

impl Command {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        match self {
            Self::Login(login) => login.run(global).await,
        }
    }
}

impl Login {
    async fn run(self, global: &Global) -> Result<(), Failure> {
        let mut client = AuthServiceClient::new(global.target.connect().await?);
        let request = CreateWebLoginRequest { ttl: self.ttl.try_into().ok() };
        let made = client.create_web_login(request).await?.into_inner();
        let answer = Invitation {
            url: format!("https://{}/web/login/{}", global.target.address()?, made.code),
            expires: timestamp(made.expires),
            session_expires: timestamp(made.session_expires),
        };
        let now = Timestamp::now();
        let told = |at: Option<Timestamp>| at.map(|at| output::moment(at, now)).unwrap_or_default();
        let message = format!(
            "Open this address, which is as good as your identity, until {}; it works once:\n  {}\n\
             You are signed in until {}.",
            told(answer.expires),
            answer.url,
            told(answer.session_expires),
        );
        output::done(global.format, &answer, message)
    }
}
