//! `refitctl autoupdate simulate`: runs the rollout engine locally over simulated hosts. Changes nothing.

use std::path::PathBuf;

use jiff::Timestamp;
use refit_rollout::{Behaviour, MAX_DAYS, Share, Simulation};

use super::fleet::Source;
use super::proposal::{Proposed, moment};
use crate::ctl::Global;
use crate::exit::Failure;
use crate::output;

/// Runs the real rollout engine over hosts that are made up.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  refitctl autoupdate simulate --fail 2% --svg rollout.svg\n  \
    refitctl autoupdate simulate --file proposed.yaml --fleet fleet.yaml --days 7\n\n\
    A fleet file says which hosts there are:\n  \
    hosts:\n  - count: 1000\n    labels: {environment: staging}\n    version: 15.1.0")]
pub(crate) struct Simulate {
    #[command(flatten)]
    proposed: Proposed,
    #[command(flatten)]
    source: Source,
    /// The share of hosts whose updater rolls the update back
    #[arg(long, value_name = "SHARE", default_value = "0%")]
    fail: Share,
    /// The share of hosts that start an update and never finish
    #[arg(long, value_name = "SHARE", default_value = "0%")]
    hang: Share,
    /// The share of hosts that disconnect for good
    #[arg(long, value_name = "SHARE", default_value = "0%")]
    die: Share,
    /// How many seconds an upgrade takes: N, or from N to M
    #[arg(long, value_name = "N-M", default_value = "20-60", value_parser = range)]
    seconds: (u32, u32),
    /// The same seed makes the same run
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Stop after so many days
    #[arg(long, value_name = "N", default_value_t = 14,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_DAYS)))]
    days: u32,
    /// Draw the timeline into this file
    #[arg(long, value_name = "OUT")]
    svg: Option<PathBuf>,
    /// When the rollout begins, like 2026-03-02T08:00Z [default: now]
    #[arg(long, value_name = "TIME", value_parser = moment)]
    start: Option<Timestamp>,
}

impl Simulate {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let Self { fail, hang, die, seconds, seed, days, .. } = self;
        let behaviour = Behaviour { fail, hang, die, seconds, seed };
        if let Some(error) = behaviour.validation_error() {
            return Err(Failure::usage(error));
        }
        let start = self.start.unwrap_or_else(Timestamp::now);
        let plan = self.proposed.read(global, start).await?.plan;
        let fleet = self.source.fleet(global, &plan.version).await?;
        let timeline = Simulation { plan, start, fleet, behaviour, days }.run().map_err(Failure::failed)?;
        if let Some(path) = &self.svg {
            std::fs::write(path, timeline.to_svg())
                .map_err(|error| Failure::failed(format!("{} cannot be written: {error}", path.display())))?;
        }
        output::show(global.format, &timeline, || match &self.svg {
            Some(path) => format!("{}\n\nDrawn in {}.", timeline.to_text(), path.display()),
            None => timeline.to_text(),
        })
    }
}

/// `20-60`, or `30` for always the same.
fn range(text: &str) -> Result<(u32, u32), String> {
    let expected = || format!("{text:?} is not a range of seconds; expected something like 20-60 or 30");
    let (fewest, most) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.trim().parse::<u32>().map_err(|_| expected());
    Ok((number(fewest)?, number(most)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_one_number_or_two() {
        assert_eq!((range("30"), range("20-60"), range("1 - 2")), (Ok((30, 30)), Ok((20, 60)), Ok((1, 2))));
        for bad in ["", "-", "5-", "a-b", "1-2-3", "-4"] {
            assert!(range(bad).is_err(), "{bad:?}");
        }
    }
}
