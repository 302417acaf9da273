//! Wall clocks that are set in the middle of an update, at every step and in both directions: no good version is undone, no
//! broken one accepted, and nothing takes longer or shorter.

use refit_update::{Clock, Outcome, last_status};

use crate::machine::Machine;

/// By how many seconds the clock is set.
const JUMPS: [i64; 6] = [-86_400 * 365, -3600, -30, 120, 3600, 86_400 * 365];

/// A host on which versions were switched to before.
fn machine(history: &[&str], broken: &[&str]) -> Machine {
    let machine = Machine::new();
    for version in history {
        machine.switch_to(version).unwrap();
        machine.switch_to(version).unwrap();
    }
    machine.break_versions(broken);
    machine
}

impl Machine {
    fn looks(&self) -> usize {
        self.state.lock().unwrap().looks
    }

    fn milliseconds(&self) -> u64 {
        self.state.lock().unwrap().milliseconds
    }
}

/// How an update ended, where it led, how long it took, and whether the version is held back after it.
#[derive(Debug, PartialEq)]
struct End {
    outcome: &'static str,
    active: Option<String>,
    database: Vec<String>,
    milliseconds: u64,
    is_held_back: bool,
}

fn update(machine: &Machine, target: &str, jump: Option<(usize, i64)>) -> End {
    let (begin, looks) = (machine.milliseconds(), machine.looks());
    machine.state.lock().unwrap().jump = jump.map(|(look, seconds)| (looks + look, seconds));
    let outcome = match machine.switch_to(target).unwrap() {
        Outcome::Switched { .. } => "switched",
        Outcome::Undone { .. } => "undone",
        other => panic!("{other:?}"),
    };
    let milliseconds = machine.milliseconds() - begin;
    let again = machine.switch_to(target).unwrap();
    let is_held_back = matches!(&again, Outcome::Nothing(why) if why.contains("it is tried again at"));
    let (active, database) = (machine.active(), machine.database());
    End { outcome, active, database, milliseconds, is_held_back }
}

#[test]
fn a_clock_that_is_set_at_any_step_changes_nothing() {
    let mut runs = 0;
    for (name, history, target, broken) in [
        ("upgrade", &["1.0.0"][..], "2.0.0", &[][..]),
        ("failed upgrade", &["1.0.0"], "2.0.0", &["2.0.0"]),
        ("downgrade", &["1.0.0", "2.0.0"], "1.0.0", &[]),
        ("failed downgrade", &["1.0.0", "2.0.0"], "1.0.0", &["1.0.0"]),
    ] {
        let clean = machine(history, broken);
        let before = clean.looks();
        let expected = update(&clean, target, None);
        let looks = clean.looks() - before;
        assert_eq!(expected.outcome, if broken.is_empty() { "switched" } else { "undone" }, "{name}");
        let seconds = expected.milliseconds / 1000;
        assert_eq!(seconds, if broken.is_empty() { 5 } else { 65 + 5 }, "{name}");
        for look in 1..=looks {
            for jump in JUMPS {
                let machine = machine(history, broken);
                let end = update(&machine, target, Some((look, jump)));
                assert_eq!(end, expected, "{name}, set by {jump} s at look {look} of {looks}");
                runs += 1;
            }
        }
    }
    println!("{runs} updates under a clock that was set, none of which noticed");
}

/// Half an hour is half an hour, whatever the wall clock says meanwhile.
#[test]
fn a_version_that_failed_is_tried_again_when_its_time_has_passed() {
    for jump in JUMPS {
        let machine = machine(&["1.0.0"], &["2.0.0"]);
        assert!(matches!(machine.switch_to("2.0.0").unwrap(), Outcome::Undone { .. }));
        machine.state.lock().unwrap().jump = Some((machine.looks() + 1, jump));
        machine.sleep(std::time::Duration::from_secs(29 * 60));
        let held = machine.switch_to("2.0.0").unwrap();
        assert!(matches!(held, Outcome::Nothing(_)), "{jump}: {held:?}");
        machine.sleep(std::time::Duration::from_secs(60));
        let tried = machine.switch_to("2.0.0").unwrap();
        assert!(matches!(tried, Outcome::Undone { .. }), "{jump}: {tried:?}");
        assert_eq!(last_status(&machine.platform, &machine.layout).failures, 2);
    }
}
