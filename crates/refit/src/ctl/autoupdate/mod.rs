//! `refitctl autoupdate`: what agents run, when they go there, and how far they are.

mod change;
mod fleet;
mod hosts;
mod plan;
mod proposal;
mod rollout;
mod simulate;
mod status;
mod update;
mod watch;

use refit_proto::resources::v1 as wire;
use refit_proto::resources::v1::resource_service_client::ResourceServiceClient;
use refit_proto::rollouts::v1::rollout_service_client::RolloutServiceClient;
use refit_proto::rollouts::v1::{
    GetRolloutRequest, MarkDoneRequest, PauseRequest, ResumeRequest, RunGroupRequest,
};
use refit_types::Kind;
use serde_json::json;
use tonic::Code;

use super::Global;
use crate::exit::Failure;
use crate::output;
use rollout::Rollout;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Change the version, the switch, a schedule or a group
    Update(Box<update::Update>),
    /// Reset to the default schedules, without groups
    #[command(after_help = "Example:\n  refitctl autoupdate reset")]
    Reset,
    /// Show how far the fleet is, and why it is not further
    Status(status::Status),
    /// Show when each group would open, how many hosts it takes, and what would block it
    Plan(plan::Plan),
    /// Run a rollout in a simulation of the fleet
    Simulate(simulate::Simulate),
    /// Show the status, live
    Watch(watch::Watch),
    /// Open a group's window now, and let hosts that failed or timed out start again
    #[command(after_help = "Example:\n  refitctl autoupdate run --group staging-group")]
    Run {
        /// The group
        #[arg(long)]
        group: String,
    },
    /// Declare a group done in which nobody could be upgraded, so that groups that require it go on
    #[command(after_help = "Example:\n  refitctl autoupdate mark-done --group staging-group")]
    MarkDone {
        /// The group
        #[arg(long)]
        group: String,
    },
    /// Tell no host to upgrade; those that have switched finish
    #[command(
        after_help = "Examples:\n  refitctl autoupdate pause\n  refitctl autoupdate pause --group prod-group"
    )]
    Pause {
        /// Only those of this group
        #[arg(long)]
        group: Option<String>,
    },
    /// Resume after a pause
    #[command(after_help = "Example:\n  refitctl autoupdate resume")]
    Resume {
        /// The group that was paused
        #[arg(long)]
        group: Option<String>,
    },
}

impl Command {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        match self {
            Self::Update(update) => update.run(global).await,
            Self::Reset => reset(global).await,
            Self::Status(status) => status.run(global).await,
            Self::Plan(plan) => plan.run(global).await,
            Self::Simulate(simulate) => simulate.run(global).await,
            Self::Watch(watch) => watch.run(global).await,
            Self::Run { group } => run_group(global, group).await,
            Self::MarkDone { group } => mark_done(global, group).await,
            Self::Pause { group } => set_paused(global, group, true).await,
            Self::Resume { group } => set_paused(global, group, false).await,
        }
    }
}

async fn reset(global: &Global) -> Result<(), Failure> {
    let mut client = ResourceServiceClient::new(global.target.connect().await?);
    let request = wire::DeleteResourceRequest {
        kind: Kind::ClusterMaintenanceConfig.to_string(),
        name: change::name_of(Kind::ClusterMaintenanceConfig).into(),
        revision: String::new(),
    };
    match client.delete_resource(request).await {
        Err(status) if status.code() != Code::NotFound => return Err(status.into()),
        _ => {}
    }
    let message = "Automatic updates configuration has been reset to defaults.";
    output::done(global.format, &json!({ "reset": true }), message)
}

async fn run_group(global: &Global, group: String) -> Result<(), Failure> {
    let mut client = RolloutServiceClient::new(global.target.connect().await?);
    client.run_group(RunGroupRequest { group: group.clone() }).await?;
    let rollout = Rollout::from(client.get_rollout(GetRolloutRequest {}).await?.into_inner());
    let waiting =
        rollout.groups.iter().find(|found| found.name == group).and_then(|found| found.waiting.clone());
    let mut message = format!("Executing auto-update for group '{group}' immediately.");
    if let Some(waiting) = &waiting {
        message.push_str(&format!("\nIt does not move yet: {waiting}."));
    }
    output::done(global.format, &json!({ "group": group, "waiting": waiting }), message)
}

async fn mark_done(global: &Global, group: String) -> Result<(), Failure> {
    let mut client = RolloutServiceClient::new(global.target.connect().await?);
    client.mark_done(MarkDoneRequest { group: group.clone() }).await?;
    let message = format!("Group '{group}' is marked done: groups that require it go on.");
    output::done(global.format, &json!({ "group": group, "marked_done": true }), message)
}

async fn set_paused(global: &Global, group: Option<String>, paused: bool) -> Result<(), Failure> {
    let mut client = RolloutServiceClient::new(global.target.connect().await?);
    let name = group.clone().unwrap_or_default();
    match paused {
        true => drop(client.pause(PauseRequest { group: name }).await?),
        false => drop(client.resume(ResumeRequest { group: name }).await?),
    }
    let what = group.as_ref().map_or("The rollout".into(), |group| format!("Group '{group}'"));
    let message = match paused {
        true => format!("{what} is paused: no host is told to upgrade; those that have switched finish."),
        false => format!("{what} goes on."),
    };
    output::done(global.format, &json!({ "group": group, "paused": paused }), message)
}
