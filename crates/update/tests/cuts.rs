//! Power cuts, kills and full disks before every single operation of an installation, an upgrade, a failed upgrade and a
//! downgrade: the remaining version starts with its own database, and one more run ends as if nothing had happened.

#![allow(clippy::unwrap_used)]

#[path = "cuts/clocks.rs"]
mod clocks;
#[path = "cuts/disk.rs"]
mod disk;
mod host;
#[path = "cuts/machine.rs"]
mod machine;
#[path = "cuts/page.rs"]
mod page;

use disk::MemoryDisk;
use machine::Machine;

/// What a machine goes through, and what it comes to when nothing goes wrong.
struct Scenario {
    name: &'static str,
    /// Versions that were switched to before, in order.
    history: &'static [&'static str],
    target: &'static str,
    /// Versions that never become healthy.
    broken: &'static [&'static str],
    ends_on: &'static str,
}

const SCENARIOS: [Scenario; 5] = [
    Scenario { name: "first install", history: &[], target: "1.0.0", broken: &[], ends_on: "1.0.0" },
    Scenario { name: "upgrade", history: &["1.0.0"], target: "2.0.0", broken: &[], ends_on: "2.0.0" },
    Scenario {
        name: "failed upgrade",
        history: &["1.0.0"],
        target: "2.0.0",
        broken: &["2.0.0"],
        ends_on: "1.0.0",
    },
    Scenario {
        name: "downgrade",
        history: &["1.0.0", "2.0.0"],
        target: "1.0.0",
        broken: &[],
        ends_on: "1.0.0",
    },
    Scenario {
        name: "back to what was left",
        history: &["1.0.0", "2.0.0", "1.0.0"],
        target: "2.0.0",
        broken: &[],
        ends_on: "2.0.0",
    },
];

impl Scenario {
    fn machine(&self) -> Machine {
        let machine = Machine::new();
        for version in self.history {
            machine.switch_to(version).unwrap();
            // The first one is installed before its agent runs, and proved by the next run.
            machine.switch_to(version).unwrap();
        }
        machine.break_versions(self.broken);
        machine
    }
}

/// What came of every cut, as a page for people.
#[test]
fn nothing_is_lost_wherever_the_power_goes() {
    let (mut cuts, mut kills, mut summary, mut tables) = (0, 0, String::new(), String::new());
    for scenario in &SCENARIOS {
        let clean = scenario.machine();
        let before = clean.platform.operations();
        let _ = clean.switch_to(scenario.target);
        assert_eq!(clean.active().as_deref(), Some(scenario.ends_on), "{}", scenario.name);
        clean.assert_sound(scenario.name);
        let operations = clean.platform.log_since(before);
        assert!(operations.len() > 10, "{}: only {} operations", scenario.name, operations.len());
        let mut table = String::new();
        for (cut, operation) in operations.iter().enumerate() {
            let what = format!("{} cut before {operation:?} ({cut})", scenario.name);
            let [kept, dropped] = [false, true].map(|drops_unsynced| {
                cuts += 1;
                after_a_cut(scenario, &clean, cut, drops_unsynced, &what)
            });
            kills += 1;
            after_a_kill(scenario, &clean, cut, &what);
            table += &format!("| {} | {operation} | {kept} | {dropped} |\n", cut + 1);
        }
        let (name, count) = (scenario.name, operations.len());
        summary += &format!("| {name} | {count} | {} | {count} | 0 |\n", count * 2);
        let head = "| | cut before | boots with | boots with, unsynced writes dropped |\n| --- | --- | --- | --- |\n";
        tables += &format!("\n## {}\n\n{head}{table}", capital(name));
    }
    println!("{cuts} cuts and {kills} kills, none lost");
    let all = format!("| **all** | | **{cuts}** | **{kills}** | **0** |\n");
    page::is("../../docs/cuts.md", &format!("{HEAD}{summary}{all}{tables}"));
}

const HEAD: &str = "# Cuts

What remains after a power cut at any moment of an update. Each command runs on a disk in memory that knows what was synced, and the power
is cut before every single operation: once keeping everything that was written, once losing everything that was not synced. After each cut
the host boots without a network. The version that `active` leads to must be complete and start, its database must be its own and never
opened by a later version, and one more `update` must end like the run without a cut, with the same database. The updater alone is also
killed before every operation, while the host stays up: after `recover --online` the agent must run with its own database, and one more
`update` must end the same. This page is written by `crates/update/tests/cuts.rs`, which fails when the page is out of date. Versions are
1.0.0 and 2.0.0, paths are below `/var/lib/refit`.

| command | operations | power cuts | kills | lost |
| --- | --- | --- | --- | --- |
";

fn capital(text: &str) -> String {
    text[..1].to_uppercase() + &text[1..]
}

/// Cuts the power, boots, updates once more; gives the version that booted.
fn after_a_cut(scenario: &Scenario, clean: &Machine, cut: usize, drops_unsynced: bool, what: &str) -> String {
    let machine = scenario.machine();
    machine.platform.cut_after(machine.platform.operations() + cut);
    let _ = machine.switch_to(scenario.target);
    assert!(machine.platform.is_cut(), "{what}");
    machine.lose_power(drops_unsynced);
    machine.boot(what);
    machine.assert_sound(what);
    let booted = machine.active();
    let _ = machine.switch_to(scenario.target);
    machine.assert_sound(what);
    assert_eq!(machine.active().as_deref(), Some(scenario.ends_on), "{what}");
    assert_eq!(machine.database(), clean.database(), "{what}");
    booted.unwrap_or_else(|| "nothing".into())
}

/// Kills the updater alone, recovers, and updates once more.
fn after_a_kill(scenario: &Scenario, clean: &Machine, cut: usize, what: &str) {
    let machine = scenario.machine();
    machine.platform.cut_after(machine.platform.operations() + cut);
    let _ = machine.switch_to(scenario.target);
    machine.platform.power_on(false);
    machine.recover_online(what);
    if !scenario.history.is_empty() {
        machine.assert_sound(what);
    }
    let _ = machine.switch_to(scenario.target);
    machine.assert_sound(what);
    assert_eq!(machine.active().as_deref(), Some(scenario.ends_on), "{what}");
    assert_eq!(machine.database(), clean.database(), "{what}");
}

/// Whatever the updater could no longer write, the agent runs while the disk is full, and the next run with room ends
/// where it would have ended.
#[test]
fn a_disk_that_fills_up_at_any_write_stops_no_agent() {
    let mut fills = 0;
    for scenario in &SCENARIOS {
        let clean = scenario.machine();
        let before = clean.platform.operations();
        let _ = clean.switch_to(scenario.target);
        let operations = clean.platform.operations() - before;
        for fill in 0..operations {
            let what = format!("{} with a disk full after operation {fill} of {operations}", scenario.name);
            let machine = scenario.machine();
            machine.platform.full_after(machine.platform.operations() + fill);
            let _ = machine.switch_to(scenario.target);
            machine.assert_sound(&what);
            machine.platform.full_after(usize::MAX);
            let _ = machine.switch_to(scenario.target);
            machine.assert_sound(&what);
            assert_eq!(machine.active().as_deref(), Some(scenario.ends_on), "{what}");
            assert_eq!(machine.database(), clean.database(), "{what}");
            fills += 1;
        }
    }
    println!("{fills} full disks, no agent stopped");
}

#[test]
fn a_disk_forgets_what_was_not_synced() {
    let disk = MemoryDisk::default();
    disk.assert_forgets();
}
