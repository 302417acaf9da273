//! The result of a simulation: counts, outcomes and samples for each group. Also the JSON output of `simulate`.

use jiff::Timestamp;
use refit_types::{GroupName, GroupRecord, GroupState, HostLimit, Schedule, Span, Version};
use serde::Serialize;

/// How a simulated rollout went.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Timeline {
    /// What was rolled out.
    pub version: Version,
    /// By which schedule.
    pub schedule: Schedule,
    /// When it began.
    pub start: Timestamp,
    /// When the rollout was over, or when the simulation stopped.
    pub end: Timestamp,
    /// Whether the rollout was over.
    pub finished: bool,
    /// How many hosts there are.
    pub hosts: u32,
    /// What became of them; they add up to all hosts.
    pub outcomes: Outcomes,
    /// Hosts that no group takes.
    pub ungrouped: u32,
    /// Each group, in the order of the plan.
    pub groups: Vec<GroupTimeline>,
    /// Whether more hosts were in flight in some group than its limit.
    pub limit_passed: bool,
    /// What an operator should know.
    pub warnings: Vec<String>,
}

/// How one group went.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupTimeline {
    /// Which group.
    pub name: GroupName,
    /// Hosts that it takes.
    pub hosts: u32,
    /// Hosts that became members.
    pub members: u32,
    /// Its state at the end.
    pub state: GroupState,
    /// When it first opened.
    pub opened: Option<Timestamp>,
    /// When it halted or succeeded.
    pub ended: Option<Timestamp>,
    /// When it was open.
    pub windows: Vec<Span>,
    /// The share that may be in flight.
    pub max_in_flight: HostLimit,
    /// That share of the members.
    pub limit: u32,
    /// The most that were in flight.
    pub most_in_flight: u32,
    /// Whether that was ever above the limit.
    pub limit_passed: bool,
    /// Why it did not end, in words.
    pub waiting: Option<String>,
    /// What became of its hosts.
    pub outcomes: Outcomes,
    /// How far it was, each with all that was known until the next.
    pub samples: Vec<Sample>,
}

/// What became of hosts: each counts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Outcomes {
    /// Upgraded in the rollout.
    pub upgraded: u32,
    /// On the version before it began.
    pub had_it: u32,
    /// Rolled back, or lost.
    pub failed: u32,
    /// Told, and not upgraded in time.
    pub timed_out: u32,
    /// Told, and not ended when the simulation stopped.
    pub in_flight: u32,
    /// Held: their updaters refused the version.
    pub held: u32,
    /// Disconnected.
    pub away: u32,
    /// Never told.
    pub not_started: u32,
}

impl Outcomes {
    /// All of them.
    pub fn total(&self) -> u32 {
        let ended = self.upgraded + self.had_it + self.failed + self.timed_out;
        ended + self.in_flight + self.held + self.away + self.not_started
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.upgraded += other.upgraded;
        self.had_it += other.had_it;
        self.failed += other.failed;
        self.timed_out += other.timed_out;
        self.in_flight += other.in_flight;
        self.held += other.held;
        self.away += other.away;
        self.not_started += other.not_started;
    }
}

/// How far a group was at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// The moment.
    pub at: Timestamp,
    /// Members.
    pub members: u32,
    /// On the version.
    pub upgraded: u32,
    /// Told, and not ended.
    pub in_flight: u32,
    /// Failed.
    pub failed: u32,
    /// Timed out.
    pub timed_out: u32,
}

impl Sample {
    pub(super) fn of(record: &GroupRecord, at: Timestamp) -> Self {
        Self {
            at,
            members: record.members,
            upgraded: record.upgraded,
            in_flight: record.in_flight,
            failed: record.failed,
            timed_out: record.timed_out,
        }
    }
}

impl GroupTimeline {
    /// How far it was at that moment, if it had opened.
    pub fn sample_at(&self, at: Timestamp) -> Option<&Sample> {
        let after = self.samples.partition_point(|sample| sample.at <= at);
        self.samples.get(after.checked_sub(1)?)
    }
}

/// More would not be seen in a drawing.
const MOST_SAMPLES: usize = 240;

/// Samples in bounded memory: of each stretch of time the last is kept, and when there are too many the
/// stretches become twice as long.
#[derive(Debug)]
pub(super) struct Sampler {
    stretch: i64,
    kept: Vec<Sample>,
    latest: Option<Sample>,
}

impl Sampler {
    pub(super) fn new() -> Self {
        Self { stretch: 1, kept: Vec::new(), latest: None }
    }

    pub(super) fn take(&mut self, sample: Sample) {
        let before = self.latest.replace(sample);
        let Some(before) = before.filter(|before| self.of(before) != self.of(&sample)) else { return };
        self.kept.push(before);
        while self.kept.len() > MOST_SAMPLES {
            self.stretch *= 2;
            let mut sparse: Vec<Sample> = Vec::with_capacity(MOST_SAMPLES);
            for sample in &self.kept {
                match sparse.last_mut() {
                    Some(last) if self.of(last) == self.of(sample) => *last = *sample,
                    _ => sparse.push(*sample),
                }
            }
            self.kept = sparse;
        }
    }

    pub(super) fn samples(mut self) -> Vec<Sample> {
        self.kept.extend(self.latest);
        self.kept
    }

    fn of(&self, sample: &Sample) -> i64 {
        sample.at.as_second().div_euclid(self.stretch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(second: i64, upgraded: u32) -> Sample {
        let at = Timestamp::from_second(second).unwrap();
        Sample { at, members: 10, upgraded, in_flight: 0, failed: 0, timed_out: 0 }
    }

    #[test]
    fn samples_are_bounded_and_tell_what_held_before_a_gap() {
        let mut sampler = Sampler::new();
        for second in 0..10_000_u32 {
            sampler.take(sample(second.into(), second));
        }
        sampler.take(sample(1_000_000, 77_777));
        let samples = sampler.samples();
        assert!((100..=MOST_SAMPLES + 1).contains(&samples.len()), "{}", samples.len());
        assert_eq!(samples.last().unwrap().upgraded, 77_777);
        assert_eq!(samples[samples.len() - 2].upgraded, 9_999, "the last before the gap");
        assert!(samples.windows(2).all(|pair| pair[0].at < pair[1].at));
    }
}
