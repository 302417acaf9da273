//! The power goes before every single operation of an upgrade, a failed upgrade and a downgrade: what is left
//! starts, with its own database, and one more run ends where it would have ended.

#![allow(clippy::unwrap_used)]

#[path = "cuts/disk.rs"]
mod disk;
#[path = "cuts/machine.rs"]
mod machine;

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
        }
        machine.break_versions(self.broken);
        machine
    }
}

#[test]
fn nothing_is_lost_wherever_the_power_goes() {
    let mut cuts = 0;
    for scenario in &SCENARIOS {
        let clean = scenario.machine();
        let before = clean.disk.operations();
        let _ = clean.switch_to(scenario.target);
        assert_eq!(clean.active().as_deref(), Some(scenario.ends_on), "{}", scenario.name);
        clean.assert_sound(scenario.name);
        let operations = clean.disk.operations() - before;
        assert!(operations > 10, "{}: only {operations} operations", scenario.name);
        for drops_unsynced in [false, true] {
            for cut in 0..operations {
                let what = format!("{} cut before operation {cut} of {operations}", scenario.name);
                let machine = scenario.machine();
                machine.disk.cut_after(machine.disk.operations() + cut);
                let _ = machine.switch_to(scenario.target);
                assert!(machine.disk.is_cut(), "{what}");
                machine.lose_power(drops_unsynced);
                machine.boot(&what);
                machine.assert_sound(&what);
                let _ = machine.switch_to(scenario.target);
                machine.assert_sound(&what);
                assert_eq!(machine.active().as_deref(), Some(scenario.ends_on), "{what}");
                assert_eq!(machine.database(), clean.database(), "{what}");
                cuts += 1;
            }
        }
        println!(
            "{}: {operations} operations, cut before each, with and without what was not synced",
            scenario.name
        );
    }
    println!("{cuts} cuts, none lost");
}

/// Whatever the updater could no longer write, the agent runs while the disk is full, and the next run with room ends
/// where it would have ended.
#[test]
fn a_disk_that_fills_up_at_any_write_stops_no_agent() {
    let mut fills = 0;
    for scenario in &SCENARIOS {
        let clean = scenario.machine();
        let before = clean.disk.operations();
        let _ = clean.switch_to(scenario.target);
        let operations = clean.disk.operations() - before;
        for fill in 0..operations {
            let what = format!("{} with a disk full after operation {fill} of {operations}", scenario.name);
            let machine = scenario.machine();
            machine.disk.full_after(machine.disk.operations() + fill);
            let _ = machine.switch_to(scenario.target);
            machine.assert_sound(&what);
            machine.disk.full_after(usize::MAX);
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
