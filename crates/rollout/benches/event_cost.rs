//! What one heartbeat costs the engine, in instructions, in fleets of a thousand to a million hosts; and one changed
//! host together with the view that is published of it.
//!
//! `cargo bench -p refit-rollout --bench event_cost`; it runs itself under callgrind, which counts only
//! inside the events. With `REFIT_BENCH_STRICT=1` it fails when a figure is missed.

mod fleet;

use std::hint::black_box;
use std::process::{Command, ExitCode};

use fleet::half_way::HalfWay;
use fleet::{GROUPS, Outcome, start};
use jiff::{SignedDuration, Timestamp};
use refit_rollout::{Decision, Engine, HostFacts, InProgress, RolloutView};
use refit_types::Revision;

const FLEETS: [u32; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Fewer than the smallest fleet has left to do.
const EVENTS: u32 = 80;

/// What is measured: its name, the function in which callgrind counts, and how much more it may cost in the largest
/// fleet than in the smallest.
struct Kind {
    name: &'static str,
    function: &'static str,
    most_growth: f64,
}

/// A heartbeat that says nothing new, as nearly all do.
const UNCHANGED: Kind = Kind { name: "unchanged", function: "*::one_event", most_growth: 1.3 };
/// One that frees a slot.
const FINISHES: Kind = Kind { name: "finishes", function: "*::one_event", most_growth: 1.3 };
/// What the engine takes in once the decision about that is stored: the transitions of two hosts and a record.
const FOLLOWS: Kind = Kind { name: "follows", function: "*::what_follows", most_growth: 1.3 };
/// One changed host, and a view of the fleet with it: readers hold the view before, so the change copies its way
/// through the tree of hosts.
const PUBLISHES: Kind = Kind { name: "publishes", function: "*::one_publish", most_growth: 2.0 };

const KINDS: [Kind; 4] = [UNCHANGED, FINISHES, FOLLOWS, PUBLISHES];

fn main() -> Outcome<ExitCode> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, measured, kind, hosts] = arguments.as_slice()
        && measured == "measure"
    {
        return measure(kind, hosts.parse()?);
    }
    println!("event_cost: instructions for one heartbeat (host and decide) or publish, {GROUPS} groups");
    println!("  {:>12}{}", "hosts", cells(std::array::from_fn(|kind| KINDS[kind].name.to_owned())));
    let mut table = Vec::new();
    for hosts in FLEETS {
        let mut row = [0.0; KINDS.len()];
        for (cost, kind) in row.iter_mut().zip(&KINDS) {
            *cost = counted(kind, hosts)?;
        }
        println!("  {hosts:>12}{}", cells(row.map(|cost| format!("{cost:.0}"))));
        table.push(row);
    }
    let (first, last) = (table[0], table[FLEETS.len() - 1]);
    let growth: [f64; KINDS.len()] = std::array::from_fn(|kind| last[kind] / first[kind]);
    println!("  {:>12}{}", "growth", cells(growth.map(|growth| format!("{growth:.2}x"))));
    println!(
        "  {:>12}{}",
        "want at most",
        cells(std::array::from_fn(|kind| format!("{:.1}x", KINDS[kind].most_growth)))
    );
    let is_good = growth.iter().zip(&KINDS).all(|(growth, kind)| *growth <= kind.most_growth);
    let is_strict = std::env::var_os("REFIT_BENCH_STRICT").is_some_and(|value| value == "1");
    Ok(if is_good || !is_strict { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn cells(texts: [String; KINDS.len()]) -> String {
    texts.iter().map(|text| format!("  {text:>10}")).collect()
}

/// Instructions for one event, as callgrind counts them in a process of its own.
fn counted(kind: &Kind, hosts: u32) -> Outcome<f64> {
    let ran = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect={}", kind.function))
        .arg(std::env::current_exe()?)
        .args(["measure", kind.name, &hosts.to_string()])
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
    let mut fleet = HalfWay::new(hosts)?;
    if kind == PUBLISHES.name {
        measure_publishes(&mut fleet);
        return Ok(ExitCode::SUCCESS);
    }
    for number in 0..EVENTS {
        let now = start() + SignedDuration::from_secs(1 + i64::from(number));
        // One that finishes is counted, and the next is started.
        let (facts, transitions) = match kind == UNCHANGED.name {
            true => (fleet.any(number), 0),
            false => (fleet.finished()?, 2),
        };
        let decisions = black_box(one_event(&mut fleet.engine, black_box(&facts), now));
        if decisions.iter().map(|decision| decision.transitions.len()).sum::<usize>() != transitions {
            return Err(format!("a heartbeat that {kind} led to {decisions:?}").into());
        }
        let stored: Vec<_> = decisions.iter().map(|decision| fleet.stored(decision, now)).collect();
        what_follows(&mut fleet, &decisions, &stored, now);
    }
    Ok(ExitCode::SUCCESS)
}

fn measure_publishes(fleet: &mut HalfWay) {
    let mut published = fleet.engine.view().clone();
    for number in 0..EVENTS {
        let facts = fleet.any(number);
        let facts = HostFacts { attempt: facts.attempt + 1, ..facts };
        one_publish(&mut fleet.engine, black_box(&facts), &mut published);
    }
    black_box(published);
}

/// What is measured.
#[inline(never)]
fn one_event(engine: &mut Engine, facts: &HostFacts, now: Timestamp) -> Vec<Decision> {
    engine.host(facts, Revision::default());
    engine.decide(now, 80, InProgress::NOTHING)
}

/// Measured by itself: until the engine knows what was stored, and has nothing more to say.
#[inline(never)]
fn what_follows(fleet: &mut HalfWay, decisions: &[Decision], stored: &[Vec<HostFacts>], now: Timestamp) {
    for (decision, stored) in decisions.iter().zip(stored) {
        fleet.apply(decision, stored);
    }
    black_box(fleet.engine.decide(now, 80, InProgress::NOTHING));
}

/// Measured by itself: the readers' view is replaced after the change, and the one before is dropped.
#[inline(never)]
fn one_publish(engine: &mut Engine, facts: &HostFacts, published: &mut RolloutView) {
    engine.host(facts, Revision::default());
    *published = engine.view().clone();
}
