//! Which updater does the job, where there are several and some of them crash.

use std::os::unix::fs::PermissionsExt;

use refit_testbed::Ran;

use crate::archives;
use crate::host::Host;

/// Of 1.2.3, and of no version that the host keeps.
pub const OUTSIDE: &str = "/root/refit/refit-update";
const RECORD: &str = "/root/ran";
/// Runs the rest of the line.
const CRASHING: &str = "/root/crash/run";

impl Host {
    /// Has a version's updater do something else, for any command but `version`.
    pub fn replace_updater(&self, version: &str, deed: &str) {
        let path = self.machine.path(&format!("/var/lib/refit/versions/{version}/bin/refit-update"));
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, archives::script(version, deed)).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Has a version's updater write down what it is asked for, before it does that.
    pub fn record_updater(&self, version: &str) {
        let real = format!("/var/lib/refit/versions/{version}/bin/refit");
        self.replace_updater(
            version,
            &format!("echo {version} \"$@\" >>{RECORD}; exec {real} update \"$@\""),
        );
    }

    /// Has a version's updater be the real one again.
    fn restore_updater(&self, version: &str) {
        let path = format!("/var/lib/refit/versions/{version}/bin/refit-update");
        self.run(&["ln", "-sf", "refit", &path]).good();
    }

    /// Has the next updater that [`CRASHING`] runs crash once, where it asks systemd for that.
    fn crash_at(&self, verb: &str) {
        let script = format!(
            "#!/bin/sh\ncase \" $* \" in *' {verb} '*)\n[ -e /root/crash/ed ] || \
             {{ touch /root/crash/ed; kill -ABRT $PPID; exit 1; }};;\nesac\nexec /usr/bin/systemctl \"$@\"\n"
        );
        let folder = self.machine.path("/root/crash");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("systemctl"), script).unwrap();
        std::fs::write(folder.join("run"), "#!/bin/sh\nPATH=/root/crash:$PATH exec \"$@\"\n").unwrap();
        for file in ["systemctl", "run"] {
            std::fs::set_permissions(folder.join(file), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    /// What was written down so of updates: what runs before each start of the agent is left out.
    fn recorded_updates(&self) -> Vec<String> {
        let mut updates = self.recorded();
        updates.retain(|line| !line.ends_with(" recover"));
        updates
    }

    /// What was written down so since the last time.
    pub fn recorded(&self) -> Vec<String> {
        let record = self.machine.path(RECORD);
        let text = std::fs::read_to_string(&record).unwrap_or_default();
        let _ = std::fs::remove_file(record);
        text.lines().map(str::to_owned).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_updater_from_elsewhere_has_the_active_one_do_the_job_unless_that_crashes() {
    let host = Host::enabled().await;
    host.goes_to("1.2.4");
    host.record_updater("1.2.4");
    host.cluster.choose("1.2.5");
    let updated = host.run(&[OUTSIDE, "update"]);
    assert_eq!(host.recorded(), ["1.2.4 update"], "{updated:?}");
    assert_eq!(updated.good(), "Updated from 1.2.4 to 1.2.5.\n");
    assert_eq!((host.active(), host.runs()), ("1.2.5".into(), "1.2.5".into()));

    // What is not tried again: it has ended as it meant to.
    host.record_updater("1.2.5");
    host.run(&[OUTSIDE, "disable"]).good();
    let disabled = host.run(&[OUTSIDE, "update"]);
    assert_eq!(host.recorded(), ["1.2.5 disable", "1.2.5 update"]);
    let said = disabled.good();
    assert!(said.contains("disabled") && said.lines().count() == 1, "once: {said}");
    host.run(&[OUTSIDE, "enable"]).good();
    host.recorded();

    // Each of these crashes, and there is only the one from elsewhere then.
    for (active, next, crash) in [
        ("1.2.5", "1.2.4", "kill -SEGV $$"),
        ("1.2.4", "1.2.5", "exit 101"),
        ("1.2.5", "1.2.4", "not to be executed"),
    ] {
        host.replace_updater(active, crash);
        if crash == "not to be executed" {
            let path = format!("/var/lib/refit/versions/{active}/bin/refit-update");
            host.run(&["chmod", "0644", &path]).good();
        }
        host.cluster.choose(next);
        let updated = host.run(&[OUTSIDE, "update"]);
        let warned = format!("the updater of {active} c");
        assert!(updated.stderr.contains(&warned), "{crash}: {updated:?}");
        assert_eq!(updated.good(), format!("Updated from {active} to {next}.\n"), "{crash}");
        assert_eq!((host.active(), host.runs()), (next.into(), next.into()), "{crash}");
        host.record_updater(active);
    }
    // It crashes again when it is to go back: the one from elsewhere does that, and does not go on.
    host.mark("before");
    host.replace_updater("1.2.4", "[ \"$1\" = update ] || kill -SEGV $$; exec ${0%-update} update \"$@\"");
    host.crash_at("start");
    host.cluster.choose("1.2.5");
    let crashed = host.run(&[CRASHING, OUTSIDE, "update"]);
    assert!(crashed.stderr.contains("the updater of 1.2.4 crashed"), "{crashed:?}");
    is_undone(&host, &crashed, &["before"]).await;
}

/// Where both are the host's own, the active one runs apart from whoever was asked.
#[tokio::test(flavor = "multi_thread")]
async fn the_version_before_does_the_job_of_an_active_updater_that_crashes() {
    let host = Host::enabled().await;
    host.mark("of 1.2.3");
    host.goes_to("1.2.4");
    host.mark("of 1.2.4");
    host.record_updater("1.2.3");
    let marks = ["of 1.2.3", "of 1.2.4"];

    // The pointer has moved and the agent runs; the agent is stopped and its database is another.
    for (next, verb) in [("1.2.5", "kill"), ("1.2.3", "start")] {
        host.cluster.choose(next);
        host.crash_at(verb);
        let crashed = host.run(&[CRASHING, "/usr/local/bin/refit-update", "update"]);
        let recorded = host.recorded();
        assert!(
            recorded.len() == 1 && recorded[0].ends_with(" recover --online"),
            "{recorded:?}: {crashed:?}"
        );
        is_undone(&host, &crashed, &marks).await;
    }

    // Nothing has been switched.
    host.cluster.choose("1.2.5");
    host.crash_at("show");
    let updated = host.run(&[CRASHING, "/usr/local/bin/refit-update", "update"]);
    assert!(updated.stderr.contains("the updater of 1.2.4 crashed"), "{updated:?}");
    assert_eq!(host.recorded(), ["1.2.3 update"]);
    assert_eq!(updated.good(), "Updated from 1.2.4 to 1.2.5.\n");
    assert_eq!((host.active(), host.runs(), host.marks().len()), ("1.2.5".into(), "1.2.5".into(), 2));
}

/// What the unit runs leads to the active updater; where that does not work, the host must still get its next version.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_updater_does_what_the_active_one_cannot_even_where_the_unit_calls_that() {
    let host = Host::enabled().await;
    host.goes_to("1.2.4");
    host.record_updater("1.2.3");

    // It ends with an error; whoever started it goes on with the version before.
    host.replace_updater(
        "1.2.4",
        "[ -n \"$REFIT_UPDATE_HANDED\" ] || exec ${0%-update} update \"$@\"; echo 'error: broken' >&2; exit 1",
    );
    host.cluster.choose("1.2.5");
    host.run(&["systemctl", "start", "refit-update"]).good();
    assert_eq!(host.recorded(), ["1.2.3 update"]);
    assert_eq!((host.active(), host.runs()), ("1.2.5".into(), "1.2.5".into()));

    // It dies at its start, or ends with an error before it could ask anybody.
    for (active, next, deed) in [("1.2.5", "1.2.4", "kill -SEGV $$"), ("1.2.4", "1.2.5", "exit 1")] {
        host.record_updater(next);
        host.replace_updater(active, deed);
        let called = host.update(&["update"]);
        assert_ne!(called.code, Some(0), "{called:?}");
        host.cluster.choose(next);
        host.run(&["systemctl", "start", "refit-update"]).good();
        assert_eq!(host.recorded_updates(), [format!("{next} update")], "{deed}");
        assert_eq!((host.active(), host.runs()), (next.into(), next.into()), "{deed}");
    }

    // What has ended as it meant to is not tried again: disabled, held, rolled back.
    host.record_updater("1.2.4");
    host.restore_updater("1.2.5");
    host.update(&["disable"]).good();
    host.cluster.choose("1.2.4");
    host.run(&["systemctl", "start", "refit-update"]).good();
    host.update(&["enable"]).good();
    assert_eq!((host.recorded_updates(), host.active()), (vec![], "1.2.4".into()), "{:?}", host.status());
    host.restore_updater("1.2.4");
    host.record_updater("1.2.5");
    host.run(&["rm", "/var/lib/refit/versions/1.2.5/backup/backup.yaml"]).good();
    host.cluster.choose("1.2.3");
    host.run(&["systemctl", "start", "refit-update"]).good();
    assert!(host.status()["held"].is_string(), "{}", host.status());
    host.cluster.choose(archives::EXITS);
    assert_ne!(host.run(&["systemctl", "start", "refit-update"]).code, Some(0));
    assert_eq!(host.status()["last_failure"]["version"], archives::EXITS);
    assert_eq!((host.recorded_updates(), host.active()), (vec![], "1.2.4".into()));
}

/// What the active updater refuses for the agent's sake, an older release would do: it does not look.
#[tokio::test(flavor = "multi_thread")]
async fn a_switch_that_is_refused_is_not_handed_to_an_older_updater() {
    let host = Host::enabled().await;
    host.goes_to("1.2.4");
    host.record_updater("1.2.3");
    host.run(&["systemctl", "mask", "refit"]).good();
    host.cluster.choose("1.2.5");
    for updater in ["/usr/local/bin/refit-update", OUTSIDE] {
        let refused = host.run(&[updater, "update", "--now"]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert_eq!(refused.stderr.matches("could not be started again").count(), 1, "{updater}: {refused:?}");
        assert_eq!(host.recorded(), [""; 0], "{updater}: {refused:?}");
        assert_eq!((host.active(), host.runs()), ("1.2.4".into(), "1.2.4".into()));
    }
    host.run(&["systemctl", "unmask", "refit"]).good();
    host.goes_to("1.2.5");
}

/// After a crash in the middle of a switch, 1.2.4 is what it was.
async fn is_undone(host: &Host, crashed: &Ran, marks: &[&str]) {
    assert_eq!(crashed.code, Some(1), "{crashed:?}");
    assert!(crashed.stderr.contains("in the middle of a switch"), "{crashed:?}");
    assert!(!host.has_journal(), "it is not undone: {crashed:?}");
    assert_eq!(host.active(), "1.2.4");
    assert_eq!(host.marks(), marks);
    host.connects().await;
    assert_eq!((host.runs(), host.shows("NRestarts")), ("1.2.4".into(), "0".into()));
}
