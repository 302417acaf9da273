//! The cluster of the property tests: one store, servers with stale caches, random hosts and operators. All invariants
//! are checked after every step.

mod answers;
mod ending;
mod flights;
mod hosts;
pub mod invariants;
mod operators;
mod server;
mod settled;
mod store;

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use refit_types::{ClusterMaintenanceConfig, HostId, RolloutRecord, Schedule};

use crate::model::{Settings, after};
use flights::Flight;
pub use hosts::HostStep;
use invariants::{COUNTS, EPOCH, Held, SETTLES, hold};
pub use operators::{OperatorStep, expression};
pub use server::{Commit, Server};
pub use store::Store;

/// An invariant that did not hold.
#[derive(Debug)]
pub struct Broken {
    pub invariant: &'static str,
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.invariant, self.what)
    }
}

#[derive(Debug, Clone)]
pub struct World {
    pub now: Timestamp,
    pub store: Store,
    pub servers: Vec<Server>,
    pub ids: Vec<HostId>,
    /// In each group of this epoch, when last looked at.
    pub in_flight: BTreeMap<(u64, String), u32>,
    /// When each group of this epoch halted.
    pub halted: BTreeMap<(u64, String), Timestamp>,
    /// Who was told to go and may be away.
    pub flights: BTreeMap<HostId, Flight>,
    /// How often each group was opened or closed since servers began to settle.
    pub edges: BTreeMap<usize, u32>,
    /// How often each thing happened that a rollout may bring.
    pub tally: BTreeMap<String, u32>,
}

/// One thing that happens.
#[derive(Debug, Clone)]
pub enum Step {
    /// Time passes.
    Pass { seconds: u32 },
    /// Time passes until the next edge of a window, and a little more or less.
    PassToEdge { seconds: i8 },
    /// Time passes until a server wanted to be woken.
    PassToWaking { server: u8 },
    /// A server's clock is set.
    Skew { server: u8, seconds: i16 },
    /// A server's watch tells it of some transactions.
    Hear { server: u8, count: u8 },
    /// A server's watch tells it again what it has told before.
    HearAgain { server: u8, back: u8 },
    /// A server reads the operators' settings and the records of groups, however far its watch is.
    Look { server: u8 },
    /// A server hears everything.
    HearAll { server: u8 },
    /// A server decides, and what still holds is stored at once.
    Decide { server: u8 },
    /// A server decides, and sends that to the store.
    Send { server: u8 },
    /// The oldest transaction that a server has sent reaches the store, or does not.
    Commit { server: u8, fate: Fate },
    /// All servers hear and decide until nothing is left to do.
    Settle,
    /// A server starts anew.
    Restart { server: u8 },
    /// A server could not reach its store until now.
    Outage { server: u8 },
    /// Something happens on a host.
    Host { host: u8, step: HostStep },
    /// A host joins that was never there before.
    Arrive { role: u8 },
    /// A host under way belongs to another group when another version is chosen, and to this one after it has opened.
    Stray { host: u8, version: u8, from: u8, to: u8 },
    /// Hosts are told and wake their updaters; operators keep everyone from going for a while, and may choose another version
    /// meanwhile.
    Hesitate { how: u8, seconds: u16, version: Option<u8> },
    /// Hosts that were told to go do so: all, or some.
    HostsGo { some: u16 },
    /// An operator does something.
    Operator(OperatorStep),
    /// Hosts go on and a server hears of it; before it decides, another one has stored what that means. It reads the
    /// records of groups, which its watch is behind, decides, hears of all hosts, and only then reaches the store.
    Overtaken { server: u8, other: u8, some: u16, fate: Fate },
    /// Hosts arrive, and before the servers decide about that, an operator does something they did not hear of.
    Race { some: u16, step: OperatorStep },
}

/// What becomes of a transaction on its way.
#[derive(Debug, Clone, Copy)]
pub enum Fate {
    /// It is stored if it still holds, and the server hears of it.
    Answered,
    /// It reaches the store, and the answer is lost.
    Unanswered,
    /// It never reaches the store.
    Lost,
    /// It reaches the store twice.
    Repeated,
}

impl World {
    pub fn new(config: ClusterMaintenanceConfig, servers: &[u8], now: Timestamp) -> Self {
        let version = operators::version(1);
        let fingerprint = refit_rollout::fingerprint(&version, Schedule::Regular, &config);
        let rollout = RolloutRecord::begun(1, fingerprint, version, Schedule::Regular, now);
        let store = Store::new(Settings { config, rollout }, now);
        let start = |batch: &u8| Server::start(&store, now, usize::from((*batch).max(1)));
        let servers = servers.iter().map(start).collect();
        let (in_flight, halted, flights, edges, tally) = Default::default();
        Self { now, servers, store, ids: Vec::new(), in_flight, halted, flights, edges, tally }
    }

    pub fn settings(&self) -> &Settings {
        self.store.records.settings()
    }

    /// Lets something happen, and looks whether all is still well.
    pub fn step(&mut self, step: &Step) -> Held {
        let servers = self.servers.len();
        let nth = |server: &u8| usize::from(*server) % servers;
        match step {
            Step::Pass { seconds } => self.now = after(self.now, i64::from(*seconds)),
            Step::PassToEdge { seconds } => self.pass_to_edge(i64::from(*seconds)),
            Step::PassToWaking { server } => {
                let server = &self.servers[nth(server)];
                let wanted = server.engine.wake_at(self.now + server.skew);
                self.now = wanted.map_or(self.now, |at| self.now.max(at));
            }
            Step::Skew { server, seconds } => {
                let server = nth(server);
                self.servers[server].skew = SignedDuration::from_secs(i64::from(*seconds));
                self.forget_waiting();
            }
            Step::Hear { server, count } => {
                self.servers[nth(server)].catch_up(&self.store, usize::from(*count));
            }
            Step::HearAgain { server, back } => {
                self.servers[nth(server)].hear_again(&self.store, usize::from(*back));
            }
            Step::Look { server } => self.servers[nth(server)].look(&self.store),
            Step::HearAll { server } => self.servers[nth(server)].catch_up_with_all(&self.store),
            Step::Decide { server } => drop(self.decide(nth(server))?),
            Step::Send { server } => {
                let sent = self.decided(nth(server))?;
                self.servers[nth(server)].commits.extend(sent);
            }
            Step::Commit { server, fate } => {
                let server = nth(server);
                if !self.servers[server].commits.is_empty() {
                    let commit = self.servers[server].commits.remove(0);
                    let is_stored = self.commit(server, &commit, *fate)?;
                    *self.tally.entry("Late".into()).or_default() += u32::from(is_stored);
                }
            }
            Step::Settle => self.settle()?,
            Step::Restart { server } => {
                let (server, batch) = (nth(server), self.servers[nth(server)].batch);
                self.servers[server] = Server::start(&self.store, self.now, batch);
            }
            Step::Outage { server } => {
                let server = &mut self.servers[nth(server)];
                server.reachable_since = self.now + server.skew;
                server.engine.reachable_since(server.reachable_since);
            }
            Step::Host { host, step } => self.host_step(usize::from(*host), step),
            Step::Arrive { role } => self.arrive(*role),
            Step::Stray { host, version, from, to } => {
                let host = hosts::SOMEONE_IN_FLIGHT + usize::from(*host % 128);
                self.host_step(host, &HostStep::Relabel { role: *from });
                self.operator_step(&OperatorStep::Version { version: *version })?;
                self.settle()?;
                self.host_step(host, &HostStep::Relabel { role: *to });
                self.settle()?;
            }
            Step::Hesitate { how, seconds, version } => self.hesitate(*how, *seconds, *version)?,
            Step::HostsGo { some } => self.hosts_go(*some),
            Step::Operator(step) => self.operator_step(step)?,
            Step::Overtaken { server, other, some, fate } => {
                let (server, other) = (nth(server), nth(other));
                self.hosts_go(*some);
                for number in [server, other] {
                    self.servers[number].catch_up_with_all(&self.store);
                }
                self.decide(other)?;
                self.servers[server].look(&self.store);
                let sent = self.decided(server)?;
                self.servers[server].catch_up_with_all(&self.store);
                for commit in &sent {
                    self.commit(server, commit, *fate)?;
                }
            }
            Step::Race { some, step } => {
                self.hosts_go(*some);
                self.servers.iter_mut().for_each(|server| server.catch_up_with_all(&self.store));
                self.operator_step(step)?;
                invariants::of_the_store(self)?;
                for number in 0..servers {
                    self.decide(number)?;
                }
            }
        }
        self.check()?;
        self.check_secrecy()
    }

    fn check(&mut self) -> Held {
        invariants::of_the_store(self)?;
        answers::of_the_servers(self)
    }

    fn check_secrecy(&self) -> Held {
        let looked_at = self.store.revision.0 as usize;
        let server = &self.servers[looked_at % self.servers.len()];
        match self.ids.get(looked_at % self.ids.len().max(1)) {
            Some(host) => answers::outcomes_are_secret(server, *host, self.now + server.skew),
            None => Ok(()),
        }
    }

    /// What one server decides on what it knows.
    fn decided(&mut self, number: usize) -> Result<Vec<Commit>, Broken> {
        let now = self.now + self.servers[number].skew;
        let commits = self.servers[number].decide(now);
        for commit in commits.iter().filter(|commit| commit.holds(&self.store)) {
            invariants::of_a_decision(&self.store, &self.servers[number], &commit.decision, now)?;
            self.nobody_is_away_uncounted(&self.servers[number], &commit.decision, now)?;
        }
        Ok(commits)
    }

    /// One server decides on what it knows, and stores it; says how much of it was stored.
    fn decide(&mut self, number: usize) -> Result<usize, Broken> {
        let is_up_to_date = self.servers[number].is_up_to_date(&self.store);
        let (mut stored, commits) = (0, self.decided(number)?);
        for commit in &commits {
            stored += usize::from(self.commit(number, commit, Fate::Answered)?);
        }
        let in_vain = is_up_to_date && stored == 0 && !commits.is_empty();
        hold!(SETTLES, !in_vain, "what was decided on all there is was refused");
        Ok(stored + usize::from(self.keep_good_version(number)))
    }

    /// A server stores the version of a rollout that has ended well; whether it did.
    fn keep_good_version(&mut self, number: usize) -> bool {
        let (server, mut settings) = (&self.servers[number], self.settings().clone());
        let is_current = server.cache.settings.revision == self.store.records.settings.revision;
        let is_kept = settings.rollout.last_good.as_ref() == Some(&settings.rollout.version);
        if is_kept || !is_current || server.is_behind_its_cache() || !server.has_ended_well() {
            return false;
        }
        settings.rollout.last_good = Some(settings.rollout.version.clone());
        self.store.put_settings(settings, self.now);
        *self.tally.entry("Ended well".into()).or_default() += 1;
        true
    }

    /// A transaction reaches the store; whether it was stored.
    fn commit(&mut self, number: usize, commit: &Commit, fate: Fate) -> Result<bool, Broken> {
        if matches!(fate, Fate::Lost) {
            *self.tally.entry("Lost".into()).or_default() += 1;
            return Ok(false);
        }
        if !commit.holds(&self.store) {
            *self.tally.entry("Refused".into()).or_default() += 1;
            return Ok(false);
        }
        let decision = &commit.decision;
        let before = self.store.clone_hosts(decision.transitions.iter().map(|planned| planned.host));
        let revision = commit.store(&mut self.store, self.now);
        for (planned, before) in decision.transitions.iter().zip(before) {
            let after = self.store.records.host_record(planned.host).and_then(|host| host.upgrade.as_deref());
            invariants::of_a_transition(&before, after, planned.transition, commit.decided_at)?;
        }
        self.note_flights(commit)?;
        match fate {
            Fate::Repeated => hold!(COUNTS, !commit.holds(&self.store), "stored twice: {decision:?}"),
            Fate::Unanswered => *self.tally.entry("Unanswered".into()).or_default() += 1,
            _ => {}
        }
        if !matches!(fate, Fate::Unanswered) {
            self.servers[number].committed(commit, revision, &self.store);
        }
        let opening = |record: &refit_types::GroupRecord| record.window.map(|window| window.start);
        if opening(&decision.record) != opening(&decision.before) {
            *self.edges.entry(decision.group).or_default() += 1;
        }
        let transitions = decision.transitions.iter().map(|planned| format!("{:?}", planned.transition));
        let entered = (decision.record.state != decision.before.state)
            .then(|| decision.record.state.as_str().to_owned());
        for happened in transitions.chain(entered) {
            *self.tally.entry(happened).or_default() += 1;
        }
        invariants::of_the_store(self)?;
        Ok(true)
    }

    /// Everyone hears everything and decides, until nothing is left to do.
    pub fn settle(&mut self) -> Held {
        let same_clock = self.servers.iter().all(|server| server.skew == SignedDuration::ZERO);
        for number in 0..self.servers.len() {
            for commit in std::mem::take(&mut self.servers[number].commits) {
                self.commit(number, &commit, Fate::Answered)?;
            }
        }
        self.edges.clear();
        for round in 0.. {
            let mut stored = 0;
            for number in 0..self.servers.len() {
                self.servers[number].catch_up_with_all(&self.store);
                stored += self.decide(number)?;
            }
            if stored == 0 {
                break;
            }
            hold!(SETTLES, round < 200, "servers go on deciding at {}", self.now);
        }
        for (group, edges) in &self.edges {
            let most = 2 * self.servers.len() as u32 + 1;
            hold!(SETTLES, *edges <= most, "group {group} opened and closed {edges} times at {}", self.now);
        }
        self.note_what_is_seen();
        if same_clock {
            self.note_waiting();
            settled::of_what_is_settled(self)?;
            settled::of_sleep(self)?;
        }
        Ok(())
    }

    /// Counts what is rare: without it, little is said by what holds.
    fn note_what_is_seen(&mut self) {
        let (settings, view) = (self.settings(), self.servers[0].engine.view());
        let blocked = (0..settings.groups().len()).filter_map(|group| view.blocked_by(group, self.now));
        let mut seen: Vec<&str> = blocked
            .filter_map(|why| match why {
                refit_rollout::BlockedBy::NoHosts => Some("Selects no hosts"),
                refit_rollout::BlockedBy::NobodyUpgraded { .. } => Some("Nobody could be upgraded"),
                _ => None,
            })
            .collect();
        if settings.rollout.schedule == Schedule::Immediate && settings.rollout.paused.is_some() {
            seen.push("Paused immediate");
        }
        let hosts = self.store.records.host_records();
        for host in hosts.iter().filter(|host| settings.runs_version(host)) {
            let updater = host.report.as_ref().and_then(|report| report.updater.as_ref());
            match updater.filter(|updater| updater.unproved) {
                Some(_) if settings.has_version(host) => seen.push("Unproved first version"),
                Some(_) if settings.has_slot(host) => seen.push("Unproved"),
                _ => {}
            }
        }
        for seen in seen {
            *self.tally.entry(seen.into()).or_default() += 1;
        }
    }

    fn pass_to_edge(&mut self, seconds: i64) {
        let group_windows = self.settings().groups().iter().map(|group| &group.window);
        let edges = group_windows.flat_map(|window| {
            let closes = crate::model::open_window(window, self.now).map(|open| open.end);
            [Some(crate::model::next_opening(window, self.now)), closes]
        });
        let next = edges.flatten().min().unwrap_or(self.now);
        self.now = after(next, seconds).max(self.now);
    }

    /// Right after a new epoch began, nothing has happened in it.
    fn nothing_has_happened(&self) -> Held {
        let server = Server::start(&self.store, self.now, 1);
        let rollout = &self.settings().rollout;
        for (n, group) in self.settings().groups().iter().enumerate() {
            let fresh = refit_types::GroupRecord::fresh(rollout.epoch, rollout.began_at);
            let known = server.engine.view().group_record(n).cloned();
            let paused = known.as_ref().and_then(|record| record.paused);
            let expected = Some(refit_types::GroupRecord { paused, ..fresh });
            hold!(EPOCH, known == expected, "{}: {known:?}", group.name);
        }
        for host in self.store.records.host_records() {
            let answer = server.engine.view().answer(Some(host.host_id), self.now);
            let is_grouped = self.settings().group_of(host).is_some();
            hold!(EPOCH, !(is_grouped && answer.auto_update), "{} goes on", host.host_id);
        }
        Ok(())
    }
}
