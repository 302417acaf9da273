use std::io::IsTerminal;
use std::time::Duration;

use refit_proto::rollouts::v1::GetRolloutRequest;
use refit_proto::rollouts::v1::rollout_service_client::RolloutServiceClient;

use super::rollout::Rollout;
use super::status;
use crate::ctl::Global;
use crate::exit::Failure;
use crate::output::{self, Format};

/// How often the status is asked for: a rollout moves in seconds.
const EVERY: Duration = Duration::from_secs(1);

/// Shows the status again whenever something changes, until interrupted.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  refitctl autoupdate watch\n  refitctl autoupdate watch --until-done && echo everywhere"
)]
pub(crate) struct Watch {
    /// End when every group has succeeded, or fail when one has halted
    #[arg(long)]
    until_done: bool,
}

impl Watch {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let mut client = RolloutServiceClient::new(global.target.connect().await?);
        let mut shown = None;
        loop {
            let rollout = Rollout::from(client.get_rollout(GetRolloutRequest {}).await?.into_inner());
            if shown.as_ref() != Some(&rollout.groups) || std::io::stdout().is_terminal() {
                show(global.format, &rollout)?;
                shown = Some(rollout.groups.clone());
            }
            if self.until_done {
                if let Some(halted) = rollout.groups.iter().find(|group| group.state == "halted") {
                    let why = halted.waiting.as_deref().unwrap_or("halted");
                    return Err(Failure::failed(format!("{} {why}", halted.name)));
                }
                if rollout.groups.iter().all(|group| group.state == "succeeded") {
                    return Ok(());
                }
            }
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                _ = tokio::signal::ctrl_c() => return Ok(()),
            }
        }
    }
}

/// A terminal shows the last status only; a file gets one after the other.
fn show(format: Format, rollout: &Rollout) -> Result<(), Failure> {
    let is_terminal = std::io::stdout().is_terminal();
    match format {
        Format::Text if is_terminal => output::print(&format!("\u{1b}[H\u{1b}[2J{}", status::text(rollout))),
        Format::Text => output::print(&format!("{}\n\n", status::text(rollout))),
        Format::Json => output::print(&serde_json::to_string(rollout).map_err(Failure::failed)?),
        Format::Yaml => output::print(&format!("---\n{}", output::yaml(rollout)?)),
    }
}
