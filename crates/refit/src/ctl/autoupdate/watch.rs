//! `refitctl autoupdate watch`: polls the rollout status and redraws it when it changes.

use std::io::IsTerminal;
use std::time::Duration;

use refit_proto::rollouts::v1::GetRolloutRequest;
use refit_proto::rollouts::v1::rollout_service_client::RolloutServiceClient;

use super::rollout::{Group, Rollout};
use super::status;
use crate::ctl::Global;
use crate::exit::Failure;
use crate::output::{self, Format};

/// The polling interval: a rollout moves in seconds.
const EVERY: Duration = Duration::from_secs(1);

/// Shows the status again whenever something changes, until interrupted.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  refitctl autoupdate watch\n  refitctl autoupdate watch --until-done && echo everywhere"
)]
pub(crate) struct Watch {
    /// End when every group has succeeded, or, without groups, when every host runs the version; fail when a group has
    /// halted, when nobody in a group can be upgraded and no other group moves, or when the server decides nothing
    #[arg(long)]
    until_done: bool,
}

impl Watch {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        tokio::select! {
            interrupted = tokio::signal::ctrl_c() => interrupted.map_err(Failure::failed),
            followed = self.follow(global) => followed,
        }
    }

    async fn follow(&self, global: &Global) -> Result<(), Failure> {
        let mut client = RolloutServiceClient::new(global.target.connect().await?);
        let mut shown: Option<Rollout> = None;
        loop {
            let rollout = Rollout::from(client.get_rollout(GetRolloutRequest {}).await?.into_inner());
            let is_new =
                shown.as_ref().is_none_or(|shown| Rollout { now: shown.now, ..rollout.clone() } != *shown);
            if is_new || std::io::stdout().is_terminal() {
                show(global.format, &rollout, shown.is_none())?;
                shown = Some(rollout.clone());
            }
            if let Some(end) = end(&rollout).filter(|_| self.until_done) {
                return end;
            }
            tokio::time::sleep(EVERY).await;
        }
    }
}

/// How the rollout has ended, if it has.
fn end(rollout: &Rollout) -> Option<Result<(), Failure>> {
    if let Some(why) = &rollout.stopped {
        return Some(Err(Failure::failed(format!("the server that answered decides nothing: {why}"))));
    }
    if rollout.schedule.is_none() {
        return Some(Err(Failure::failed("no version has been chosen: there is nothing to wait for")));
    }
    if let Some(halted) = rollout.groups.iter().find(|group| group.state == "halted") {
        let why = halted.waiting.as_deref().unwrap_or("halted");
        return Some(Err(Failure::failed(format!("{} {why}", halted.name))));
    }
    if let Some(stuck) = stuck_group(&rollout.groups) {
        let why = stuck.waiting.as_deref().unwrap_or("blocked");
        return Some(Err(Failure::failed(format!(
            "{} {why}; `refitctl autoupdate mark-done --group {}` goes on without it",
            stuck.name, stuck.name
        ))));
    }
    let is_done = match (rollout.groups.as_slice(), &rollout.ungrouped) {
        // A server that has just started has not loaded its fleet, or an epoch begins.
        ([], None) => false,
        ([], Some(everyone)) => everyone.hosts > 0 && everyone.on_version == everyone.hosts,
        (groups, _) => groups.iter().all(|group| group.state == "succeeded"),
    };
    is_done.then_some(Ok(()))
}

/// The first group in which nobody can be upgraded, if no other group moves or will by itself.
fn stuck_group(groups: &[Group]) -> Option<&Group> {
    let is_over = |group: &Group| group.state == "succeeded" || group.is_stuck || group.waits_for_groups;
    let nothing_moves = groups.iter().all(|group| is_over(group) && group.in_flight == 0);
    groups.iter().find(|group| group.is_stuck && group.state != "succeeded").filter(|_| nothing_moves)
}

/// On a terminal the status is redrawn; in a file each one is appended.
fn show(format: Format, rollout: &Rollout, is_first: bool) -> Result<(), Failure> {
    let is_terminal = std::io::stdout().is_terminal();
    let before = match (is_terminal, is_first) {
        (true, _) => "\u{1b}[H\u{1b}[2J",
        (false, true) => "",
        (false, false) => "\n",
    };
    match format {
        Format::Text => output::print(&format!("{before}{}", status::text(rollout))),
        Format::Json => output::print(&serde_json::to_string(rollout).map_err(Failure::failed)?),
        Format::Yaml => output::print(&format!("---\n{}", output::yaml(rollout)?)),
    }
}

#[cfg(test)]
mod tests {
    use refit_proto::rollouts::v1 as wire;
    use refit_proto::rollouts::v1::blocked_by::{NoHosts, NobodyUpgraded, Reason, Requires, Window};

    use super::*;

    #[test]
    fn only_states_that_are_known_end_the_watch() {
        let end_of = |states: &[(i32, &str)]| {
            let group = |(state_code, state): &(i32, &str)| wire::Group {
                state_code: *state_code,
                state: (*state).into(),
                ..Default::default()
            };
            let groups = states.iter().map(group).collect();
            let schedule_code = wire::Schedule::Regular.into();
            end(&Rollout::from(wire::Rollout { groups, schedule_code, ..Default::default() }))
        };
        let succeeded = wire::GroupState::Succeeded.into();
        assert!(matches!(end_of(&[(succeeded, ""), (0, "succeeded")]), Some(Ok(()))));
        assert!(matches!(end_of(&[(succeeded, ""), (wire::GroupState::Halted.into(), "")]), Some(Err(_))));
        let blocked = |reason: Reason| wire::Group {
            state_code: wire::GroupState::Scheduled.into(),
            blocked_by: Some(wire::BlockedBy { reason: Some(reason) }),
            ..Default::default()
        };
        let end_with = |groups: Vec<wire::Group>| {
            let schedule_code = wire::Schedule::Regular.into();
            end(&Rollout::from(wire::Rollout { groups, schedule_code, ..Default::default() }))
        };
        let stuck = || blocked(Reason::NobodyUpgraded(NobodyUpgraded { held: 3, ..Default::default() }));
        let waits = || blocked(Reason::Requires(Requires { groups: vec!["canary".into()] }));
        assert!(matches!(end_with(vec![stuck(), waits()]), Some(Err(_))));
        assert!(matches!(end_with(vec![blocked(Reason::NoHosts(NoHosts {}))]), Some(Err(_))));
        let moving = wire::Group { state_code: wire::GroupState::Active.into(), ..Default::default() };
        assert!(end_with(vec![stuck(), moving]).is_none(), "another group moves");
        let opens = blocked(Reason::Window(Window { opens: None }));
        assert!(end_with(vec![stuck(), opens]).is_none(), "another group will move");
        for unknown in [(77, "resting"), (77, ""), (0, "resting")] {
            assert!(end_of(&[(succeeded, ""), unknown]).is_none(), "{unknown:?}");
        }
    }

    #[test]
    fn nothing_to_show_is_no_success() {
        let end_of = |rollout: wire::Rollout| end(&Rollout::from(rollout));
        for schedule in [wire::Schedule::Regular, wire::Schedule::Critical, wire::Schedule::Immediate] {
            let chosen = || wire::Rollout { schedule_code: schedule.into(), ..Default::default() };
            assert!(end_of(chosen()).is_none(), "{schedule:?}: the fleet is not loaded");
            let everyone = |hosts: u32, on_version: u32| {
                let ungrouped = Some(wire::Ungrouped { hosts, on_version, ..Default::default() });
                end_of(wire::Rollout { ungrouped, ..chosen() })
            };
            assert!(everyone(0, 0).is_none(), "{schedule:?}: there is no host");
            assert!(everyone(2, 1).is_none(), "{schedule:?}: one is behind");
            assert!(matches!(everyone(2, 2), Some(Ok(()))), "{schedule:?}");
            let told = "the rollout needs feature level 3";
            let stopped = end_of(wire::Rollout { stopped: told.into(), ..chosen() });
            let Some(Err(failure)) = stopped else { panic!("{schedule:?}: {stopped:?}") };
            assert!(failure.to_string().contains(told), "{failure}");
        }
        let unreadable = end_of(wire::Rollout { stopped: "it cannot be read".into(), ..Default::default() });
        assert!(matches!(unreadable, Some(Err(failure)) if failure.to_string().contains("cannot be read")));
    }
}
