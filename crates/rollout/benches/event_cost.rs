//! What one heartbeat costs the engine, in instructions, in fleets of a thousand to a million hosts.
//!
//! `cargo bench -p refit-rollout --bench event_cost`; it runs itself under callgrind, which counts only
//! inside the events. With `REFIT_BENCH_STRICT=1` it fails when a figure is missed.

mod fleet;

use std::hint::black_box;
use std::process::{Command, ExitCode};

use fleet::{GROUPS, Outcome, plan, start};
use jiff::{SignedDuration, Timestamp};
use refit_rollout::{Decision, End, Ended, Engine, HostFacts, InProgress, Mark, Marked};
use refit_types::{GroupRecord, HostId, Revision};
use uuid::Uuid;

const FLEETS: [u32; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Fewer than the smallest fleet has left to do.
const EVENTS: u32 = 80;
const WANTED_GROWTH: f64 = 2.0;

/// The many heartbeats that say nothing new, the one that frees a slot, and what the engine takes in once the
/// decision about it is stored: two marked hosts and a record.
const KINDS: [&str; 3] = ["unchanged", "finishes", "follows"];

fn main() -> Outcome<ExitCode> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, measured, kind, hosts] = arguments.as_slice()
        && measured == "measure"
    {
        return measure(kind, hosts.parse()?);
    }
    println!("event_cost: instructions for one heartbeat (host and decide), {GROUPS} groups");
    println!("  {:>9}  {:>10}  {:>10}  {:>10}", "hosts", KINDS[0], KINDS[1], KINDS[2]);
    let mut table = Vec::new();
    for hosts in FLEETS {
        let mut row = [0.0; KINDS.len()];
        for (cost, kind) in row.iter_mut().zip(KINDS) {
            *cost = counted(kind, hosts)?;
        }
        println!("  {hosts:>9}  {:>10.0}  {:>10.0}  {:>10.0}", row[0], row[1], row[2]);
        table.push(row);
    }
    let (first, last) = (table[0], table[FLEETS.len() - 1]);
    let growth: [f64; KINDS.len()] = std::array::from_fn(|kind| last[kind] / first[kind]);
    println!("  {:>9}  {:>9.2}x  {:>9.2}x  {:>9.2}x", "growth", growth[0], growth[1], growth[2]);
    println!("  want at most {WANTED_GROWTH}x");
    let is_good = growth.iter().all(|growth| *growth <= WANTED_GROWTH);
    let is_strict = std::env::var_os("REFIT_BENCH_STRICT").is_some_and(|value| value == "1");
    Ok(if is_good || !is_strict { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Instructions for one event, as callgrind counts them in a process of its own.
fn counted(kind: &str, hosts: u32) -> Outcome<f64> {
    let measured = if kind == KINDS[2] { "*::what_follows" } else { "*::one_event" };
    let ran = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect={measured}"))
        .arg(std::env::current_exe()?)
        .args(["measure", kind, &hosts.to_string()])
        .output()
        .map_err(|error| format!("valgrind cannot be run: {error}; `make test-deps` installs it"))?;
    let told = String::from_utf8_lossy(&ran.stderr);
    let collected = told.lines().find_map(|line| line.split_once("Collected : "));
    match collected {
        Some((_, count)) if ran.status.success() => Ok(count.trim().parse::<f64>()? / f64::from(EVENTS)),
        _ => Err(format!("callgrind failed:\n{told}").into()),
    }
}

fn measure(kind: &str, hosts: u32) -> Outcome<ExitCode> {
    let mut fleet = Fleet::half_way(hosts)?;
    for number in 0..EVENTS {
        let now = start() + SignedDuration::from_secs(1 + i64::from(number));
        let facts = match kind == KINDS[0] {
            true => fleet.any(number),
            false => fleet.finished()?,
        };
        let decisions = black_box(one_event(&mut fleet.engine, black_box(&facts), now));
        if decisions.iter().map(|decision| decision.marks.len()).sum::<usize>() != fleet.expected(kind) {
            return Err(format!("a heartbeat that {kind} led to {decisions:?}").into());
        }
        what_follows(&mut fleet, &decisions, now);
    }
    Ok(ExitCode::SUCCESS)
}

/// What is measured.
#[inline(never)]
fn one_event(engine: &mut Engine, facts: &HostFacts, now: Timestamp) -> Vec<Decision> {
    engine.host(facts, Revision::default());
    engine.decide(now, 80, InProgress::NOTHING)
}

/// Measured by itself: until the engine knows what was stored, and has nothing more to say.
#[inline(never)]
fn what_follows(fleet: &mut Fleet, decisions: &[Decision], now: Timestamp) {
    for decision in decisions {
        fleet.apply(decision, now);
    }
    black_box(fleet.engine.decide(now, 80, InProgress::NOTHING));
}

/// A rollout under way: two groups are done, the third is half done with its slots full, two wait.
struct Fleet {
    engine: Engine,
    hosts: u32,
    /// Those in flight, in the order in which they end.
    flying: Vec<HostId>,
}

impl Fleet {
    fn half_way(hosts: u32) -> Outcome<Self> {
        let mut fleet = Self { engine: Engine::new(plan()?, start()), hosts, flying: Vec::new() };
        for number in 0..hosts {
            fleet.engine.host(&fleet.newcomer(number), Revision::default());
        }
        let now = start();
        // Each round of starts is finished at once, until the third group is half done.
        loop {
            let decisions = fleet.engine.decide(now, 1000, InProgress::NOTHING);
            let upgraded = fleet.engine.view().group_record(2).map_or(0, |record| record.upgraded);
            if upgraded >= hosts / GROUPS / 2 && decisions.is_empty() {
                break;
            }
            for decision in &decisions {
                fleet.apply(decision, now);
            }
            if decisions.is_empty() {
                for host in std::mem::take(&mut fleet.flying) {
                    let facts = fleet.engine.view().facts(host).ok_or("an unknown host is in flight")?;
                    fleet.engine.host(&HostFacts { on_version: true, ..facts }, Revision::default());
                }
            }
        }
        if fleet.flying.is_empty() {
            return Err("nothing is in flight".into());
        }
        Ok(fleet)
    }

    fn id(number: u32) -> HostId {
        // Any odd multiplier spreads the numbers over all UUIDs.
        let spread = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        HostId::new(Uuid::from_u128(spread))
    }

    fn newcomer(&self, number: u32) -> HostFacts {
        HostFacts {
            host: Self::id(number),
            group: usize::try_from(number % GROUPS).ok(),
            member: false,
            started: None,
            ended: None,
            attempt: 0,
            on_version: false,
            proving: false,
            held: false,
            acknowledged: false,
            undone: false,
            lost_since: None,
        }
    }

    fn any(&self, number: u32) -> HostFacts {
        let number = number.wrapping_mul(7919) % self.hosts;
        self.engine.view().facts(Self::id(number)).unwrap_or_else(|| self.newcomer(number))
    }

    fn finished(&mut self) -> Outcome<HostFacts> {
        let host = self.flying.remove(0);
        let facts = self.engine.view().facts(host).ok_or("an unknown host is in flight")?;
        Ok(HostFacts { on_version: true, acknowledged: true, ..facts })
    }

    /// One that finishes is counted, and the next is started.
    fn expected(&self, kind: &str) -> usize {
        if kind == KINDS[0] { 0 } else { 2 }
    }

    fn apply(&mut self, decision: &Decision, now: Timestamp) {
        for Marked { host, mark, .. } in &decision.marks {
            let Some(facts) = self.engine.view().facts(*host) else { continue };
            let facts = match mark {
                Mark::Admit => HostFacts { member: true, ..facts },
                Mark::AdmitUpgraded => HostFacts { member: true, ended: Some(Ended::Upgraded), ..facts },
                Mark::Start => {
                    self.flying.push(*host);
                    HostFacts { started: Some(now), attempt: facts.attempt + 1, ..facts }
                }
                Mark::TakeBack => HostFacts { started: None, ..facts },
                Mark::Finish(End::Upgraded) => HostFacts { ended: Some(Ended::Upgraded), ..facts },
                Mark::Finish(End::TimedOut) => {
                    HostFacts { ended: Some(Ended::TimedOut { round: 0 }), ..facts }
                }
                Mark::Finish(_) => HostFacts { ended: Some(Ended::Failed { round: 0 }), ..facts },
            };
            self.engine.host(&facts, Revision::default());
        }
        let record: &GroupRecord = &decision.record;
        self.engine.record(decision.group, record, Revision::default());
    }
}
