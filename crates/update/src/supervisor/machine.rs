//! What a supervisor does next, given what happened and what time it is.

use std::time::{Duration, Instant};

use crate::host::ServiceState;

/// Between two starts of an agent that fails, at first and at most.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// An agent that ran for so long did not fail because of how it was started.
const RAN_WELL: Duration = Duration::from_secs(60);
/// How long what was asked to end may take.
const GRACE: Duration = Duration::from_secs(30);
/// As `TimeoutStartSec` of the agent's unit: what hangs there must not keep the agent from running for ever.
const RECOVERY_LIMIT: Duration = Duration::from_secs(600);
/// As `TimeoutStartSec` of the updater's unit.
const UPDATER_LIMIT: Duration = Duration::from_secs(3 * 3600);

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// Nothing, for a while.
    Tick,
    /// The recovery before a start is over. `settled` if no update is in the middle of anything.
    Recovered { settled: bool },
    /// Another agent, which is not ours, uses the data directory.
    Taken,
    /// The agent is gone; `well` if it was asked to.
    AgentEnded { well: bool },
    /// The updater is gone.
    UpdaterEnded,
    /// The agent woke the updater.
    Rang,
    /// Somebody wants the agent to run.
    Start,
    /// Somebody wants it not to run.
    Stop,
    /// Somebody wants it to be what is installed now.
    Reload,
    /// The updater is to run by itself, or no longer.
    SetUpdates(bool),
    /// The supervisor is to end.
    End,
}

/// How hard something is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KillSignal {
    /// SIGHUP.
    Hangup,
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
}

/// Which child it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildKind {
    Agent,
    Recovery,
    Updater,
}

/// Something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Run the recovery of an interrupted update.
    Recover,
    StartAgent,
    StartUpdater,
    Tell(ChildKind, KillSignal),
}

/// What is so at the moment of an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) now: Instant,
    /// Whether there is an agent to start.
    pub(crate) installed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Agent {
    /// It does not run, and nobody wants it to.
    Off,
    /// It should run, and is not installed.
    Absent,
    /// It is about to be started.
    Recovering {
        since: Instant,
        cut: Termination,
    },
    Running {
        since: Instant,
    },
    Stopping {
        cut: Termination,
    },
    /// It failed.
    Waiting {
        until: Instant,
    },
}

/// When something was asked to end, if it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Termination {
    Not,
    Asked(Instant),
    Killed,
}

impl Termination {
    /// What to tell it now, given that it should be gone.
    fn press(&mut self, now: Instant) -> Option<KillSignal> {
        let nudge = match *self {
            Self::Not => KillSignal::Terminate,
            Self::Asked(at) if now.saturating_duration_since(at) >= GRACE => KillSignal::Kill,
            Self::Asked(_) | Self::Killed => return None,
        };
        *self = if nudge == KillSignal::Kill { Self::Killed } else { Self::Asked(now) };
        Some(nudge)
    }
}

/// Where a supervisor stands.
#[derive(Debug)]
pub(crate) struct Machine {
    agent: Agent,
    /// Whether the agent should run.
    wanted: bool,
    /// Until its first start, the agent waits for an update that is under way: that one believes that no
    /// agent runs.
    patient: bool,
    failures: u32,
    updater: Option<(Instant, Termination)>,
    updates: bool,
    /// An updater is to run as soon as it can.
    due: bool,
    next_update: Instant,
    every: Duration,
    ending: bool,
    random: fn() -> f64,
}

impl Machine {
    /// A supervisor that has just started; `random` gives numbers from 0 up to 1.
    pub(crate) fn new(enabled: bool, every: Duration, now: Instant, random: fn() -> f64) -> Self {
        Self {
            agent: if enabled { Agent::Absent } else { Agent::Off },
            wanted: enabled,
            patient: true,
            failures: 0,
            updater: None,
            updates: true,
            due: false,
            next_update: now + every.mul_f64(random()),
            every,
            ending: false,
            random,
        }
    }

    /// How the agent stands, as an updater has to know it.
    pub(crate) fn state(&self) -> ServiceState {
        match self.agent {
            Agent::Running { .. } => ServiceState::Running,
            Agent::Recovering { .. } | Agent::Waiting { .. } | Agent::Stopping { .. } if self.wanted => {
                ServiceState::Failing
            }
            _ => ServiceState::Stopped,
        }
    }

    /// Whether the agent waits for a first version.
    pub(crate) fn is_waiting_for_a_version(&self) -> bool {
        self.agent == Agent::Absent
    }

    /// When an agent that failed is started again.
    pub(crate) fn starts_again_at(&self) -> Option<Instant> {
        match self.agent {
            Agent::Waiting { until } => Some(until),
            _ => None,
        }
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending
    }

    /// Whether the supervisor can end.
    pub(crate) fn is_over(&self) -> bool {
        self.ending && self.agent == Agent::Off && self.updater.is_none()
    }

    pub(crate) fn on(&mut self, event: Event, seen: Seen) -> Vec<Action> {
        let mut actions = Vec::new();
        self.take(event, seen, &mut actions);
        self.press(seen.now, &mut actions);
        self.schedule(seen.now, &mut actions);
        actions
    }

    fn take(&mut self, event: Event, seen: Seen, actions: &mut Vec<Action>) {
        let now = seen.now;
        match event {
            Event::Tick => match self.agent {
                Agent::Absent if seen.installed => self.begin(seen, actions),
                Agent::Waiting { until } if now >= until => self.begin(seen, actions),
                _ => {}
            },
            Event::Recovered { settled } => match self.agent {
                Agent::Recovering { .. } if !self.wanted => self.agent = Agent::Off,
                Agent::Recovering { .. } if self.patient && !settled => {
                    self.agent = Agent::Waiting { until: now + SHORTEST_WAIT };
                }
                Agent::Recovering { .. } => {
                    (self.agent, self.patient) = (Agent::Running { since: now }, false);
                    actions.push(Action::StartAgent);
                }
                _ => {}
            },
            Event::Taken => match self.agent {
                Agent::Recovering { .. } if self.wanted => self.wait(now),
                Agent::Recovering { .. } => self.agent = Agent::Off,
                _ => {}
            },
            Event::AgentEnded { well } => match self.agent {
                Agent::Stopping { .. } if self.wanted => self.begin(seen, actions),
                Agent::Running { since } if !well => {
                    if now.saturating_duration_since(since) >= RAN_WELL {
                        self.failures = 0;
                    }
                    self.wait(now);
                }
                Agent::Stopping { .. } | Agent::Running { .. } => {
                    (self.agent, self.wanted) = (Agent::Off, false);
                }
                _ => {}
            },
            Event::UpdaterEnded => self.updater = None,
            Event::Rang => self.due |= self.updates,
            Event::SetUpdates(on) => {
                if on && !self.updates {
                    self.next_update = now + self.every.mul_f64((self.random)());
                }
                (self.updates, self.due) = (on, self.due && on);
            }
            Event::Start if self.ending => {}
            Event::Start => {
                (self.wanted, self.patient, self.failures) = (true, false, 0);
                if matches!(self.agent, Agent::Off | Agent::Absent | Agent::Waiting { .. }) {
                    self.begin(seen, actions);
                }
            }
            Event::Stop => self.stop(),
            Event::Reload => match self.agent {
                Agent::Running { .. } => actions.push(Action::Tell(ChildKind::Agent, KillSignal::Hangup)),
                Agent::Waiting { .. } => self.begin(seen, actions),
                _ => {}
            },
            Event::End if self.ending => self.hurry(actions),
            Event::End => {
                (self.ending, self.updates, self.due) = (true, false, false);
                self.stop();
            }
        }
    }

    /// The way to a start, from a standstill.
    fn begin(&mut self, seen: Seen, actions: &mut Vec<Action>) {
        if seen.installed {
            self.agent = Agent::Recovering { since: seen.now, cut: Termination::Not };
            actions.push(Action::Recover);
        } else {
            self.agent = Agent::Absent;
        }
    }

    fn stop(&mut self) {
        self.wanted = false;
        self.agent = match self.agent {
            Agent::Running { .. } => Agent::Stopping { cut: Termination::Not },
            Agent::Absent | Agent::Waiting { .. } => Agent::Off,
            other => other,
        };
    }

    /// Longer with each failure, and at a moment of its own: what fails on many hosts fails on all at once.
    fn wait(&mut self, now: Instant) {
        let most = SHORTEST_WAIT.saturating_mul(1 << self.failures.min(6)).min(LONGEST_WAIT);
        let drawn = most.mul_f64(0.5 + (self.random)() / 2.0);
        self.agent = Agent::Waiting { until: now + drawn.max(SHORTEST_WAIT) };
        self.failures = self.failures.saturating_add(1);
    }

    /// Sees to it that what should end does.
    fn press(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let mut tell =
            |whom, nudge: Option<KillSignal>| actions.extend(nudge.map(|nudge| Action::Tell(whom, nudge)));
        let late = |since: Instant, limit| now.saturating_duration_since(since) >= limit;
        match &mut self.agent {
            Agent::Stopping { cut } => tell(ChildKind::Agent, cut.press(now)),
            Agent::Recovering { since, cut } if self.ending || late(*since, RECOVERY_LIMIT) => {
                tell(ChildKind::Recovery, cut.press(now));
            }
            _ => {}
        }
        if let Some((since, cut)) = &mut self.updater
            && (self.ending || late(*since, UPDATER_LIMIT))
        {
            tell(ChildKind::Updater, cut.press(now));
        }
    }

    /// Whoever asked twice will not wait.
    fn hurry(&mut self, actions: &mut Vec<Action>) {
        let mut kill = |whom, cut: &mut Termination| {
            actions.push(Action::Tell(whom, KillSignal::Kill));
            *cut = Termination::Killed;
        };
        match &mut self.agent {
            Agent::Stopping { cut } => kill(ChildKind::Agent, cut),
            Agent::Recovering { cut, .. } => kill(ChildKind::Recovery, cut),
            _ => {}
        }
        if let Some((_, cut)) = &mut self.updater {
            kill(ChildKind::Updater, cut);
        }
    }

    /// Never two updaters at once, and none beside a recovery, which has their lock.
    fn schedule(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.updates && now >= self.next_update {
            self.due = true;
            self.next_update = now + self.every;
        }
        let is_free = self.updater.is_none() && !matches!(self.agent, Agent::Recovering { .. });
        if self.due && is_free {
            (self.due, self.updater) = (false, Some((now, Termination::Not)));
            actions.push(Action::StartUpdater);
        }
    }
}

#[cfg(test)]
mod tests;
