//! A rollout to a million hosts, simulated: how long it takes, and what it holds of each host at most; and what the
//! engine alone holds of each in the middle of such a rollout.
//!
//! `cargo bench -p refit-rollout --bench simulate`; the drawing and the text are left in `target/bench`.
//! With `REFIT_BENCH_STRICT=1` it fails when a figure is missed.

mod fleet;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use fleet::half_way::HalfWay;
use fleet::{Outcome, hosts, plan, start};
use peak_alloc::PeakAlloc;
use refit_rollout::{Behaviour, Simulation};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const HOSTS: u32 = 1_000_000;
const WANTED_BYTES: f64 = 200.0;

fn main() -> Outcome<ExitCode> {
    // Not `usage - before`: what a million hosts need includes all that goes with them.
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let behaviour = Behaviour {
        fail: "0.5%".parse()?,
        hang: "0.2%".parse()?,
        die: "0.2%".parse()?,
        ..Behaviour::default()
    };
    let simulation = Simulation { plan: plan()?, start: start(), fleet: hosts(HOSTS)?, behaviour, days: 30 };
    let began = Instant::now();
    let timeline = simulation.run()?;
    let took = began.elapsed();
    let each = (ALLOCATOR.peak_usage() - before) as f64 / f64::from(HOSTS);

    // In any order, as hosts join: the leaves of the tree of hosts are not full then.
    let before = ALLOCATOR.current_usage();
    let half_way = HalfWay::new(HOSTS)?;
    let engine = (ALLOCATOR.current_usage() - before) as f64 / f64::from(HOSTS);
    drop(half_way);

    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("simulate.svg"), timeline.to_svg())?;
    std::fs::write(folder.join("simulate.txt"), timeline.to_text())?;

    println!("{}\n", timeline.to_text());
    println!("simulate: {HOSTS} hosts, 5 groups, max_in_flight 1%");
    println!("  time                 {:.1} s", took.as_secs_f64());
    println!("  peak for each host   {each:.0} bytes (want at most {WANTED_BYTES:.0})");
    println!("  engine, each host    {engine:.0} bytes (want at most {WANTED_BYTES:.0})");
    println!("  finished             {}", timeline.finished);
    println!("  limit passed         {}", timeline.limit_passed);
    println!("  drawn in             target/bench/simulate.svg, target/bench/simulate.txt");
    let is_good = timeline.finished && !timeline.limit_passed && each.max(engine) <= WANTED_BYTES;
    let is_strict = std::env::var_os("REFIT_BENCH_STRICT").is_some_and(|value| value == "1");
    Ok(if is_good || !is_strict { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
