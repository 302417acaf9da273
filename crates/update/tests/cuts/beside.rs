//! A supervisor that starts, ends or dies beside a command, at every moment at which the updater asks anything: the version
//! that it leaves behind is proved or undone, with its own database, and the files end the same.

use crate::host::{Happens, State};
use crate::{SCENARIOS, Scenario, Tree, Uncut, is_database};

/// What a supervisor does beside a command.
struct Beside {
    name: &'static str,
    /// Whether it runs when the command begins.
    is_running: bool,
    happens: Happens,
}

const BESIDE: [Beside; 3] = [
    Beside { name: "starts", is_running: false, happens: |state| state.starts_soon = true },
    Beside { name: "ends", is_running: true, happens: end },
    Beside { name: "dies", is_running: true, happens: die },
];

/// Its agent ends first.
fn end(state: &mut State) {
    state.running = None;
    state.beside = Some((state.looks + 3, die));
}

fn die(state: &mut State) {
    (state.running, state.is_unmanaged) = (None, true);
}

#[test]
fn a_supervisor_may_start_end_or_die_beside_a_command() {
    let mut runs = 0;
    for scenario in &SCENARIOS {
        let uncut = scenario.uncut();
        for beside in &BESIDE {
            let mut look = 1;
            while happens(scenario, &uncut, beside, look) {
                (look, runs) = (look + 1, runs + 1);
            }
            assert!(look > 3, "{}: a supervisor {} only at {look} moments", scenario.name, beside.name);
        }
    }
    println!("{runs} commands with a supervisor that started, ended or died beside them");
}

/// Whether it happened at all: the command may have had fewer moments.
fn happens(scenario: &Scenario, uncut: &Uncut, beside: &Beside, look: usize) -> bool {
    let what = format!("{} while a supervisor {} at look {look}", scenario.name, beside.name);
    let machine = scenario.machine();
    let moment = {
        let mut state = machine.state.lock().unwrap();
        if !beside.is_running {
            (state.running, state.is_unmanaged) = (None, true);
        }
        let moment = state.looks + look;
        state.beside = Some((moment, beside.happens));
        moment
    };
    scenario.run(&machine);
    let has_happened = machine.state.lock().unwrap().beside.take().is_none_or(|(left, _)| left != moment);
    machine.supervise(&what);
    machine.assert_sound(&what);
    for _ in 0..3 {
        scenario.run(&machine);
        machine.assert_sound(&what);
    }
    assert_eq!(machine.active().as_deref(), scenario.ends_on, "{what}");
    let (tree, end) = (without_reasons(machine.tree()), without_reasons(uncut.end.clone()));
    for path in tree.keys().chain(end.keys()).filter(|path| !is_database(path)) {
        assert_eq!(tree.get(path), end.get(path), "{what}: {path}");
    }
    assert_eq!(machine.database().last(), uncut.database.last(), "{what}");
    has_happened
}

/// Why a version failed is not the same with a supervisor that ends.
fn without_reasons(mut tree: Tree) -> Tree {
    for found in tree.values_mut() {
        let is_reason = |line: &str| line.contains("\"reason\": ") || line.starts_with("reason: ");
        let lines = found.lines().filter(|line| !is_reason(line));
        *found = lines.collect::<Vec<_>>().join("\n");
    }
    tree
}
