//! What the running or a proposed rollout will do, by the same preview as `refitctl autoupdate plan`.

use std::collections::HashMap;
use std::fmt::Write;
use std::ops::ControlFlow;

use jiff::Timestamp;
use refit_convert::standing;
use refit_rollout::{Cohort, GroupPhase, HostFacts, Plan, Preview, Standing, fingerprint, preview};
use refit_types::{HostRecord, RolloutRecord, Schedule, Version};

use super::format::{Moment, Prose, in_words};
use crate::fleet::Fleet;
use crate::rollout::Rollouts;

/// The assumed duration of an update, the same as in `refitctl autoupdate plan`.
const SECONDS_EACH: u32 = 60;

/// A rollout to forecast.
pub(super) struct Proposal {
    pub(super) plan: Plan,
    standing: Standing,
}

impl Proposal {
    /// A version with the stored configuration: what the running rollout has done counts if it is the same.
    pub(super) fn of(version: Version, schedule: Schedule, rollouts: &Rollouts, now: Timestamp) -> Self {
        let (config, running) = rollouts.settings();
        let fingerprint = fingerprint(&version, schedule, &config);
        let standing = standing(&rollouts.status());
        let is_running = running.is_some_and(|running| running.fingerprint == fingerprint);
        let record = RolloutRecord::begun(1, fingerprint, version, schedule, now);
        Self {
            plan: Plan::new(&record, Default::default(), &config),
            standing: if is_running { standing } else { standing.for_new_epoch() },
        }
    }

    /// The preview with those hosts.
    pub(super) fn preview(&self, cohorts: &[Cohort], now: Timestamp) -> Preview {
        preview(&self.plan, cohorts, &self.standing, now, SECONDS_EACH)
    }
}

/// The hosts as cohorts: as many as the plan's groups and expressions distinguish, however many hosts there are.
pub(super) fn cohorts(plan: &Plan, fleet: &Fleet, rollouts: &Rollouts) -> Vec<Cohort> {
    let (mut known, mut cohorts) = (HashMap::<String, usize>::new(), Vec::<Cohort>::new());
    let mut key = String::new();
    fleet.walk(None, |some| {
        let statuses = rollouts.statuses();
        for host_record in some {
            let live = statuses.is_connected(host_record) && host_record.report.is_some();
            let held = is_held(plan, host_record);
            describe(&mut key, plan, host_record, held, live);
            match known.get(&key).and_then(|at| cohorts.get_mut(*at)) {
                Some(cohort) => cohort.count += 1,
                None => {
                    known.insert(key.clone(), cohorts.len());
                    cohorts.extend(cohort(host_record, held, live));
                }
            }
        }
        ControlFlow::Continue(())
    });
    cohorts
}

fn is_held(plan: &Plan, host_record: &HostRecord) -> bool {
    HostFacts::held_because(plan, host_record).is_some()
}

/// Appends everything about a host that matters to the plan.
fn describe(key: &mut String, plan: &Plan, host_record: &HostRecord, held: bool, live: bool) {
    key.clear();
    let report = host_record.report.as_ref();
    let on_version = report.is_some_and(|report| report.version == plan.version);
    let _ = write!(key, "{held} {live} {on_version}");
    let Some(report) = report else { return };
    for group in &plan.groups {
        let asked = [
            (&group.agents.node_labels_expression, &report.node_labels),
            (&group.agents.instance_labels_expression, &report.instance_labels),
        ];
        let mut takes = true;
        for (expression, labels) in asked {
            match expression.as_ref().map(|expression| expression.evaluate(labels)) {
                None | Some(Ok(true)) => key.push('y'),
                Some(Ok(false)) => {
                    takes = false;
                    key.push('n');
                }
                Some(Err(unanswered)) => {
                    takes = false;
                    let _ = write!(key, "?{} ", unanswered.label());
                }
            }
        }
        if takes {
            return;
        }
    }
}

fn cohort(host_record: &HostRecord, held: bool, live: bool) -> Option<Cohort> {
    let report = host_record.report.as_ref();
    let none: Version = "0.0.0".parse().ok()?;
    Some(Cohort {
        count: 1,
        example: host_record.hostname.to_string(),
        node_labels: report.map(|report| report.node_labels.clone()).unwrap_or_default(),
        instance_labels: report.map(|report| report.instance_labels.clone()).unwrap_or_default(),
        version: report.map_or(none, |report| report.version.clone()),
        held,
        live,
    })
}

/// The forecast as a page shows it.
pub(super) struct Forecast {
    pub(super) blocked: Vec<String>,
    pub(super) groups: Vec<Coming>,
    pub(super) notes: Vec<String>,
    pub(super) ends: Prose,
}

pub(super) struct Coming {
    pub(super) name: String,
    pub(super) opens: Option<Moment>,
    pub(super) local: String,
    pub(super) done: Option<Moment>,
    pub(super) takes: u32,
    pub(super) to_do: u32,
    pub(super) have_it: u32,
    pub(super) held: u32,
    pub(super) away: u32,
    pub(super) at_once: String,
    pub(super) after: String,
    /// Why there are no times.
    pub(super) instead: String,
}

impl Forecast {
    pub(super) fn of(preview: &Preview) -> Self {
        let now = preview.at;
        let mut notes = Vec::new();
        let left = preview.groups.iter().filter(|group| group.phase != GroupPhase::Succeeded);
        let groups = left.map(|group| {
            let name = group.name.to_string();
            notes.extend(group.blocked.iter().map(|why| format!("{name}: {}", why.in_words(now))));
            if group.unanswered > 0 {
                let told = group.unanswered_examples.iter();
                let told = told.map(|absent| format!("{} has no label {:?}", absent.host, absent.label));
                let told = told.collect::<Vec<_>>().join(", ");
                let hosts = group.unanswered;
                notes.push(format!("{name}: does not take {hosts} hosts because a label is absent: {told}"));
            }
            let after: Vec<String> = group.requires.iter().map(ToString::to_string).collect();
            let is_open = matches!(group.phase, GroupPhase::Open(_)) && group.opens == Some(now);
            Coming {
                name,
                opens: group.opens.filter(|_| !is_open).map(Moment),
                local: match &group.opens_local {
                    Some(local) if !is_open && group.timezone != "UTC" => {
                        format!("{local} {}", group.timezone)
                    }
                    _ => String::new(),
                },
                done: group.ends.map(Moment),
                takes: group.takes,
                to_do: group.to_upgrade,
                have_it: group.on_version,
                held: group.held,
                away: group.away,
                at_once: group.at_once(),
                after: after.join(", "),
                instead: match group.blocked.first() {
                    _ if is_open => "is open now".into(),
                    Some(why) => why.in_words(now),
                    None => String::new(),
                },
            }
        });
        let groups = groups.collect();
        if preview.ungrouped > 0 {
            notes.push(format!(
                "{} of {} hosts are in no group and follow agent_auto_update; {} of them have the version.",
                preview.ungrouped, preview.hosts, preview.ungrouped_on_version
            ));
        }
        let each = preview.seconds_each;
        let ends = match preview.ends {
            Some(ends) => Prose::default()
                .text("Done ")
                .time(ends)
                .text(&format!(" at the earliest, if every host takes {each} s: {}.", in_words(ends, now))),
            None if preview.groups.is_empty() => {
                Prose::default().text("There are no groups in this schedule.")
            }
            None => Prose::default().text("It does not end by itself."),
        };
        let blocked = preview.blocked.iter().map(|why| why.in_words(now)).collect();
        Self { blocked, groups, notes, ends }
    }
}
