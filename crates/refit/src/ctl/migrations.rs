//! `refitctl migrations`: shows the history of store migrations and applies outstanding ones.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use refit_proto::migrations::v1::migration_service_client::MigrationServiceClient;
use refit_proto::migrations::v1::{self as wire, ApplyMigrationsRequest, ListMigrationsRequest};
use serde::Serialize;
use tonic::transport::Channel;

use super::Global;
use crate::exit::Failure;
use crate::output;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show the migrations that were run, and their results
    #[command(after_help = "Example:\n  refitctl migrations ls --format json")]
    Ls,
    /// Apply outstanding migrations, after the cause of a failure was fixed
    #[command(after_help = "Example:\n  refitctl migrations apply")]
    Apply,
}

#[derive(Serialize)]
struct Migration {
    number: i64,
    name: String,
    applied_at: Option<Timestamp>,
    /// Seconds with an `s`, as protobuf writes durations in JSON.
    execution_time: String,
    outcome: &'static str,
    success: bool,
    message: String,
}

impl Command {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let mut client = MigrationServiceClient::new(global.target.connect().await?);
        match self {
            Self::Ls => {
                let all = list(&mut client).await?;
                output::show(global.format, &all, || text(&all))
            }
            Self::Apply => {
                let before = applied(&list(&mut client).await?);
                let spinner = spinner("applying migrations");
                let outcome = client.apply_migrations(ApplyMigrationsRequest {}).await;
                spinner.finish_and_clear();
                outcome?;
                let mut now = list(&mut client).await?;
                now.retain(|migration| migration.success && !before.contains(&migration.number));
                output::show(global.format, &now, || match now.is_empty() {
                    true => "Nothing was due.".into(),
                    false => text(&now),
                })
            }
        }
    }
}

/// The history, page by page.
async fn list(client: &mut MigrationServiceClient<Channel>) -> Result<Vec<Migration>, Failure> {
    let mut all = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListMigrationsRequest { page_size: 0, page_token };
        let page = client.list_migrations(request).await?.into_inner();
        all.extend(page.migrations.into_iter().map(Migration::from));
        if page.next_page_token.is_empty() {
            return Ok(all);
        }
        page_token = page.next_page_token;
    }
}

fn applied(migrations: &[Migration]) -> Vec<i64> {
    migrations.iter().filter(|migration| migration.success).map(|migration| migration.number).collect()
}

fn text(migrations: &[Migration]) -> String {
    if migrations.is_empty() {
        return "No migration has been run.".into();
    }
    let rows = migrations.iter().map(|migration| {
        [
            format!("{:04}", migration.number),
            migration.name.clone(),
            migration.applied_at.map(output::utc).unwrap_or_default(),
            migration.execution_time.clone(),
            migration.outcome.into(),
            migration.message.clone(),
        ]
    });
    output::table(["NUMBER", "NAME", "APPLIED AT", "TOOK", "OUTCOME", "MESSAGE"], rows)
}

/// Shown on a terminal only.
fn spinner(what: &'static str) -> ProgressBar {
    let spinner = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        spinner.set_style(style);
    }
    spinner.set_message(what);
    spinner.enable_steady_tick(Duration::from_millis(120));
    spinner
}

impl From<wire::Migration> for Migration {
    fn from(migration: wire::Migration) -> Self {
        let took = migration.execution_time.and_then(|took| Duration::try_from(took).ok());
        Self {
            number: migration.number,
            name: migration.metadata.unwrap_or_default().name,
            applied_at: super::timestamp(migration.applied_at),
            execution_time: format!("{:.6}s", took.unwrap_or_default().as_secs_f64()),
            outcome: if migration.success { "success" } else { "failure" },
            success: migration.success,
            message: migration.message,
        }
    }
}
