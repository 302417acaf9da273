//! Power cuts, kills and full disks before every single operation of an installation, an upgrade, a failed upgrade, a
//! downgrade and an uninstallation: the remaining version starts with its own database, and one more run ends in the same
//! files as if nothing had happened.

#![allow(clippy::unwrap_used)]

#[path = "cuts/beside.rs"]
mod beside;
#[path = "cuts/clocks.rs"]
mod clocks;
#[path = "cuts/disk.rs"]
mod disk;
mod host;
#[path = "cuts/machine.rs"]
mod machine;
#[path = "cuts/page.rs"]
mod page;

use std::collections::BTreeMap;

use disk::MemoryDisk;
use host::PROXY;
use machine::Machine;

/// What a machine goes through, and what it comes to when nothing goes wrong.
struct Scenario {
    name: &'static str,
    /// Versions that were switched to before, in order.
    history: &'static [&'static str],
    deed: Deed,
    /// Whether the agent does not run, although its service is enabled.
    is_stopped: bool,
    /// Versions that never become healthy.
    broken: &'static [&'static str],
    ends_on: Option<&'static str>,
}

/// What is cut.
#[derive(Clone, Copy)]
enum Deed {
    SwitchTo(&'static str),
    Uninstall,
}

const SCENARIOS: [Scenario; 7] = [
    Scenario {
        name: "first install",
        history: &[],
        deed: Deed::SwitchTo("1.0.0"),
        is_stopped: false,
        broken: &[],
        ends_on: Some("1.0.0"),
    },
    Scenario {
        name: "upgrade",
        history: &["1.0.0"],
        deed: Deed::SwitchTo("2.0.0"),
        is_stopped: false,
        broken: &[],
        ends_on: Some("2.0.0"),
    },
    Scenario {
        name: "upgrade of a stopped service",
        history: &["1.0.0"],
        deed: Deed::SwitchTo("2.0.0"),
        is_stopped: true,
        broken: &[],
        ends_on: Some("2.0.0"),
    },
    Scenario {
        name: "failed upgrade",
        history: &["1.0.0"],
        deed: Deed::SwitchTo("2.0.0"),
        is_stopped: false,
        broken: &["2.0.0"],
        ends_on: Some("1.0.0"),
    },
    Scenario {
        name: "downgrade",
        history: &["1.0.0", "2.0.0"],
        deed: Deed::SwitchTo("1.0.0"),
        is_stopped: false,
        broken: &[],
        ends_on: Some("1.0.0"),
    },
    Scenario {
        name: "back to what was left",
        history: &["1.0.0", "2.0.0", "1.0.0"],
        deed: Deed::SwitchTo("2.0.0"),
        is_stopped: false,
        broken: &[],
        ends_on: Some("2.0.0"),
    },
    Scenario {
        name: "uninstall",
        history: &["1.0.0", "2.0.0"],
        deed: Deed::Uninstall,
        is_stopped: false,
        broken: &[],
        ends_on: None,
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
        if self.is_stopped {
            let mut state = machine.state.lock().unwrap();
            (state.running, state.is_enabled) = (None, true);
        }
        machine.break_versions(self.broken);
        machine
    }

    /// Does what is cut; how it ends is seen by what it leaves.
    fn run(&self, machine: &Machine) {
        match self.deed {
            Deed::SwitchTo(target) => drop(machine.switch_to(target)),
            Deed::Uninstall => drop(machine.uninstall()),
        }
    }

    /// A machine on which nothing was cut.
    fn uncut(&self) -> Uncut {
        let machine = self.machine();
        let before = (machine.platform.operations(), machine.tree());
        self.run(&machine);
        assert_eq!(machine.active().as_deref(), self.ends_on, "{}", self.name);
        machine.assert_sound(self.name);
        let operations = machine.platform.log_since(before.0);
        assert!(operations.len() > 10, "{}: only {} operations", self.name, operations.len());
        let after = machine.tree();
        let is_of_the_way = |path: &&String| {
            [".new", ".refit-new", ".part", ".back", ".removed", "journal.json", "replaced"]
                .iter()
                .any(|end| path.ends_with(end))
        };
        assert_eq!(after.keys().find(is_of_the_way), None, "{}", self.name);
        self.run(&machine);
        Uncut { operations, before: before.1, after, end: machine.tree(), database: machine.database() }
    }
}

type Tree = BTreeMap<String, String>;

/// What a scenario does and leaves when nothing is cut.
struct Uncut {
    operations: Vec<String>,
    before: Tree,
    after: Tree,
    /// After one more run.
    end: Tree,
    database: Vec<String>,
}

impl Uncut {
    /// Whatever is there after a recovery was there before or is there after a whole run: nothing is left of the way. What
    /// is in the directories of versions is the next run's.
    #[track_caller]
    fn assert_nothing_left(&self, machine: &Machine, what: &str) {
        for (path, found) in machine.tree() {
            let below = path.strip_prefix("/var/lib/refit/versions/").unwrap_or_default();
            let is_of_version = below.starts_with(|c: char| c.is_ascii_digit());
            let was_there = [&self.before, &self.after].iter().any(|tree| match below {
                // How far the run came is in them.
                "updates.yaml" | "status.json" => tree.contains_key(&path),
                _ => tree.get(&path) == Some(&found),
            });
            assert!(is_of_version || was_there || is_database(&path), "{what}: {path} is left: {found}");
        }
    }

    #[track_caller]
    fn assert_ends_alike(&self, machine: &Machine, what: &str) {
        let tree = machine.tree();
        for path in tree.keys().chain(self.end.keys()) {
            assert_eq!(tree.get(path), self.end.get(path), "{what}: {path}");
        }
        assert_eq!(machine.database(), self.database, "{what}");
    }
}

/// It says who has opened it, and is checked by that.
fn is_database(path: &str) -> bool {
    path == "/var/lib/refit/proc/sqlite.db"
}

/// What came of every cut, as a page for people.
#[test]
fn nothing_is_lost_wherever_the_power_goes() {
    let (mut cuts, mut kills, mut summary, mut tables) = (0, 0, String::new(), String::new());
    for scenario in &SCENARIOS {
        let uncut = scenario.uncut();
        let mut table = String::new();
        for (cut, operation) in uncut.operations.iter().enumerate() {
            let what = format!("{} cut before {operation:?} ({cut})", scenario.name);
            let [kept, dropped] = [false, true].map(|drops_unsynced| {
                cuts += 1;
                let what = format!("{what}, {}", if drops_unsynced { "dropped" } else { "kept" });
                after_a_cut(scenario, &uncut, cut, drops_unsynced, &what)
            });
            kills += 1;
            after_a_kill(scenario, &uncut, cut, &format!("{what}, killed"));
            table += &format!("| {} | {operation} | {kept} | {dropped} |\n", cut + 1);
        }
        let (name, count) = (scenario.name, uncut.operations.len());
        summary += &format!("| {name} | {count} | {} | {count} | 0 |\n", count * 2);
        let head = "| | cut before | boots with | boots with, unsynced writes dropped |\n| --- | --- | --- | --- |\n";
        tables += &format!("\n## {}\n\n{head}{table}", capital(name));
    }
    println!("{cuts} cuts and {kills} kills, none lost, all ended in the same files");
    let all = format!("| **all** | | **{cuts}** | **{kills}** | **0** |\n");
    page::is("../../docs/cuts.md", &format!("{HEAD}{summary}{all}{tables}"));
}

const HEAD: &str = "# Cuts

What remains after a power cut at any moment of an update. Each command runs on a disk in memory that knows what was synced, and the power
is cut before every single operation: once keeping everything that was written, once losing everything that was not synced. After each cut
the host boots without a network. The version that `active` leads to must be complete and start, its database must be its own and never
opened by a later version, and outside of the versions' own directories no file may be left that was not there before and is not there
after a whole run. One more run of the command must then end in the same files as without a cut, all of them, with the same content. The
updater alone is also killed before every operation, while the host stays up: after `recover --online` the agent must run with its own
database, and one more run must end the same. The same test has a supervisor start, end and die beside each command, at every moment at
which the updater asks anything, and compares all files as well. This page is written by `crates/update/tests/cuts.rs`, which fails when
the page is out of date. Versions are 1.0.0 and 2.0.0, paths are below `/var/lib/refit`.

| command | operations | power cuts | kills | lost |
| --- | --- | --- | --- | --- |
";

fn capital(text: &str) -> String {
    text[..1].to_uppercase() + &text[1..]
}

/// Cuts the power, boots, and does it once more; gives the version that booted.
fn after_a_cut(scenario: &Scenario, uncut: &Uncut, cut: usize, drops_unsynced: bool, what: &str) -> String {
    let machine = scenario.machine();
    machine.platform.cut_after(machine.platform.operations() + cut);
    scenario.run(&machine);
    assert!(machine.platform.is_cut(), "{what}");
    machine.lose_power(drops_unsynced);
    match scenario.deed {
        Deed::SwitchTo(_) => {
            machine.boot(what);
            machine.assert_sound(what);
            uncut.assert_nothing_left(&machine, what);
        }
        // Its service is no longer enabled, or about to be.
        Deed::Uninstall => machine.recover_before_start(what),
    }
    let booted = machine.active();
    run_to_the_end(scenario, &machine, what);
    uncut.assert_ends_alike(&machine, what);
    booted.unwrap_or_else(|| "nothing".into())
}

/// One more run ends where the command leads, and another one changes nothing of that.
fn run_to_the_end(scenario: &Scenario, machine: &Machine, what: &str) {
    for _ in 0..2 {
        scenario.run(machine);
        machine.assert_sound(what);
        assert_eq!(machine.active().as_deref(), scenario.ends_on, "{what}");
    }
}

/// Kills the updater alone, recovers, and does it once more.
fn after_a_kill(scenario: &Scenario, uncut: &Uncut, cut: usize, what: &str) {
    let machine = scenario.machine();
    machine.platform.cut_after(machine.platform.operations() + cut);
    scenario.run(&machine);
    machine.platform.power_on(false);
    machine.recover_online(what);
    let ran_before = !scenario.history.is_empty() && !scenario.is_stopped;
    if let (Deed::SwitchTo(_), true) = (&scenario.deed, ran_before) {
        machine.assert_sound(what);
    }
    run_to_the_end(scenario, &machine, what);
    uncut.assert_ends_alike(&machine, what);
}

/// Who installs again does not have to finish the removal first.
#[test]
fn an_installation_after_an_uninstallation_that_was_cut_leaves_nothing_of_it() {
    let scenario = SCENARIOS.iter().find(|scenario| matches!(scenario.deed, Deed::Uninstall)).unwrap();
    for (cut, operation) in scenario.uncut().operations.iter().enumerate() {
        let what = format!("installed after an uninstallation cut before {operation:?}");
        let machine = scenario.machine();
        machine.platform.cut_after(machine.platform.operations() + cut);
        scenario.run(&machine);
        machine.lose_power(false);
        machine.recover_before_start(&what);
        machine.want("2.0.0");
        machine.updater().enable(Some(PROXY.into()), None, None, false, &machine).unwrap();
        let tree = machine.tree();
        let left = tree.keys().find(|path| path.contains("versions.removed"));
        assert_eq!((machine.active().as_deref(), left), (Some("2.0.0"), None), "{what}");
    }
}

/// Whatever the updater could no longer write, the agent runs while the disk is full, and the next run with room ends
/// where it would have ended.
#[test]
fn a_disk_that_fills_up_at_any_write_stops_no_agent() {
    let mut fills = 0;
    for scenario in SCENARIOS.iter().filter(|scenario| matches!(scenario.deed, Deed::SwitchTo(_))) {
        let uncut = scenario.uncut();
        let operations = uncut.operations.len();
        for fill in 0..operations {
            let what = format!("{} with a disk full after operation {fill} of {operations}", scenario.name);
            let machine = scenario.machine();
            machine.platform.full_after(machine.platform.operations() + fill);
            scenario.run(&machine);
            machine.assert_sound(&what);
            machine.platform.full_after(usize::MAX);
            scenario.run(&machine);
            machine.assert_sound(&what);
            assert_eq!(machine.active().as_deref(), scenario.ends_on, "{what}");
            assert_eq!(machine.database(), uncut.database, "{what}");
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
