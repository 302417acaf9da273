//! What the supervisor does next, as a function of its state, an event and the time. Pure; the parent module carries the
//! actions out.

use std::time::{Duration, Instant};

use crate::host::ServiceState;

/// The delay between two starts of an agent that fails: the first, and the longest.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// An agent that ran this long resets the delay.
const RAN_WELL: Duration = Duration::from_secs(60);
/// How long a process may take to end after SIGTERM, before SIGKILL.
const GRACE: Duration = Duration::from_secs(30);
/// As `TimeoutStartSec` of the agent's unit: a recovery that hangs must not keep the agent from starting forever.
const RECOVERY_LIMIT: Duration = Duration::from_secs(600);
/// As `TimeoutStartSec` of the updater's unit.
const UPDATER_LIMIT: Duration = Duration::from_secs(3 * 3600);

/// Something that happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The poll interval has passed.
    Tick,
    /// The recovery before a start has ended; `settled` if no switch is under way, `unproved` if the version that is about
    /// to start has yet to prove that it works.
    Recovered { settled: bool, unproved: bool },
    /// An agent that the supervisor did not start uses the data directory.
    Taken,
    /// The agent has ended.
    AgentEnded { on_request: bool },
    /// The updater has ended.
    UpdaterEnded,
    /// The agent replaced the wake file.
    Wake,
    /// A request to start the agent.
    Start,
    /// A request to stop the agent.
    Stop,
    /// A request that the agent re-execute its binary.
    Reload,
    /// A request to run the updater on schedule, or no longer.
    SetUpdates(bool),
    /// A request that the supervisor end.
    End,
}

/// A signal for a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KillSignal {
    /// SIGHUP.
    Hangup,
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
}

/// A child of the supervisor.
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
    Signal(ChildKind, KillSignal),
}

/// What is known at the time of an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context {
    pub(crate) now: Instant,
    /// Whether an agent is installed.
    pub(crate) installed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AgentState {
    /// It does not run, and should not.
    Off,
    /// It should run, but is not installed.
    NotInstalled,
    /// The recovery before its start runs.
    Recovering {
        since: Instant,
        termination: Termination,
    },
    Running {
        since: Instant,
    },
    Stopping {
        termination: Termination,
    },
    /// It failed and is started again later.
    Waiting {
        until: Instant,
    },
}

/// How far the termination of a process has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Termination {
    NotRequested,
    Requested(Instant),
    Killed,
}

impl Termination {
    /// The signal to send now to a process that should end.
    fn escalate(&mut self, now: Instant) -> Option<KillSignal> {
        let signal = match *self {
            Self::NotRequested => KillSignal::Terminate,
            Self::Requested(at) if now.saturating_duration_since(at) >= GRACE => KillSignal::Kill,
            Self::Requested(_) | Self::Killed => return None,
        };
        *self = if signal == KillSignal::Kill { Self::Killed } else { Self::Requested(now) };
        Some(signal)
    }
}

/// The state of the supervisor.
#[derive(Debug)]
pub(crate) struct Machine {
    agent: AgentState,
    /// Whether the agent should run.
    wanted: bool,
    /// Before its first start, the agent waits for an update that is under way, because that update expects that no
    /// agent runs.
    awaits_update: bool,
    failures: u32,
    updater: Option<(Instant, Termination)>,
    updates: bool,
    /// The updater starts as soon as possible.
    due: bool,
    next_update: Instant,
    every: Duration,
    ending: bool,
    random: fn() -> f64,
}

impl Machine {
    /// A supervisor that has just started; `random` draws from 0 to 1.
    pub(crate) fn new(enabled: bool, every: Duration, now: Instant, random: fn() -> f64) -> Self {
        Self {
            agent: if enabled { AgentState::NotInstalled } else { AgentState::Off },
            wanted: enabled,
            awaits_update: true,
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

    /// The state of the agent, as an updater sees it.
    pub(crate) fn state(&self) -> ServiceState {
        match self.agent {
            AgentState::Running { .. } => ServiceState::Running,
            AgentState::Recovering { .. } | AgentState::Waiting { .. } | AgentState::Stopping { .. }
                if self.wanted =>
            {
                ServiceState::Failing
            }
            _ => ServiceState::Stopped,
        }
    }

    /// Whether the agent waits for a first version to be installed.
    pub(crate) fn is_waiting_for_a_version(&self) -> bool {
        self.agent == AgentState::NotInstalled
    }

    /// When a failed agent is started again.
    pub(crate) fn starts_again_at(&self) -> Option<Instant> {
        match self.agent {
            AgentState::Waiting { until } => Some(until),
            _ => None,
        }
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending
    }

    /// Whether the supervisor can end.
    pub(crate) fn is_over(&self) -> bool {
        self.ending && self.agent == AgentState::Off && self.updater.is_none()
    }

    pub(crate) fn on(&mut self, event: Event, context: Context) -> Vec<Action> {
        let mut actions = Vec::new();
        self.apply(event, context, &mut actions);
        self.end_overdue(context.now, &mut actions);
        self.schedule(context.now, &mut actions);
        actions
    }

    fn apply(&mut self, event: Event, context: Context, actions: &mut Vec<Action>) {
        let now = context.now;
        match event {
            Event::Tick => match self.agent {
                AgentState::NotInstalled if context.installed => self.begin(context, actions),
                AgentState::Waiting { until } if now >= until => self.begin(context, actions),
                _ => {}
            },
            Event::Recovered { settled, unproved } => match self.agent {
                AgentState::Recovering { .. } if !self.wanted => self.agent = AgentState::Off,
                AgentState::Recovering { .. } if self.awaits_update && !settled => {
                    self.agent = AgentState::Waiting { until: now + SHORTEST_WAIT };
                }
                AgentState::Recovering { .. } => {
                    (self.agent, self.awaits_update) = (AgentState::Running { since: now }, false);
                    // The updater proves or undoes it.
                    self.due |= unproved && !self.ending;
                    actions.push(Action::StartAgent);
                }
                _ => {}
            },
            Event::Taken => match self.agent {
                AgentState::Recovering { .. } if self.wanted => self.back_off(now),
                AgentState::Recovering { .. } => self.agent = AgentState::Off,
                _ => {}
            },
            Event::AgentEnded { on_request } => match self.agent {
                AgentState::Stopping { .. } if self.wanted => self.begin(context, actions),
                AgentState::Running { since } if !on_request => {
                    if now.saturating_duration_since(since) >= RAN_WELL {
                        self.failures = 0;
                    }
                    self.back_off(now);
                }
                AgentState::Stopping { .. } | AgentState::Running { .. } => {
                    (self.agent, self.wanted) = (AgentState::Off, false);
                }
                _ => {}
            },
            Event::UpdaterEnded => self.updater = None,
            Event::Wake => self.due |= self.updates,
            Event::SetUpdates(on) => {
                if on && !self.updates {
                    self.next_update = now + self.every.mul_f64((self.random)());
                }
                (self.updates, self.due) = (on, self.due && on);
            }
            Event::Start if self.ending => {}
            Event::Start => {
                (self.wanted, self.awaits_update, self.failures) = (true, false, 0);
                if matches!(
                    self.agent,
                    AgentState::Off | AgentState::NotInstalled | AgentState::Waiting { .. }
                ) {
                    self.begin(context, actions);
                }
            }
            Event::Stop => self.stop(),
            Event::Reload => match self.agent {
                AgentState::Running { .. } => {
                    actions.push(Action::Signal(ChildKind::Agent, KillSignal::Hangup))
                }
                AgentState::Waiting { .. } => self.begin(context, actions),
                _ => {}
            },
            Event::End if self.ending => self.kill_all(actions),
            Event::End => {
                (self.ending, self.updates, self.due) = (true, false, false);
                self.stop();
            }
        }
    }

    /// Begins a start with its recovery.
    fn begin(&mut self, context: Context, actions: &mut Vec<Action>) {
        if context.installed {
            self.agent =
                AgentState::Recovering { since: context.now, termination: Termination::NotRequested };
            actions.push(Action::Recover);
        } else {
            self.agent = AgentState::NotInstalled;
        }
    }

    fn stop(&mut self) {
        self.wanted = false;
        self.agent = match self.agent {
            AgentState::Running { .. } => AgentState::Stopping { termination: Termination::NotRequested },
            AgentState::NotInstalled | AgentState::Waiting { .. } => AgentState::Off,
            other => other,
        };
    }

    /// Delays the next start: longer with each failure, and with jitter, because many hosts may fail at once.
    fn back_off(&mut self, now: Instant) {
        let most = SHORTEST_WAIT.saturating_mul(1 << self.failures.min(6)).min(LONGEST_WAIT);
        let drawn = most.mul_f64(0.5 + (self.random)() / 2.0);
        self.agent = AgentState::Waiting { until: now + drawn.max(SHORTEST_WAIT) };
        self.failures = self.failures.saturating_add(1);
    }

    /// Terminates children that should end or take too long.
    fn end_overdue(&mut self, now: Instant, actions: &mut Vec<Action>) {
        let mut tell = |child, signal: Option<KillSignal>| {
            actions.extend(signal.map(|signal| Action::Signal(child, signal)))
        };
        let late = |since: Instant, limit| now.saturating_duration_since(since) >= limit;
        match &mut self.agent {
            AgentState::Stopping { termination } => tell(ChildKind::Agent, termination.escalate(now)),
            AgentState::Recovering { since, termination } if self.ending || late(*since, RECOVERY_LIMIT) => {
                tell(ChildKind::Recovery, termination.escalate(now));
            }
            _ => {}
        }
        if let Some((since, termination)) = &mut self.updater
            && (self.ending || late(*since, UPDATER_LIMIT))
        {
            tell(ChildKind::Updater, termination.escalate(now));
        }
    }

    /// A second request to end: kills instead of waiting.
    fn kill_all(&mut self, actions: &mut Vec<Action>) {
        let mut kill = |child, termination: &mut Termination| {
            actions.push(Action::Signal(child, KillSignal::Kill));
            *termination = Termination::Killed;
        };
        match &mut self.agent {
            AgentState::Stopping { termination } => kill(ChildKind::Agent, termination),
            AgentState::Recovering { termination, .. } => kill(ChildKind::Recovery, termination),
            _ => {}
        }
        if let Some((_, termination)) = &mut self.updater {
            kill(ChildKind::Updater, termination);
        }
    }

    /// Starts the updater when it is due: never two at once, and none during a recovery, which holds the lock.
    fn schedule(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.updates && now >= self.next_update {
            self.due = true;
            self.next_update = now + self.every;
        }
        let is_free = self.updater.is_none() && !matches!(self.agent, AgentState::Recovering { .. });
        if self.due && is_free {
            (self.due, self.updater) = (false, Some((now, Termination::NotRequested)));
            actions.push(Action::StartUpdater);
        }
    }
}

#[cfg(test)]
mod tests;
