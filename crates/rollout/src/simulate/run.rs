//! The event loop of a simulation: drives the real engine with a simulated clock, store and hosts.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use jiff::{SignedDuration, Timestamp};
use refit_types::{GroupRecord, GroupState, Revision, Schedule, Span};

use super::behaviour::{Fate, Purpose};
use super::store::Store;
use super::timeline::{GroupTimeline, Outcomes, Sample, Sampler, Timeline};
use super::{Behaviour, Simulation};
use crate::{Decision, Engine, HostTransition, InProgress, PlannedTransition};

/// Hosts of one decision. Decisions are stored at once, so this changes nothing but memory.
const BATCH: usize = 1000;

/// An agent receives the hint and acknowledges it within this many seconds.
const HEARD_WITHIN: u32 = 5;

/// A future event of a host: at most one is queued for each host in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at: u32,
    host: u32,
    attempt: u16,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Acknowledges,
    Begins,
    Upgrades,
    Undoes,
    Dies,
}

/// A simulation under way. Times are seconds since its start.
pub(super) struct Run<'s> {
    simulation: &'s Simulation,
    start: Timestamp,
    engine: Engine,
    store: Store,
    queue: BinaryHeap<Reverse<Event>>,
    tracks: Vec<Track>,
    now: u32,
}

/// The history of a group.
struct Track {
    record: GroupRecord,
    hosts: u32,
    opened: Option<Timestamp>,
    ended: Option<Timestamp>,
    windows: Vec<Span>,
    limit: u32,
    most_in_flight: u32,
    limit_passed: bool,
    sampler: Sampler,
}

impl<'s> Run<'s> {
    pub(super) fn new(simulation: &'s Simulation) -> Self {
        let plan = &simulation.plan;
        let start = Timestamp::from_second(simulation.start.as_second()).unwrap_or(simulation.start);
        let mut engine = Engine::new(plan.clone(), start);
        let store = Store::new(plan, &simulation.fleet, start, simulation.behaviour.seed);
        let mut tracks: Vec<Track> =
            plan.groups.iter().map(|_| Track::new(GroupRecord::fresh(plan.epoch, start))).collect();
        for (group, track) in tracks.iter().enumerate() {
            engine.record(group, &track.record, Revision::default());
        }
        for host in 0..store.len() {
            if let Some(facts) = store.facts(host) {
                engine.host(&facts, Revision::default());
            }
            if let Some(track) = store.group(host).and_then(|group| tracks.get_mut(group)) {
                track.hosts += 1;
            }
        }
        Self { simulation, start, engine, store, queue: BinaryHeap::new(), tracks, now: 0 }
    }

    pub(super) fn until_the_end(mut self) -> Timeline {
        let horizon = self.simulation.days * 86_400;
        loop {
            self.decide();
            if self.is_settled() {
                break;
            }
            let Some(next) = self.next().filter(|next| *next < horizon) else {
                self.now = horizon;
                break;
            };
            self.now = next;
            while let Some(Reverse(event)) = self.queue.peek().copied() {
                if event.at > self.now {
                    break;
                }
                self.queue.pop();
                self.happen(event);
            }
        }
        self.timeline()
    }

    fn at(&self, second: u32) -> Timestamp {
        self.start.saturating_add(SignedDuration::from_secs(second.into())).unwrap_or(Timestamp::MAX)
    }

    /// When the next event is due: of a host, or of the engine.
    fn next(&self) -> Option<u32> {
        let event = self.queue.peek().map(|Reverse(event)| event.at);
        let wake = self.engine.wake_at(self.at(self.now)).and_then(|at| {
            let after = at.duration_since(self.start);
            let up = i64::from(after.subsec_nanos() > 0);
            u32::try_from(after.as_secs() + up).ok()
        });
        let wake = wake.map(|wake| wake.max(self.now + 1));
        event.into_iter().chain(wake).min()
    }

    /// Applies decisions until the engine has none left; each is stored at once.
    fn decide(&mut self) {
        let now = self.at(self.now);
        loop {
            let decisions = self.engine.decide(now, BATCH, InProgress::NOTHING);
            if decisions.is_empty() {
                return;
            }
            for decision in decisions {
                self.apply(decision, now);
            }
        }
    }

    fn apply(&mut self, decision: Decision, now: Timestamp) {
        for PlannedTransition { host: id, transition, .. } in decision.transitions {
            let host = Store::number(id);
            self.store.apply(host, transition, self.now);
            if let Some(facts) = self.store.facts(host) {
                self.engine.host(&facts, Revision::default());
            }
            if let (HostTransition::Start | HostTransition::StartNewcomer, Some(packed)) =
                (transition, self.store.host(host))
            {
                let attempt = packed.attempt;
                let heard = 1 + self.behaviour().up_to(HEARD_WITHIN - 1, host, attempt, Purpose::Hearing);
                self.expect(What::Acknowledges, self.now + heard, host, attempt);
            }
        }
        self.engine.record(decision.group, &decision.record, Revision::default());
        let flying = self.store.flying(decision.group);
        let limit = self.engine.view().progress(decision.group).limit;
        if let Some(track) = self.tracks.get_mut(decision.group) {
            track.note(decision.record, flying, limit, now);
        }
    }

    fn behaviour(&self) -> &Behaviour {
        &self.simulation.behaviour
    }

    fn expect(&mut self, what: What, at: u32, host: u32, attempt: u16) {
        self.queue.push(Reverse(Event { at, host, attempt, what }));
    }

    fn happen(&mut self, event: Event) {
        let Event { host, attempt, .. } = event;
        let Some(packed) = self.store.host(host).copied().filter(|packed| packed.attempt == attempt) else {
            return;
        };
        let Some(group) = self.store.group(host) else { return };
        match event.what {
            What::Acknowledges if packed.is_flying() => {
                self.store.acknowledge(host);
                let jitter = self.simulation.plan.groups.get(group).map_or(0, |group| group.jitter_seconds);
                let wait = self.behaviour().up_to(jitter, host, attempt, Purpose::Jitter);
                self.expect(What::Begins, self.now + wait, host, attempt);
            }
            What::Begins if self.is_told(host) => {
                let length = self.behaviour().length(host, attempt);
                match self.behaviour().fate(host, attempt) {
                    Fate::Upgrades => self.expect(What::Upgrades, self.now + length, host, attempt),
                    Fate::Undone => self.expect(What::Undoes, self.now + length, host, attempt),
                    Fate::Dies => {
                        let part = self.behaviour().up_to(length, host, attempt, Purpose::Death);
                        self.expect(What::Dies, self.now + part, host, attempt);
                    }
                    Fate::Hangs => {}
                }
                return;
            }
            // The updater asks once more before it switches.
            What::Upgrades if self.is_told(host) => self.store.upgrade(host),
            What::Undoes if self.is_told(host) => self.store.undo(host),
            What::Dies => self.store.lose(host, self.now),
            _ => return,
        }
        if let Some(facts) = self.store.facts(host) {
            self.engine.host(&facts, Revision::default());
        }
    }

    fn is_told(&self, host: u32) -> bool {
        self.engine.view().answer(Some(self.store.id(host)), self.at(self.now)).auto_update
    }

    /// Whether the rollout is over: all groups have finished, or wait for one that halted.
    fn is_settled(&self) -> bool {
        let halted = |group: &usize| self.tracks[*group].record.is_halted();
        let has_ended = |group: usize| {
            let record = &self.tracks[group].record;
            let ended = matches!(record.state, GroupState::Succeeded | GroupState::Halted(_));
            ended || self.simulation.plan.requires(group).iter().any(halted)
        };
        (0..self.tracks.len()).all(|group| has_ended(group) && self.store.flying(group) == 0)
    }

    fn timeline(self) -> Timeline {
        let finished = self.is_settled();
        let (start, end) = (self.start, self.at(self.now));
        let mut by_group = self.store.outcomes();
        let ungrouped = by_group.pop().unwrap_or_default();
        let mut outcomes = ungrouped;
        by_group.iter().for_each(|group| outcomes.add(group));
        let hosts = self.store.len();
        let plan = &self.simulation.plan;
        let mut groups = Vec::with_capacity(self.tracks.len());
        for (group, track) in self.tracks.into_iter().enumerate() {
            let waiting = self.engine.view().blocked_by(group, end).map(|waiting| waiting.in_words(end));
            let of = by_group.get(group).copied().unwrap_or_default();
            groups.push(track.timeline(&plan.groups[group], of, waiting, end));
        }
        let mut timeline = Timeline {
            version: plan.version.clone(),
            schedule: plan.schedule,
            start,
            end,
            finished,
            hosts,
            outcomes,
            ungrouped: ungrouped.total(),
            limit_passed: groups.iter().any(|group| group.limit_passed),
            groups,
            warnings: Vec::new(),
        };
        timeline.warnings = warnings(&timeline, self.simulation.days);
        timeline
    }
}

fn warnings(timeline: &Timeline, days: u32) -> Vec<String> {
    let mut all = Vec::new();
    if timeline.schedule == Schedule::Immediate {
        all.push("the schedule is immediate: every host is told at once, and groups do not count".into());
    } else if timeline.groups.is_empty() {
        all.push(format!("the schedule {} has no groups", timeline.schedule.as_str()));
    }
    for group in &timeline.groups {
        let name = &group.name;
        let why = group.waiting.as_deref().unwrap_or("it is under way");
        if group.limit_passed {
            all.push(format!(
                "{name}: {} were in flight, the limit is {}",
                group.most_in_flight, group.limit
            ));
        }
        match (&group.state, group.opened) {
            (GroupState::Halted(_), _) => all.push(format!("{name}: {why}")),
            (GroupState::Succeeded, _) => {
                let left = group.outcomes.failed + group.outcomes.timed_out;
                if left > 0 {
                    all.push(format!("{name}: succeeded without {left} of {} hosts", group.hosts));
                }
            }
            (_, None) => all.push(format!("{name}: does not open within {}: {why}", of_days(days))),
            (_, Some(_)) => all.push(format!("{name}: is not done within {}: {why}", of_days(days))),
        }
    }
    if timeline.ungrouped > 0 {
        let (some, all_hosts) = (timeline.ungrouped, timeline.hosts);
        all.push(format!("{some} of {all_hosts} hosts are in no group and follow agent_auto_update"));
    }
    all
}

fn of_days(days: u32) -> String {
    format!("{days} day{}", if days == 1 { "" } else { "s" })
}

impl Track {
    fn new(record: GroupRecord) -> Self {
        Self {
            record,
            hosts: 0,
            opened: None,
            ended: None,
            windows: Vec::new(),
            limit: 0,
            most_in_flight: 0,
            limit_passed: false,
            sampler: Sampler::new(),
        }
    }

    fn note(&mut self, record: GroupRecord, flying: u32, limit: u32, now: Timestamp) {
        if record.window.is_some() && self.record.window.is_none() {
            self.opened.get_or_insert(now);
            self.windows.push(Span { start: now, end: now });
        }
        if let (None, Some(_), Some(open)) = (record.window, self.record.window, self.windows.last_mut()) {
            open.end = now;
        }
        if record.state != self.record.state
            && matches!(record.state, GroupState::Succeeded | GroupState::Halted(_))
        {
            self.ended = Some(now);
        }
        self.limit = limit;
        self.most_in_flight = self.most_in_flight.max(flying);
        self.limit_passed |= flying.max(record.in_flight) > limit;
        if record.sealed {
            self.sampler.take(Sample::of(&record, now));
        }
        self.record = record;
    }

    fn timeline(
        self,
        group: &refit_types::Group,
        outcomes: Outcomes,
        waiting: Option<String>,
        end: Timestamp,
    ) -> GroupTimeline {
        let mut windows = self.windows;
        if let (Some(_), Some(open)) = (self.record.window, windows.last_mut()) {
            open.end = self.ended.unwrap_or(end);
        }
        GroupTimeline {
            name: group.name.clone(),
            hosts: self.hosts,
            members: self.record.members,
            state: self.record.state,
            opened: self.opened,
            ended: self.ended,
            windows,
            max_in_flight: group.max_in_flight,
            limit: self.limit,
            most_in_flight: self.most_in_flight,
            limit_passed: self.limit_passed,
            waiting,
            outcomes,
            samples: self.sampler.samples(),
        }
    }
}
