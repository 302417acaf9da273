//! The supervisor through events and time, without processes.

use super::*;

const SECOND: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_secs(600);

/// A machine and the time that it lives in.
struct Life {
    machine: Machine,
    now: Instant,
    installed: bool,
}

impl Life {
    /// Updates are far away.
    fn new(enabled: bool) -> Self {
        let now = Instant::now();
        Self { machine: Machine::new(enabled, EVERY, now, || 0.99), now, installed: true }
    }

    fn on(&mut self, event: Event) -> Vec<Action> {
        self.machine.on(event, Context { now: self.now, installed: self.installed })
    }

    fn after(&mut self, time: Duration) -> Vec<Action> {
        self.now += time;
        self.on(Event::Tick)
    }

    /// With an agent that runs.
    fn running() -> Self {
        let mut life = Self::new(true);
        assert_eq!(life.on(Event::Tick), [Action::Recover]);
        assert_eq!(life.on(RECOVERED), [Action::StartAgent]);
        assert_eq!(life.machine.state(), ServiceState::Running);
        life
    }

    /// How long until the agent is started again.
    fn waits(&self) -> Duration {
        self.machine.starts_again_at().unwrap().saturating_duration_since(self.now)
    }
}

const RECOVERED: Event = Event::Recovered { settled: true, unproved: false };
/// A switch is under way.
const INTERRUPTED: Event = Event::Recovered { settled: false, unproved: false };
const FAILED: Event = Event::AgentEnded { on_request: false };

#[test]
fn an_agent_is_started_after_recovery_once_there_is_one() {
    let mut life = Life::new(true);
    life.installed = false;
    for _ in 0..3 {
        assert_eq!(life.after(SECOND), []);
    }
    assert!(life.machine.is_waiting_for_a_version());
    assert_eq!(life.machine.state(), ServiceState::Stopped, "an updater has nothing to reload");
    life.installed = true;
    assert_eq!(life.after(SECOND), [Action::Recover]);
    assert_eq!(life.after(SECOND), [], "one recovery is enough");
    assert_eq!(life.machine.state(), ServiceState::Failing);
    assert_eq!(life.on(RECOVERED), [Action::StartAgent]);
    assert_eq!(life.machine.state(), ServiceState::Running);
}

#[test]
fn the_first_start_waits_for_an_update_under_way_and_others_are_part_of_it() {
    let mut life = Life::new(true);
    life.on(Event::Tick);
    assert_eq!(life.on(INTERRUPTED), []);
    assert_eq!(life.after(SECOND), [Action::Recover]);
    assert_eq!(life.on(RECOVERED), [Action::StartAgent]);
    life.on(FAILED);
    assert_eq!(life.after(SECOND), [Action::Recover]);
    assert_eq!(life.on(INTERRUPTED), [Action::StartAgent]);

    let mut asked = Life::new(false);
    assert_eq!(asked.after(SECOND), []);
    assert_eq!(asked.on(Event::Start), [Action::Recover]);
    assert_eq!(asked.on(INTERRUPTED), [Action::StartAgent]);
}

#[test]
fn failures_are_spaced_out_up_to_a_bound_and_forgotten_after_a_good_minute() {
    let mut life = Life::running();
    let mut waits = Vec::new();
    for _ in 0..9 {
        life.on(FAILED);
        assert_eq!(life.machine.state(), ServiceState::Failing);
        waits.push(life.waits().as_secs_f64().ceil() as u64);
        let wait = life.waits();
        assert_eq!(life.after(wait - Duration::from_millis(1)), []);
        assert_eq!(life.after(Duration::from_millis(1)), [Action::Recover]);
        life.on(RECOVERED);
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    life.after(RAN_WELL - SECOND);
    life.on(FAILED);
    assert!(life.waits() > 59 * SECOND);
    let wait = life.waits();
    life.after(wait);
    life.on(RECOVERED);
    life.after(RAN_WELL);
    life.on(FAILED);
    assert_eq!(life.waits(), SECOND);
}

#[test]
fn no_wait_is_shorter_than_a_second_nor_twice_the_same_for_all() {
    let now = Instant::now();
    let mut waits = Vec::new();
    for random in [|| 0.0, || 0.999] {
        let mut machine = Machine::new(true, EVERY, now, random);
        for _ in 0..20 {
            machine.back_off(now);
            let wait = machine.starts_again_at().unwrap() - now;
            assert!((SHORTEST_WAIT..=LONGEST_WAIT).contains(&wait), "{wait:?}");
        }
        waits.push(machine.starts_again_at().unwrap() - now);
    }
    assert!(waits[1] > waits[0] + 25 * SECOND, "{waits:?}");
}

#[test]
fn an_agent_that_was_asked_to_end_stays_down_until_it_is_started() {
    let mut life = Life::running();
    assert_eq!(life.on(Event::AgentEnded { on_request: true }), []);
    assert_eq!(life.machine.state(), ServiceState::Stopped);
    assert_eq!(life.after(100 * SECOND), []);
    assert_eq!(life.on(Event::Reload), [], "there is none to reload");
    assert_eq!(life.on(Event::Start), [Action::Recover]);
}

#[test]
fn a_stop_asks_and_then_insists() {
    let mut life = Life::running();
    assert_eq!(life.on(Event::Stop), [Action::Signal(ChildKind::Agent, KillSignal::Terminate)]);
    assert_eq!(life.machine.state(), ServiceState::Stopped);
    assert_eq!(life.on(Event::Stop), [], "once");
    assert_eq!(life.after(GRACE - SECOND), []);
    assert_eq!(life.after(SECOND), [Action::Signal(ChildKind::Agent, KillSignal::Kill)]);
    assert_eq!(life.after(GRACE), []);
    assert_eq!(life.on(FAILED), [], "however it ended");
    assert_eq!(life.after(GRACE), []);
}

#[test]
fn a_start_while_it_stops_comes_after_that() {
    let mut life = Life::running();
    life.on(Event::Stop);
    assert_eq!(life.on(Event::Start), []);
    assert_eq!(life.on(Event::AgentEnded { on_request: true }), [Action::Recover]);
    assert_eq!(life.on(Event::Stop), [], "before it has started");
    assert_eq!(life.on(RECOVERED), []);
    assert_eq!(life.machine.state(), ServiceState::Stopped);
}

#[test]
fn a_reload_is_a_signal_or_an_early_start() {
    let mut life = Life::running();
    assert_eq!(life.on(Event::Reload), [Action::Signal(ChildKind::Agent, KillSignal::Hangup)]);
    life.on(FAILED);
    assert_eq!(life.on(Event::Reload), [Action::Recover]);
    assert_eq!(life.on(Event::Reload), []);
}

#[test]
fn a_stop_ends_the_wait_of_one_that_failed() {
    let mut life = Life::running();
    life.on(FAILED);
    assert_eq!(life.on(Event::Stop), []);
    assert_eq!(life.after(2 * LONGEST_WAIT), []);
    assert_eq!(life.machine.state(), ServiceState::Stopped);
}

#[test]
fn anothers_agent_is_waited_for() {
    let mut life = Life::new(true);
    assert_eq!(life.on(Event::Tick), [Action::Recover]);
    assert_eq!(life.on(Event::Taken), []);
    assert_eq!(life.after(SECOND), [Action::Recover]);
}

#[test]
fn an_updater_runs_in_its_time_and_never_beside_another() {
    let mut life = Life::running();
    assert_eq!(life.after(EVERY.mul_f64(0.98)), []);
    assert_eq!(life.after(EVERY.mul_f64(0.02)), [Action::StartUpdater]);
    assert_eq!(life.after(EVERY), []);
    assert_eq!(life.on(Event::UpdaterEnded), [Action::StartUpdater], "that one came due meanwhile");
    life.on(Event::UpdaterEnded);
    assert_eq!(life.after(EVERY - SECOND), []);
    assert_eq!(life.after(SECOND), [Action::StartUpdater]);
}

#[test]
fn a_ring_is_obeyed_at_once_or_after_what_is_in_the_way() {
    let mut life = Life::running();
    assert_eq!(life.on(Event::Wake), [Action::StartUpdater]);
    assert_eq!(life.on(Event::Wake), []);
    assert_eq!(life.on(Event::UpdaterEnded), [Action::StartUpdater]);
    assert_eq!(life.on(Event::UpdaterEnded), []);
    life.on(FAILED);
    life.after(SECOND);
    assert_eq!(life.on(Event::Wake), [], "a recovery has the lock");
    let actions = life.on(RECOVERED);
    assert_eq!(actions, [Action::StartAgent, Action::StartUpdater]);
}

#[test]
fn no_updater_runs_while_updates_are_off() {
    let mut life = Life::running();
    life.on(Event::SetUpdates(false));
    assert_eq!(life.on(Event::Wake), []);
    assert_eq!(life.after(3 * EVERY), []);
    assert_eq!(life.on(Event::SetUpdates(true)), [], "each host in a moment of its own");
    assert_eq!(life.after(EVERY), [Action::StartUpdater]);
}

#[test]
fn an_updater_that_hangs_is_ended() {
    let mut life = Life::running();
    life.on(Event::Wake);
    life.on(Event::SetUpdates(false));
    assert_eq!(life.after(UPDATER_LIMIT - SECOND), []);
    assert_eq!(life.after(SECOND), [Action::Signal(ChildKind::Updater, KillSignal::Terminate)]);
    assert_eq!(life.after(GRACE), [Action::Signal(ChildKind::Updater, KillSignal::Kill)]);
    life.on(Event::UpdaterEnded);
    assert_eq!(life.on(Event::SetUpdates(true)), []);
    assert_eq!(life.on(Event::Wake), [Action::StartUpdater]);
}

#[test]
fn a_recovery_that_hangs_is_ended() {
    let mut life = Life::new(true);
    life.on(Event::Tick);
    life.on(Event::SetUpdates(false));
    assert_eq!(life.after(RECOVERY_LIMIT), [Action::Signal(ChildKind::Recovery, KillSignal::Terminate)]);
    assert_eq!(life.after(GRACE), [Action::Signal(ChildKind::Recovery, KillSignal::Kill)]);
    assert_eq!(life.on(RECOVERED), [Action::StartAgent]);
}

#[test]
fn the_end_takes_everything_along_and_starts_nothing() {
    let mut life = Life::running();
    life.on(Event::Wake);
    let terminate = |child| Action::Signal(child, KillSignal::Terminate);
    assert_eq!(life.on(Event::End), [terminate(ChildKind::Agent), terminate(ChildKind::Updater)]);
    assert!(!life.machine.is_over());
    assert_eq!(life.on(Event::Start), []);
    assert_eq!(life.on(Event::Wake), []);
    assert_eq!(life.on(Event::UpdaterEnded), []);
    assert!(!life.machine.is_over());
    assert_eq!(life.on(Event::AgentEnded { on_request: true }), []);
    assert!(life.machine.is_over());

    let mut early = Life::new(true);
    early.on(Event::Tick);
    assert_eq!(early.on(Event::End), [terminate(ChildKind::Recovery)]);
    assert_eq!(early.on(RECOVERED), []);
    assert!(early.machine.is_over());

    let mut idle = Life::new(false);
    idle.on(Event::End);
    assert!(idle.machine.is_over());
}

#[test]
fn who_asks_twice_for_the_end_does_not_wait() {
    let mut life = Life::running();
    life.on(Event::Wake);
    life.on(Event::End);
    let kill = |child| Action::Signal(child, KillSignal::Kill);
    assert_eq!(life.on(Event::End), [kill(ChildKind::Agent), kill(ChildKind::Updater)]);
    assert_eq!(life.after(GRACE), []);
}

/// Its updater runs as soon as it does, even if nobody asked for updates.
#[test]
fn a_version_that_has_yet_to_prove_itself_is_proved_at_its_start() {
    let mut life = Life::new(true);
    life.on(Event::SetUpdates(false));
    life.on(Event::Tick);
    let unproved = Event::Recovered { settled: true, unproved: true };
    assert_eq!(life.on(unproved), [Action::StartAgent, Action::StartUpdater]);
    life.on(FAILED);
    assert_eq!(life.after(SECOND), [Action::Recover]);
    assert_eq!(life.on(unproved), [Action::StartAgent], "that one is still at work");
}
