//! Services that start, stop or are masked while an update is under way: no version is called good that nobody has seen
//! work.

use std::os::unix::fs::{PermissionsExt, symlink};

use refit_testbed::{Ran, eventually};

use crate::archives::{DEAD, EXITS};
use crate::cluster::PATIENCE;
use crate::host::{Host, drop_in};

const FOLDER: &str = "/root/race";

impl Host {
    /// Runs an update during which something happens right after systemd was asked that for the first time.
    fn update_while(&self, verb: &str, deed: &str) -> Ran {
        let folder = self.machine.path(FOLDER);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        let script = format!(
            "#!/bin/sh\ncase \" $* \" in *' {verb} '*)\nif [ ! -e {FOLDER}/done ]; then touch {FOLDER}/done\n\
             /usr/bin/systemctl \"$@\" >{FOLDER}/said; code=$?; {deed}; cat {FOLDER}/said; exit $code; fi;;\nesac\n\
             exec /usr/bin/systemctl \"$@\"\n"
        );
        std::fs::write(folder.join("systemctl"), script).unwrap();
        std::fs::set_permissions(folder.join("systemctl"), std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("PATH={FOLDER}:/usr/sbin:/usr/bin:/sbin:/bin");
        let ran = self.run(&["env", &path, "/usr/local/bin/refit-update", "update", "--now"]);
        assert!(folder.join("done").exists(), "nothing happened in the middle: {ran:?}");
        ran
    }

    fn systemctl(&self, arguments: &[&str]) {
        self.run(&[&["systemctl"], arguments].concat()).good();
    }

    fn is_proved(&self, version: &str) -> bool {
        let folder = format!("/var/lib/refit/versions/{version}");
        let has = |name: &str| self.machine.path(&format!("{folder}/{name}")).exists();
        has("proved") && !has("unproved")
    }

    /// Waits until an agent of that version runs, which has proved that it works.
    async fn settles_on(&self, version: &str) {
        eventually(&format!("{version} runs and is proved"), 2 * PATIENCE, async || {
            let runs = self.readiness().is_some_and(|readiness| readiness["version"] == version);
            runs && self.is_proved(version) && !self.has_journal()
        })
        .await;
        eventually("no way back is left", PATIENCE, async || {
            self.machine.path("/var/lib/refit/active.back").symlink_metadata().is_err()
        })
        .await;
        assert_eq!(self.active(), version);
    }

    /// A host on which 1.2.3 has worked, and whose agent is neither enabled nor runs.
    async fn stopped() -> Self {
        let host = Self::enabled().await;
        host.update(&["update"]).good();
        assert!(host.is_proved("1.2.3"));
        host.mark("of 1.2.3");
        host.systemctl(&["disable", "--now", "refit"]);
        host
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_started_in_the_middle_of_an_update_is_proved_or_undone() {
    let host = Host::stopped().await;
    host.cluster.choose(EXITS);
    let undone = host.update_while("show", "/usr/bin/systemctl start refit");
    assert_eq!(undone.code, Some(1), "{undone:?}");
    assert!(undone.stderr.contains(&format!("{EXITS} was tried and undone at health")), "{undone:?}");
    host.settles_on("1.2.3").await;
    assert_eq!(host.marks(), ["of 1.2.3"]);

    host.systemctl(&["stop", "refit"]);
    host.cluster.choose("1.2.4");
    host.update_while("show", "/usr/bin/systemctl start refit").good();
    host.settles_on("1.2.4").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_stopped_in_the_middle_of_an_update_is_proved_at_its_next_start() {
    let host = Host::stopped().await;
    host.systemctl(&["start", "refit"]);
    host.cluster.choose("1.2.4");
    host.update_while("show", "/usr/bin/systemctl stop refit").good();
    assert_eq!((host.active(), host.shows("ActiveState")), ("1.2.4".into(), "inactive".into()));
    assert_eq!((&host.status()["unproved"], &host.status()["last_failure"]), (&true.into(), &().into()));
    host.systemctl(&["start", "refit"]);
    host.settles_on("1.2.4").await;
    eventually("the status says so", PATIENCE, async || host.status()["unproved"].is_null()).await;
}

/// The new version has begun to run, and somebody stops the service: that blames no version and starts nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_stopped_while_its_new_version_is_watched_stays_stopped() {
    let host = Host::stopped().await;
    host.systemctl(&["start", "refit"]);
    host.settles_on("1.2.3").await;
    host.cluster.choose("1.2.4");
    let undone = host.update_while("kill", "/usr/bin/systemctl stop refit");
    assert_eq!(undone.code, Some(1), "{undone:?}");
    assert!(undone.stderr.contains("undone at service: the service was stopped"), "{undone:?}");
    assert_eq!((host.active(), host.shows("ActiveState")), ("1.2.3".into(), "inactive".into()));
    assert_eq!(host.status()["last_failure"]["step"], "service");
    host.systemctl(&["start", "refit"]);
    host.settles_on("1.2.3").await;
    host.update(&["update", "--now"]).good();
    host.settles_on("1.2.4").await;
}

/// Of the second one the updater is broken as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_version_that_was_installed_while_the_service_was_stopped_is_undone_after_its_start() {
    let host = Host::stopped().await;
    for broken in [EXITS, DEAD] {
        host.cluster.choose(broken);
        let updated = host.run(&["/var/lib/refit/versions/1.2.3/bin/refit-update", "update", "--now"]);
        assert!(updated.stderr.contains("is proved at its next start, or undone"), "{updated:?}");
        updated.good();
        assert_eq!(host.active(), broken);
        host.run(&["systemctl", "start", "--no-block", "refit"]).good();
        host.settles_on("1.2.3").await;
        assert_eq!(host.marks(), ["of 1.2.3"], "its database came back with it");
        let failure = host.status()["last_failure"].clone();
        assert_eq!((&failure["version"], &failure["step"]), (&broken.into(), &"health".into()));
        host.systemctl(&["stop", "refit"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_masked_service_is_neither_restarted_nor_called_proved() {
    let host = Host::stopped().await;
    host.systemctl(&["start", "refit"]);
    host.systemctl(&["mask", "refit"]);
    host.cluster.choose("1.2.4");
    let refused = host.update(&["update", "--now"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("is masked, so it could not be started again"), "{refused:?}");
    assert_eq!((host.active(), host.runs()), ("1.2.3".into(), "1.2.3".into()));

    host.systemctl(&["stop", "refit"]);
    host.update(&["update", "--now"]).good();
    assert_eq!((host.active(), host.status()["unproved"].clone()), ("1.2.4".into(), true.into()));
    assert_eq!(host.shows("ActiveState"), "inactive");
    host.systemctl(&["unmask", "refit"]);
    host.systemctl(&["start", "refit"]);
    host.settles_on("1.2.4").await;

    host.systemctl(&["mask", "--runtime", "refit"]);
    host.cluster.choose("1.2.5");
    let refused = host.update(&["update", "--now"]);
    assert_eq!(refused.code, Some(1), "until the next boot is long enough: {refused:?}");
    assert!(refused.stderr.contains("is masked, so it could not be started again"), "{refused:?}");
}

/// An enabled service is one that should run, so the new version is started and seen at work.
#[tokio::test(flavor = "multi_thread")]
async fn an_enabled_service_that_does_not_run_is_started_with_the_new_version() {
    let host = Host::enabled().await;
    host.update(&["update"]).good();
    host.systemctl(&["stop", "refit"]);
    host.goes_to("1.2.4");
    host.settles_on("1.2.4").await;
    host.mark("of 1.2.4");

    host.systemctl(&["stop", "refit"]);
    host.cluster.choose(EXITS);
    let undone = host.update(&["update"]);
    assert_eq!(undone.code, Some(1), "{undone:?}");
    assert!(undone.stderr.contains(&format!("{EXITS} was tried and undone at health")), "{undone:?}");
    assert_eq!((host.active(), host.marks()), ("1.2.4".into(), vec!["of 1.2.4".into()]));
    assert_eq!(host.shows("ActiveState"), "inactive", "as it was left");
    let failure = host.status()["last_failure"].clone();
    assert_eq!((&failure["version"], &failure["step"]), (&EXITS.into(), &"health".into()));
    let again = host.update(&["update"]).good();
    assert!(again.contains(&format!("{EXITS} failed at health")), "{again}");

    host.systemctl(&["disable", "refit"]);
    host.cluster.choose("1.2.5");
    host.update(&["update"]).good();
    assert_eq!((host.active(), host.shows("ActiveState")), ("1.2.5".into(), "inactive".into()));
    assert_eq!(host.status()["unproved"], true, "nobody wants it to run");
}

/// As at boot, where it may wait for a disk or a network.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_waits_for_others_is_not_updated_before_it_runs() {
    let host = Host::enabled().await;
    host.update(&["update"]).good();
    let wait = "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'until [ -e /root/go ]; do sleep 0.1; done'\n";
    std::fs::write(host.machine.path("/etc/systemd/system/slow.service"), wait).unwrap();
    drop_in(&host.machine, "refit.service", "[Unit]\nAfter=slow.service\n");
    host.systemctl(&["daemon-reload"]);
    host.systemctl(&["stop", "refit"]);
    host.systemctl(&["start", "--no-block", "slow", "refit"]);

    host.cluster.choose("1.2.4");
    let refused = host.update(&["update", "--now"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("refit.service is about to be started"), "{refused:?}");
    assert_eq!((host.active(), &host.status()["last_failure"]), ("1.2.3".into(), &().into()));

    std::fs::write(host.machine.path("/root/go"), "").unwrap();
    host.connects().await;
    assert_eq!(host.runs(), "1.2.3");
    host.update(&["update", "--now"]).good();
    host.settles_on("1.2.4").await;
}

/// As the timer does that has missed its time: the updater starts while the agent does.
#[tokio::test(flavor = "multi_thread")]
async fn an_update_at_boot_is_proved_or_undone() {
    let mut host = Host::enabled().await;
    let wants = host.machine.path("/etc/systemd/system/multi-user.target.wants/refit-update.service");
    symlink("/usr/local/lib/systemd/system/refit-update.service", wants).unwrap();
    for (version, ends_on) in [("1.2.4", "1.2.4"), (EXITS, "1.2.4")] {
        host.cluster.choose(version);
        host.machine.shut_down();
        host.machine.boot();
        if version != ends_on {
            let failed = async || host.status()["last_failure"]["version"] == version;
            eventually("the version is tried and undone", 2 * PATIENCE, failed).await;
        }
        host.settles_on(ends_on).await;
    }
}
