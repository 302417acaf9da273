//! The machine of the testbed: its disk survives a power cut, and nothing outlives the machine.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use refit_testbed::Machine;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

#[test]
fn what_was_written_survives_a_power_cut_and_what_ran_does_not() {
    let mut machine = Machine::booted();
    let ran = machine.run(&["sh", "-c", "echo to stdout; echo to stderr >&2; hostname >/etc/kept; exit 3"]);
    assert_eq!(
        (ran.status.code(), text(&ran.stdout), text(&ran.stderr)),
        (Some(3), "to stdout".into(), "to stderr".into())
    );
    machine.run(&["systemd-run", "--unit=works", "sleep", "infinity"]);
    assert_eq!(machine.show("works.service", "ActiveState"), "active");
    assert!(machine.journal().contains("works.service"));

    machine.cut_power();
    assert_eq!(std::fs::read_to_string(machine.path("/etc/kept")).unwrap().trim(), machine.name());
    assert_eq!(text(&machine.outside(&["cat"], "/etc/kept", &[]).stdout), machine.name());
    machine.boot();
    assert_eq!(machine.show("works.service", "ActiveState"), "inactive");
    assert_eq!(text(&machine.run(&["cat", "/etc/kept"]).stdout), machine.name());
    assert!(machine.journal().contains("works.service"), "it has what was before the cut");

    machine.shut_down();
    machine.boot();
    assert_eq!(text(&machine.systemctl(&["is-system-running"]).stdout), "running");
}

#[test]
fn machines_share_nothing_and_leave_nothing() {
    let (first, second) = (Machine::booted(), Machine::booted());
    std::fs::write(first.path("/etc/mine"), "").unwrap();
    assert!(first.run(&["test", "-e", "/etc/mine"]).status.success());
    assert!(!second.run(&["test", "-e", "/etc/mine"]).status.success());
    let id = |machine: &Machine| text(&machine.run(&["cat", "/etc/machine-id"]).stdout);
    assert_ne!(id(&first), id(&second));

    let name = first.name().to_owned();
    let traces = |name: &str| {
        let record = Path::new("/run/systemd/machines").join(name).exists();
        let groups =
            ["systemd", "unified", ""].map(|group| Path::new("/sys/fs/cgroup").join(group).join(name));
        // The arguments of what has ended, and only waits to be asked how, are gone.
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let process = processes
            .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
            .any(|text| String::from_utf8_lossy(&text).contains(name));
        (record, groups.iter().any(|group| group.exists()), process)
    };
    assert_eq!(traces(&name), (true, true, true));
    drop(first);
    assert_eq!(traces(&name), (false, false, false));
    assert!(second.run(&["true"]).status.success());
}
