//! The units, as systemd sees them, and what they do by themselves.

use std::os::unix::fs::PermissionsExt;

use refit_testbed::eventually;

use crate::cluster::PATIENCE;
use crate::host::{Host, drop_in};

const UNITS: [&str; 4] = ["refit.service", "refit-update.service", "refit-update.timer", "refit-update.path"];
/// In the password of a mirror.
const SECRET: &str = "5ecret";

impl Host {
    /// All units are files of their own, without a fault, and what wakes the updater is on, now and after a boot.
    #[track_caller]
    fn has_units(&self) {
        for unit in UNITS {
            let path = format!("/usr/local/lib/systemd/system/{unit}");
            let file = std::fs::symlink_metadata(self.machine.path(&path)).unwrap();
            assert!(file.is_file() && file.permissions().mode() & 0o777 == 0o644, "{path}: {file:?}");
            assert_eq!(self.machine.show(unit, "FragmentPath"), path);
            let shown = self.run(&["systemctl", "cat", unit]).good();
            assert!(shown.starts_with(&format!("# {path}\n")), "{shown}");
        }
        let verified = self.run(&[&["systemd-analyze", "--man=no", "verify"], &UNITS[..]].concat());
        assert_eq!((verified.code, &*verified.stdout, &*verified.stderr), (Some(0), "", ""));
        for (unit, target) in
            [("refit-update.timer", "timers.target"), ("refit-update.path", "multi-user.target")]
        {
            assert_eq!(self.run(&["systemctl", "is-enabled", unit]).stdout, "enabled\n", "{unit}");
            assert_eq!(self.machine.show(unit, "ActiveState"), "active", "{unit}");
            let wants = self.machine.show(target, "Wants");
            assert!(wants.split(' ').any(|wanted| wanted == unit), "{target} wants {wants}");
        }
    }

    /// The updater's own run has ended, and well.
    async fn rests(&self) {
        eventually("the end of the updater", PATIENCE, async || {
            self.machine.show("refit-update.service", "ActiveState") == "inactive"
        })
        .await;
        assert_eq!(self.machine.show("refit-update.service", "Result"), "success");
    }

    /// Waits for an update that nobody on the host asked for.
    async fn is_taken_to(&self, version: &str) {
        let upgraded = async || self.readiness().is_some_and(|readiness| readiness["version"] == version);
        eventually("the upgrade", PATIENCE, upgraded).await;
    }
}

/// The agent's hint and the timer, with nothing on the host but what `enable` put there.
#[tokio::test(flavor = "multi_thread")]
async fn units_are_there_wake_the_updater_and_survive_a_boot() {
    let mut host = Host::untouched().await;
    host.unpack();
    let proxy = host.cluster.network.endpoint();
    let mirror = format!("https://operator:{SECRET}@{proxy}/v1/artifacts");
    let updater = "/root/refit/refit-update";
    let enable = ["enable", "--proxy", &proxy, "--ca-pin", &host.cluster.pin, "--base-url", &mirror];
    let enabled = host.run(&[&[updater], &enable[..]].concat());
    assert!(!enabled.stderr.contains(SECRET), "{enabled:?}");
    assert!(enabled.good().ends_with("Installed 1.2.3.\n"));
    host.has_units();
    assert_ne!(host.shows("ActiveState"), "active", "an agent without a configuration is not started");
    host.start_agent().await;
    assert_eq!(host.run(&["systemctl", "is-enabled", "refit"]).stdout, "enabled\n");

    let pid = host.shows("MainPID");
    host.cluster.choose("1.2.4");
    host.is_taken_to("1.2.4").await;
    host.rests().await;
    assert_eq!((host.active(), host.shows("MainPID")), ("1.2.4".into(), pid));
    host.has_units();
    is_logged(&host);

    // The timer alone, which is not waited for as long as it takes on a host.
    host.machine.systemctl(&["stop", "refit-update.path"]);
    drop_in(&host.machine, "refit-update.timer", "[Timer]\nOnCalendar=*:*:*\nRandomizedDelaySec=0\n");
    host.cluster.choose("1.2.5");
    host.machine.systemctl(&["daemon-reload"]);
    host.machine.systemctl(&["restart", "refit-update.timer"]);
    host.is_taken_to("1.2.5").await;
    std::fs::remove_dir_all(host.machine.path("/etc/systemd/system/refit-update.timer.d")).unwrap();
    host.machine.systemctl(&["daemon-reload"]);
    host.machine.systemctl(&["restart", "refit-update.timer"]);
    host.rests().await;

    let log = host.run(&["journalctl", "--quiet", "--output=cat", "--unit=refit-update"]).good();
    assert!(log.contains("Removed /var/lib/refit/versions/1.2.3\n"), "{log}");

    // What `systemctl enable` wrote down must lead to the version that is active, not to the one that was.
    assert!(!host.machine.path("/var/lib/refit/versions/1.2.3").exists());
    host.machine.shut_down();
    host.machine.boot();
    host.has_units();
    assert_eq!(host.run(&["systemctl", "is-enabled", "refit"]).stdout, "enabled\n");
    assert_eq!((host.shows("ActiveState"), host.runs()), ("active".into(), "1.2.5".into()));
    host.connects().await;
}

/// What an operator reads: a line for each step, in order, that can be shown to anybody.
fn is_logged(host: &Host) {
    let log = host.run(&["journalctl", "--quiet", "--output=cat", "--unit=refit-update"]).good();
    let proxy = host.cluster.network.endpoint();
    let steps = [
        &format!("Asked {proxy} what this host should run: 1.2.4, now"),
        &format!("Downloading 1.2.4 from https://{proxy}/v1/artifacts/refit-oss-v1.2.4-linux-"),
        "There is room in /var/lib/refit/versions: ",
        "Unpacked 1.2.4 to /var/lib/refit/versions/1.2.4; its SHA-256 is ",
        "All binaries of 1.2.4 run: refit, refitctl, refit-update",
        "Backed up the database of 1.2.3",
        "Asked again: 1.2.4 is still due",
        "/var/lib/refit/active now leads to 1.2.4",
        "Reloaded refit.service",
        "1.2.4 is healthy",
        "Wrote /var/lib/refit/versions/updates.yaml",
        "Updated from 1.2.3 to 1.2.4.",
    ];
    // How long the agent is silent while it becomes the new version is its own affair.
    let is_step =
        |line: &&str| !line.contains("refit-update.service") && !line.contains("it is not known how");
    let said: Vec<&str> = log.lines().filter(is_step).collect();
    let from = said.iter().position(|line| line.contains(steps[0])).unwrap_or_else(|| panic!("{log}"));
    assert!(said.len() >= from + steps.len(), "{log}");
    for (line, step) in said[from..].iter().zip(steps) {
        let plain = line.strip_prefix(" INFO ").unwrap_or(line);
        assert!(plain.starts_with(step), "{step:?}: {log}");
    }
    let whole = host.run(&["journalctl", "--quiet", "--unit=refit*"]).good();
    for secret in [SECRET, &host.cluster.token, "?host="] {
        assert!(!whole.contains(secret), "{secret} is in the log: {whole}");
    }
}
