//! `refitctl autoupdate plan`: computes a preview locally from the cluster's or a file's resources. Changes nothing.

use jiff::Timestamp;
use refit_rollout::preview;

use super::fleet::Source;
use super::proposal::{Proposed, moment};
use crate::ctl::Global;
use crate::exit::Failure;
use crate::output;

/// Shows what a rollout would do, without doing anything.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  refitctl autoupdate plan\n  \
    refitctl autoupdate plan --file proposed.yaml --seconds 90")]
pub(crate) struct Plan {
    #[command(flatten)]
    proposed: Proposed,
    #[command(flatten)]
    source: Source,
    /// How many seconds a host is taken to need
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// When the rollout would begin, like 2026-03-02T08:00Z [default: now]
    #[arg(long, value_name = "TIME", value_parser = moment)]
    start: Option<Timestamp>,
}

impl Plan {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let start = self.start.unwrap_or_else(Timestamp::now);
        let proposal = self.proposed.read(global, start).await?;
        let standing = proposal.standing(global, &self.source).await?;
        let fleet = self.source.fleet(global, &proposal.plan.version).await?;
        let seen = preview(&proposal.plan, &fleet, &standing, start, self.seconds);
        output::show(global.format, &seen, || seen.to_text())
    }
}
