//! Computes what a rollout would do from its plan and the fleet: arithmetic only, no simulation, no I/O.

mod standing;
mod text;

use jiff::{SignedDuration, Timestamp};
use refit_types::{Group, GroupName, Halt, HostLimit, Schedule, Span, Version};
use serde::Serialize;

pub use self::standing::{GroupPhase, GroupStanding, Standing};
use crate::{Cohort, Plan};

/// Enough for people to see what is meant.
const EXAMPLES: usize = 5;
/// A rollout that needs more windows than this is not estimated to its end.
const MOST_WINDOWS: usize = 400;
const WEEK: SignedDuration = SignedDuration::from_hours(7 * 24);

/// What a rollout would do.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Preview {
    /// The version.
    pub version: Version,
    /// By which schedule.
    pub schedule: Schedule,
    /// As seen from that moment.
    pub at: Timestamp,
    /// The seconds that every host is taken to need.
    pub seconds_each: u32,
    /// All hosts.
    pub hosts: u32,
    /// Hosts that no group takes.
    pub ungrouped: u32,
    /// Those of them that have the version.
    pub ungrouped_on_version: u32,
    /// What keeps every group from opening, or from counting.
    pub blocked: Vec<Blocker>,
    /// Each group, in the order in which they take hosts.
    pub groups: Vec<GroupPreview>,
    /// When the last group could be done, if all can.
    pub ends: Option<Timestamp>,
}

/// What one group would do.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupPreview {
    /// Which group.
    pub name: GroupName,
    /// The groups that it waits for.
    pub requires: Vec<GroupName>,
    /// How far it has come.
    pub phase: GroupPhase,
    /// When it would open; not said of a group that is done, or that an operator must let go on.
    pub opens: Option<Timestamp>,
    /// The same, as clocks show it in its zone.
    pub opens_local: Option<String>,
    /// Its zone.
    pub timezone: String,
    /// Hosts that it takes.
    pub takes: u32,
    /// Those that would be upgraded.
    pub to_upgrade: u32,
    /// Those that have the version.
    pub on_version: u32,
    /// Those whose updaters refuse the version.
    pub held: u32,
    /// Those that are disconnected.
    pub away: u32,
    /// How many members may be in flight, as the group says it.
    pub max_in_flight: HostLimit,
    /// The same in hosts.
    pub limit: u32,
    /// When it could be done, at the earliest.
    pub ends: Option<Timestamp>,
    /// What would keep it from opening or from ending.
    pub blocked: Vec<Blocker>,
    /// Hosts that it does not take because a label is absent that it asks for.
    pub unanswered: u32,
    /// The first of them.
    pub unanswered_examples: Vec<AbsentLabel>,
}

/// A host for which an expression has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AbsentLabel {
    /// The host.
    pub host: String,
    /// The label that it does not have.
    pub label: String,
}

/// What keeps a group from opening or ending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Blocker {
    /// Updates are switched off.
    Disabled,
    /// An operator paused the rollout.
    Paused {
        /// Since when.
        since: Timestamp,
    },
    /// An operator paused this group.
    GroupPaused {
        /// Since when.
        since: Timestamp,
    },
    /// Too many hosts failed or timed out.
    Halted {
        /// How many, if that is known.
        halt: Option<Halt>,
    },
    /// Groups do not count.
    Immediate,
    /// No host may be in flight.
    NoSlots {
        /// As the group says it.
        limit: HostLimit,
    },
    /// It selects none of the hosts.
    NoHosts {
        /// Of how many.
        hosts: u32,
    },
    /// None of its hosts can be upgraded, and none runs the version.
    NobodyUpgraded {
        /// Those whose updaters refuse the version.
        held: u32,
        /// Those that are disconnected.
        away: u32,
    },
    /// A group that it requires cannot end.
    Requires {
        /// Which.
        group: GroupName,
    },
    /// It opens in more than a week, if ever.
    NotWithinAWeek {
        /// When.
        opens: Option<Timestamp>,
    },
    /// There are not enough hours to tell when it ends.
    TooLong,
}

impl Blocker {
    /// Whether it needs an operator to resolve.
    fn is_final(&self) -> bool {
        !matches!(self, Self::NotWithinAWeek { opens: Some(_) })
    }
}

/// What the plan would do with that fleet from that moment on, as far as it has come, if every host took `seconds_each`
/// seconds.
pub fn preview(
    plan: &Plan,
    fleet: &[Cohort],
    standing: &Standing,
    at: Timestamp,
    seconds_each: u32,
) -> Preview {
    let mut blocked = Vec::new();
    if !plan.policy.enabled {
        blocked.push(Blocker::Disabled);
    }
    if let Some(since) = standing.paused {
        blocked.push(Blocker::Paused { since });
    }
    if plan.schedule == Schedule::Immediate {
        blocked.push(Blocker::Immediate);
    }
    let mut preview = Preview {
        version: plan.version.clone(),
        schedule: plan.schedule,
        at,
        seconds_each: seconds_each.max(1),
        hosts: 0,
        ungrouped: 0,
        ungrouped_on_version: 0,
        groups: plan.groups.iter().map(|group| GroupPreview::of(group, standing)).collect(),
        blocked,
        ends: None,
    };
    for cohort in fleet {
        preview.count(plan, cohort);
    }
    let mut ends: Vec<Option<Option<Timestamp>>> = vec![None; plan.groups.len()];
    for group in 0..plan.groups.len() {
        preview.schedule(plan, group, &mut ends, 0);
    }
    let left = preview.groups.iter().filter(|group| group.phase != GroupPhase::Succeeded);
    let all: Option<Vec<Timestamp>> = left.map(|group| group.ends).collect();
    preview.ends = all.and_then(|ends| ends.into_iter().max());
    preview
}

impl Preview {
    fn count(&mut self, plan: &Plan, cohort: &Cohort) {
        self.hosts += cohort.count;
        let on_version = cohort.version == plan.version;
        let taken = cohort.group(plan);
        for (group, asked) in plan.groups.iter().zip(&mut self.groups).take(taken.unwrap_or(usize::MAX)) {
            asked.note_absent(group, cohort);
        }
        let Some(group) = taken.and_then(|group| self.groups.get_mut(group)) else {
            self.ungrouped += cohort.count;
            self.ungrouped_on_version += if on_version { cohort.count } else { 0 };
            return;
        };
        group.takes += cohort.count;
        *match (cohort.live, on_version, cohort.held) {
            (false, ..) => &mut group.away,
            (true, true, _) => &mut group.on_version,
            (true, false, true) => &mut group.held,
            (true, false, false) => &mut group.to_upgrade,
        } += cohort.count;
    }

    /// Finds when a group opens and ends, after those that it requires. Each is worked out once.
    fn schedule(
        &mut self,
        plan: &Plan,
        group: usize,
        known: &mut [Option<Option<Timestamp>>],
        depth: usize,
    ) -> Option<Timestamp> {
        if let Some(known) = known[group] {
            return known;
        }
        let mut from = Some(self.at);
        let mut blocked = Vec::new();
        for required in plan.groups[group].requires.iter().filter_map(|name| plan.position(name.as_str())) {
            // Cycles are rejected when the configuration is stored; this only bounds the recursion.
            let end = if depth > plan.groups.len() {
                None
            } else {
                self.schedule(plan, required, known, depth + 1)
            };
            if end.is_none() {
                blocked.push(Blocker::Requires { group: plan.groups[required].name.clone() });
            }
            from = from.zip(end).map(|(from, end)| from.max(end));
        }
        let ends = self.estimate(&plan.groups[group], group, from, blocked);
        known[group] = Some(ends);
        ends
    }

    fn estimate(
        &mut self,
        limits: &Group,
        group: usize,
        from: Option<Timestamp>,
        mut blocked: Vec<Blocker>,
    ) -> Option<Timestamp> {
        let (at, each, stopped, hosts) = (self.at, self.seconds_each, !self.blocked.is_empty(), self.hosts);
        let preview = self.groups.get_mut(group)?;
        let members = preview.takes - preview.away;
        preview.limit = limits.max_in_flight.slots(members);
        if preview.limit == 0 && preview.to_upgrade > 0 {
            blocked.push(Blocker::NoSlots { limit: limits.max_in_flight });
        }
        if preview.phase == GroupPhase::Succeeded {
            return Some(at);
        }
        if hosts > 0 && !limits.allow_empty && preview.to_upgrade + preview.on_version == 0 {
            let GroupPreview { takes, held, away, .. } = *preview;
            blocked.push(match takes {
                0 => Blocker::NoHosts { hosts },
                _ => Blocker::NobodyUpgraded { held, away },
            });
        }
        let is_stopped = preview.blocked.iter().any(Blocker::is_final);
        blocked.append(&mut preview.blocked);
        let open = match preview.phase {
            GroupPhase::Open(window) if window.contains(at) => Some(window),
            _ => None,
        };
        if !is_stopped {
            let first = |from: Timestamp| Some(limits.window.first_from(from)?.0);
            preview.opens = if open.is_some() { Some(at) } else { from.and_then(first) };
            let is_far = preview.opens.is_none_or(|opens| opens.duration_since(at) > WEEK);
            if from.is_some() && is_far {
                blocked.push(Blocker::NotWithinAWeek { opens: preview.opens });
            }
        }
        preview.opens_local = preview.opens.map(|opens| {
            let local = opens.to_zoned(limits.window.timezone.zone().clone());
            local.strftime("%a %Y-%m-%d %H:%M").to_string()
        });
        if !stopped && !blocked.iter().any(Blocker::is_final) {
            preview.ends = preview.opens.and_then(|opens| {
                waves(limits, opens, open, preview.to_upgrade.div_ceil(preview.limit.max(1)), each)
            });
            if preview.ends.is_none() {
                blocked.push(Blocker::TooLong);
            }
        }
        preview.blocked = blocked;
        preview.ends
    }
}

/// When so many waves are done, the first of which starts at `opens`, in the window that is open if there is one. A wave can
/// start as long as the window is open.
fn waves(
    limits: &Group,
    opens: Timestamp,
    mut open: Option<Span>,
    waves: u32,
    each: u32,
) -> Option<Timestamp> {
    let (mut at, mut left) = (opens, i64::from(waves));
    let each = i64::from(each);
    for _ in 0..MOST_WINDOWS {
        let window = match open.take() {
            Some(window) => window,
            None => limits.window.first_from(at)?.1,
        };
        at = at.max(window.start);
        let open_for = window.end.duration_since(at).as_secs();
        let now = left.min(open_for.div_euclid(each) + i64::from(open_for % each > 0));
        at = at.checked_add(SignedDuration::from_secs(now * each)).ok()?;
        left -= now;
        if left == 0 {
            return Some(at);
        }
        at = at.max(window.end);
    }
    None
}

impl GroupPreview {
    fn of(group: &Group, standing: &Standing) -> Self {
        let GroupStanding { phase, paused } = standing.of(&group.name);
        let mut blocked = Vec::new();
        if let GroupPhase::Halted(halt) = phase {
            blocked.push(Blocker::Halted { halt });
        }
        if let Some(since) = paused.filter(|_| phase != GroupPhase::Succeeded) {
            blocked.push(Blocker::GroupPaused { since });
        }
        Self {
            name: group.name.clone(),
            requires: group.requires.clone(),
            phase,
            opens: None,
            opens_local: None,
            timezone: group.window.timezone.to_string(),
            takes: 0,
            to_upgrade: 0,
            on_version: 0,
            held: 0,
            away: 0,
            max_in_flight: group.max_in_flight,
            limit: 0,
            ends: None,
            blocked,
            unanswered: 0,
            unanswered_examples: Vec::new(),
        }
    }

    /// Counts hosts that the group does not take because its expression needs an absent label.
    fn note_absent(&mut self, group: &Group, cohort: &Cohort) {
        let asked = [
            (&group.agents.node_labels_expression, &cohort.node_labels),
            (&group.agents.instance_labels_expression, &cohort.instance_labels),
        ];
        let answers =
            asked.into_iter().filter_map(|(expression, labels)| Some((expression.as_ref()?, labels)));
        let mut absent = None;
        for (expression, labels) in answers {
            match expression.evaluate(labels) {
                Ok(true) => {}
                Ok(false) => return,
                Err(unanswered) => absent = absent.or(Some(unanswered)),
            }
        }
        let Some(absent) = absent else { return };
        self.unanswered += cohort.count;
        if self.unanswered_examples.len() < EXAMPLES {
            let (host, label) = (cohort.example.clone(), absent.label().to_owned());
            self.unanswered_examples.push(AbsentLabel { host, label });
        }
    }
}
