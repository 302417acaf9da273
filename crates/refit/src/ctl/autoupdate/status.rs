//! `refitctl autoupdate status`: formats the rollout status for people.

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use refit_proto::rollouts::v1::GetRolloutRequest;
use refit_proto::rollouts::v1::rollout_service_client::RolloutServiceClient;

use super::hosts;
use super::rollout::{Group, HostFailure, Rollout};
use crate::ctl::Global;
use crate::exit::Failure;
use crate::output;

/// Shows how far the fleet is, and for each group why it is not further.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  refitctl autoupdate status\n  refitctl autoupdate status --group staging-group\n  \
    refitctl autoupdate status --group staging-group --hosts --outcome failed"
)]
pub(crate) struct Status {
    /// One group, in full
    #[arg(long)]
    group: Option<String>,
    /// List the group's hosts by outcome, with the reason
    #[arg(long, requires = "group")]
    hosts: bool,
    /// Only hosts with this outcome: upgraded, in_flight, failed, timed_out, held, away or unchanged
    #[arg(long, requires = "hosts")]
    outcome: Option<String>,
}

impl Status {
    pub(crate) async fn run(self, global: &Global) -> Result<(), Failure> {
        let mut client = RolloutServiceClient::new(global.target.connect().await?);
        if let (Some(group), true) = (&self.group, self.hosts) {
            return hosts::show(global, &mut client, group, self.outcome.unwrap_or_default()).await;
        }
        let rollout = Rollout::from(client.get_rollout(GetRolloutRequest {}).await?.into_inner());
        let Some(name) = self.group else {
            return output::show(global.format, &rollout, || text(&rollout));
        };
        let Some(group) = rollout.groups.iter().find(|group| group.name == name) else {
            let known: Vec<&str> = rollout.groups.iter().map(|group| group.name.as_str()).collect();
            let known = if known.is_empty() {
                "there is none".into()
            } else {
                format!("there are {}", known.join(", "))
            };
            return Err(Failure::failed(format!("there is no group {name:?}; {known}")));
        };
        output::show(global.format, group, || group_text(group, &rollout))
    }
}

/// The whole status, for people.
pub(super) fn text(rollout: &Rollout) -> String {
    let mut lines = vec![
        format!("Status: {}", switch(rollout)),
        format!("Version: v{}", rollout.version),
        format!("Schedule: {}", rollout.schedule.as_deref().unwrap_or("(none: no version has been chosen)")),
    ];
    if let Some(why) = &rollout.stopped {
        lines.push(format!("Stopped: the server that answered decides nothing: {why}"));
    }
    if let Some(began) = rollout.began_at {
        lines.push(format!("Rolling out since: {}", output::moment(began, rollout.now)));
    }
    if let Some(good) = rollout.instead() {
        lines.push(format!("New hosts get: v{good}, the last version whose rollout ended well"));
    }
    lines.push(String::new());
    match rollout.schedule.as_deref() {
        Some("immediate") => {
            lines.push("Groups: (none: an immediate version goes everywhere at once)".into())
        }
        _ if rollout.groups.is_empty() => lines.push("Groups: (none)".into()),
        _ => {
            lines.push("Groups:".into());
            for group in &rollout.groups {
                lines.push(headline(group, rollout.now));
                lines.extend(details(group, rollout.now).into_iter().map(|detail| format!("    {detail}")));
            }
        }
    }
    if let Some(ungrouped) = rollout.ungrouped.as_ref().filter(|ungrouped| ungrouped.hosts > 0) {
        let hosts = output::counted(ungrouped.hosts.into(), "host");
        lines.push(String::new());
        lines.push(format!("Without a group: {hosts}, {} on v{}", ungrouped.on_version, rollout.version));
        if let (Some(opens), Some(closes)) = (ungrouped.opens_at, ungrouped.closes_at) {
            lines.push(format!("    {}", hours(opens, closes, None, rollout.now)));
        }
    }
    lines.join("\n")
}

fn switch(rollout: &Rollout) -> String {
    match (rollout.enabled, rollout.paused_at) {
        (false, _) => "disabled".into(),
        (true, Some(at)) => format!("paused since {}", output::moment(at, rollout.now)),
        (true, None) => "enabled".into(),
    }
}

fn headline(group: &Group, now: Timestamp) -> String {
    let at = |at: Option<Timestamp>| at.map(output::utc).unwrap_or_default();
    let requires = match group.requires.is_empty() {
        true => String::new(),
        false => format!(" (depends on {})", group.requires.join(", ")),
    };
    let state = match group.state.as_str() {
        // Its window is open and something else blocks it, which is shown below.
        "scheduled" if group.opens_at.is_some_and(|opens| opens <= now) => "scheduled".into(),
        "scheduled" => format!("scheduled for {}", at(group.opens_at)),
        "active" => format!("active since {}", at(group.since)),
        other => format!("{other} at {}{}", at(group.since), marked_done(group)),
    };
    format!("{}: {state}{requires}", group.name)
}

/// Who declared the group done, if anyone did.
fn marked_done(group: &Group) -> String {
    let marked = group.marked_done_at.and(group.marked_done_by.as_deref());
    marked.map(|by| format!(", marked done by {by}")).unwrap_or_default()
}

/// The details below the headline.
fn details(group: &Group, now: Timestamp) -> Vec<String> {
    let mut counts = vec![
        format!("{}/{} upgraded", group.upgraded, group.members),
        format!("{} in flight (at most {})", group.in_flight, group.limit),
        format!("{} failed", group.failed),
        format!("{} timed out", group.timed_out),
    ];
    let further = [
        (group.held, "held"),
        (group.away, "away"),
        (group.newcomers, "newcomers"),
        (group.removed, "removed"),
    ];
    counts.extend(
        further.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")),
    );
    let mut lines = vec![counts.join(", ")];
    if let Some((opens, closes)) = group.window_ahead() {
        let by_hand = if group.by_hand { " (by hand)" } else { "" };
        lines.push(format!("{}{by_hand}", hours(opens, closes, Some(&group.timezone), now)));
    }
    if let Some(waiting) = &group.waiting {
        lines.push(format!("not moving: {waiting}"));
    }
    lines.extend(example(group));
    lines
}

/// A host that the group halted for, and why that one failed.
fn example(group: &Group) -> Vec<String> {
    let Some(HostFailure { hostname, reason, failed_agent, .. }) = &group.failure else { return Vec::new() };
    let agent = failed_agent.as_ref().map(output::failed_agent).unwrap_or_default();
    let agent = agent.into_iter().map(|line| format!("    {line}"));
    [format!("for example {hostname}: {reason}")].into_iter().chain(agent).collect()
}

/// When a window is open, in its own zone and in UTC.
fn hours(opens: Timestamp, closes: Timestamp, zone: Option<&str>, now: Timestamp) -> String {
    let (verb, edge) = if opens <= now { ("open until", closes) } else { ("opens", opens) };
    let local = zone.filter(|zone| *zone != "UTC").and_then(|zone| {
        let zone: TimeZone = TimeZoneDatabase::bundled().get(zone).ok()?;
        Some(edge.to_zoned(zone).strftime("%a %Y-%m-%d %H:%M %Q").to_string())
    });
    match local {
        Some(local) => format!("{verb} {local}, {}", output::moment(edge, now)),
        None => format!("{verb} {} {}", edge.strftime("%a"), output::moment(edge, now)),
    }
}

fn group_text(group: &Group, rollout: &Rollout) -> String {
    let share = |count: u32| match (count, group.members) {
        (0, _) | (_, 0) => count.to_string(),
        (count, members) => {
            format!("{count} ({}%)", (u64::from(count) * 100 + u64::from(members) / 2) / u64::from(members))
        }
    };
    let requires = if group.requires.is_empty() { "(none)".into() } else { group.requires.join(", ") };
    let mut lines = vec![
        format!("Status: {}{}", group.state, marked_done(group)),
        format!("Date: {}", group.since.map(output::utc).unwrap_or_default()),
        format!("Requires: {requires}"),
        format!("Version: v{}", rollout.version),
    ];
    if let Some((opens, closes)) = group.window_ahead() {
        lines.push(format!("Window: {}", hours(opens, closes, Some(&group.timezone), rollout.now)));
    }
    if let Some(waiting) = &group.waiting {
        lines.push(format!("Not moving: {waiting}"));
    }
    lines.extend(example(group).into_iter().map(|line| format!("    {line}")));
    lines.push(String::new());
    lines.push(format!("Upgraded: {}", share(group.upgraded)));
    lines.push(format!("Unchanged: {}", share(group.unchanged())));
    lines.push(format!("Failed: {}", share(group.failed)));
    lines.push(format!("Timed-out: {}", share(group.timed_out)));
    lines.push(format!("In flight: {} (at most {})", share(group.in_flight), group.limit));
    for (count, what) in [
        (group.held, "Held"),
        (group.away, "Away"),
        (group.newcomers, "Newcomers"),
        (group.removed, "Removed"),
    ] {
        if count > 0 {
            lines.push(format!("{what}: {count}"));
        }
    }
    lines.join("\n")
}
