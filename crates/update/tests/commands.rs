//! The outcomes of commands, by what is installed and which failures came before.

#![allow(clippy::unwrap_used)]

#[path = "host/folder.rs"]
mod folder;
mod host;

use std::path::Path;

use folder::Folder;
use host::Host;
use refit_types::UpdaterStatus;
use refit_update::{Outcome, RealDisk, Recovery, RunEnd, Updater, Urgency, last_status};

impl Host<Folder> {
    /// Whether there was anything to remove. The lock of the command and the wake file of an agent exist in any case.
    fn uninstall(&self) -> bool {
        std::fs::create_dir_all(self.layout.versions()).unwrap();
        for name in ["lock", "wake"] {
            std::fs::write(self.layout.versions().join(name), "").unwrap();
        }
        self.updater().uninstall().unwrap()
    }

    fn unit(&self) -> Option<String> {
        std::fs::read_to_string(self.layout.unit_path(&self.profile.unit)).ok()
    }

    fn write_unit(&self, text: &str) {
        let path = self.layout.unit_path(&self.profile.unit);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// The version of the agent that runs.
    fn runs(&self) -> Option<String> {
        self.state.lock().unwrap().running.as_ref().map(|running| running.version.to_string())
    }

    /// Removes what is installed, but for one thing.
    fn remove_all_but(&self, kept: &str) {
        let root = self.layout.outside(Path::new("/"));
        let (kept, aside) = (root.join(kept), root.join("aside"));
        std::fs::rename(&kept, &aside).unwrap();
        for place in ["usr", "etc", "var/lib/refit/versions"] {
            std::fs::remove_dir_all(root.join(place)).unwrap();
        }
        let _ = std::fs::remove_file(self.layout.active());
        std::fs::create_dir_all(kept.parent().unwrap()).unwrap();
        std::fs::rename(&aside, &kept).unwrap();
    }

    fn change_state(&self, change: impl FnOnce(&mut host::State)) {
        change(&mut self.state.lock().unwrap());
    }

    /// Changes the saved status.
    fn change_status(&self, change: impl FnOnce(&mut UpdaterStatus)) {
        let mut status = last_status(&RealDisk, &self.layout);
        change(&mut status);
        std::fs::write(self.layout.status(), serde_json::to_vec(&status).unwrap()).unwrap();
    }
}

#[test]
fn only_what_was_installed_is_uninstalled() {
    let host = Host::new();
    host.write_unit("somebody else's");
    host.start_agent_of("0.9.0");
    assert!(!host.uninstall(), "nothing was installed");
    assert_eq!(host.unit().as_deref(), Some("somebody else's"));
    assert_eq!(host.runs().as_deref(), Some("0.9.0"), "it is somebody else's agent");
    host.goes_to("1.0.0");
    assert_eq!(host.unit().as_deref(), Some("refit.service of 1.0.0"));
    assert_eq!(host.runs().as_deref(), Some("1.0.0"));
    assert!(host.uninstall());
    assert_eq!((host.unit(), host.runs()), (None, None));
    assert_eq!(host.rows(), ["0.9.0", "1.0.0"], "the database stays");
    assert!(!host.uninstall(), "it is gone already");
}

/// A removal that was interrupted at any point can be repeated.
#[test]
fn what_is_left_of_an_installation_is_uninstalled_too() {
    for kept in [
        "var/lib/refit/active",
        "usr/local/bin/refit-update",
        "etc/systemd/system/timers.target.wants/refit-update.timer",
        "var/lib/refit/versions/1.0.0",
    ] {
        let host = Host::new();
        host.goes_to("1.0.0");
        host.remove_all_but(kept);
        assert!(host.uninstall(), "{kept}");
        assert!(!host.uninstall(), "{kept} is still there");
    }
}

/// Only a failure that blames the version delays the next try.
#[test]
fn a_version_waits_only_after_a_failure_that_was_its_own() {
    let host = Host::new();
    host.goes_to("1.0.0");
    host.break_versions(&["2.0.0"]);
    assert!(matches!(host.update("2.0.0", Urgency::Due), Outcome::Undone { .. }));
    let Outcome::Nothing(why) = host.update("2.0.0", Urgency::Due) else { panic!("it was tried again") };
    assert!(
        why.contains("2.0.0 failed at health (no agent answers after 60 s); it is tried again at"),
        "{why}"
    );
    for (word, waits) in [
        ("validate", true),
        ("restart", true),
        ("health", true),
        ("switch", false),
        ("of another version", false),
    ] {
        host.change_status(|status| status.last_failure.as_mut().unwrap().step = word.into());
        let outcome = host.update("2.0.0", Urgency::Due);
        assert_eq!(matches!(outcome, Outcome::Nothing(_)), waits, "{word}: {outcome:?}");
    }
}

/// What keeps the update from beginning, and what is known of a version that failed.
fn told(host: &Host<Folder>) -> (Option<String>, Option<String>) {
    let status = last_status(&RealDisk, &host.layout);
    let obstacle = status.obstacle.map(|obstacle| obstacle.to_string());
    (obstacle, status.last_failure.map(|failure| failure.step))
}

/// Whatever goes wrong before the switch is no failure of the version, and an older control plane, which only knows
/// `last_failure`, counts none either.
#[test]
fn what_goes_wrong_before_the_switch_is_an_obstacle_and_no_failure() {
    let host = Host::new();
    host.goes_to("1.0.0");
    host.change_state(|state| state.no_download = Some("404 Not Found"));
    let outcome = host.update("2.0.0", Urgency::Due);
    assert!(matches!(outcome, Outcome::Obstructed { tries: 1, .. }), "{outcome:?}");
    let text = "could not begin at download: 404 Not Found (tried once)";
    assert_eq!(told(&host), (Some(text.into()), None));

    // Another process keeps to the delay that this one has begun.
    let outcome = host.update("2.0.0", Urgency::Due);
    assert!(matches!(outcome, Outcome::Later(delay) if delay.as_secs() <= 5), "{outcome:?}");
    let outcome = host.update("2.0.0", Urgency::Spread);
    assert!(matches!(outcome, Outcome::Obstructed { tries: 2, .. }), "{outcome:?}");

    host.change_state(|state| state.unreachable = Some("connection refused"));
    let outcome = host.update("2.0.0", Urgency::Spread);
    assert!(matches!(outcome, Outcome::Obstructed { tries: 3, .. }), "{outcome:?}");
    let text = "could not begin at find: connection refused (tried 3 times)";
    assert_eq!(told(&host), (Some(text.into()), None));

    host.change_state(|state| {
        (state.unreachable, state.no_download, state.kills_probes) = (None, None, true)
    });
    let outcome = host.update("2.0.0", Urgency::Spread);
    assert!(matches!(outcome, Outcome::Obstructed { tries: 4, .. }), "{outcome:?}");
    assert!(told(&host).0.unwrap().starts_with("could not begin at probe: it was killed from outside"));

    // A new attempt counts from the start, and its success leaves nothing.
    host.change_state(|state| (state.attempt, state.no_download) = (2, Some("no space left on device")));
    std::fs::remove_dir_all(host.layout.version(&host::version("2.0.0"))).unwrap();
    let outcome = host.update("2.0.0", Urgency::Due);
    assert!(matches!(outcome, Outcome::Obstructed { attempt: 2, tries: 1, .. }), "{outcome:?}");
    host.change_state(|state| (state.no_download, state.kills_probes) = (None, false));
    assert!(matches!(host.update("2.0.0", Urgency::Spread), Outcome::Switched { .. }));
    assert_eq!(told(&host), (None, None));
}

/// The agent was told, and its updater cannot ask: that is what its time-out is explained by.
#[test]
fn a_control_plane_that_cannot_be_asked_is_an_obstacle_of_the_attempt_that_the_agent_was_told_of() {
    let host = Host::new();
    host.goes_to("1.0.0");
    host.want("2.0.0");
    host.change_state(|state| state.unreachable = Some("connection refused"));
    assert!(host.updater().update(Urgency::Due, &host).is_err(), "nobody has told this host to go");
    host.change_state(|state| state.woken_for = Some(4));
    let outcome = host.update("2.0.0", Urgency::Due);
    assert!(matches!(outcome, Outcome::Obstructed { version: None, attempt: 4, .. }), "{outcome:?}");
    let obstacle = last_status(&RealDisk, &host.layout).obstacle.unwrap();
    assert_eq!((obstacle.attempt, obstacle.step.as_str(), obstacle.tries), (4, "find", 1));
}

/// A pause ends an attempt that has not switched: the control plane learns of it, and tells this host again later.
#[test]
fn an_attempt_that_is_called_off_is_reported_by_whichever_run_learns_of_it() {
    let called_off = |host: &Host<Folder>| {
        let called_off = last_status(&RealDisk, &host.layout).called_off;
        called_off.map(|target| (target.version.to_string(), target.attempt))
    };
    let reported = Some(("2.0.0".to_owned(), 4));

    // During its jitter. The first run has written the status since the agent woke it.
    let host = Host::new();
    host.goes_to("1.0.0");
    host.change_state(|state| (state.woken_for, state.attempt, state.jitter_seconds) = (Some(4), 4, 600));
    let waits = Updater { random: |_| 300, ..host.updater() };
    host.want("2.0.0");
    let outcome = waits.update(Urgency::Due, &host).unwrap();
    assert!(matches!(outcome, Outcome::Later(_)), "{outcome:?}");
    assert_eq!(called_off(&host), None);
    host.change_state(|state| state.not_due = true);
    assert!(matches!(host.update("2.0.0", Urgency::Spread), Outcome::CalledOff { .. }));
    assert_eq!(called_off(&host), reported);

    // Before the updater has asked at all, and only once.
    let host = Host::new();
    host.goes_to("1.0.0");
    host.change_state(|state| (state.woken_for, state.not_due) = (Some(4), true));
    assert!(matches!(host.update("2.0.0", Urgency::Due), Outcome::CalledOff { .. }));
    assert_eq!(called_off(&host), reported);
    assert!(matches!(host.update("2.0.0", Urgency::Due), Outcome::Nothing(_)), "it has been reported");

    // By a run of the timer, which no agent has woken.
    let host = Host::new();
    host.goes_to("1.0.0");
    host.change_state(|state| (state.attempt, state.jitter_seconds) = (4, 600));
    host.want("2.0.0");
    let waits = Updater { random: |_| 300, ..host.updater() };
    assert!(matches!(waits.update(Urgency::Due, &host).unwrap(), Outcome::Later(_)));
    // The version is set back to the one that this host runs.
    assert!(matches!(host.update("1.0.0", Urgency::Due), Outcome::Nothing(_)));
    assert_eq!(called_off(&host), reported);
    assert_eq!(last_status(&RealDisk, &host.layout).told, None);
}

/// The cluster would take a hold that is gone for a release, and tell the host again every ten minutes.
#[test]
fn a_hold_stays_for_as_long_as_its_reason_does() {
    let host = Host::new();
    host.goes_to("1.0.0");
    host.goes_to("2.0.0");
    let note = host.layout.backup(&host::version("1.0.0")).join("backup.yaml");
    let aside = note.with_extension("aside");
    std::fs::rename(&note, &aside).unwrap();
    host.change_state(|state| state.attempt = 7);
    assert!(matches!(host.update("1.0.0", Urgency::Due), Outcome::Held(_)));
    host.change_state(|state| state.not_due = true);
    for _ in 0..3 {
        assert!(matches!(host.update("1.0.0", Urgency::Due), Outcome::Held(_)));
        let status = last_status(&RealDisk, &host.layout);
        let target = status.held_target.unwrap();
        assert_eq!((target.version.to_string(), target.attempt), ("1.0.0".into(), 7));
        assert!(status.held.is_some() && status.called_off.is_none());
    }
    std::fs::rename(&aside, &note).unwrap();
    assert!(matches!(host.update("1.0.0", Urgency::Due), Outcome::Nothing(_)));
    assert_eq!(last_status(&RealDisk, &host.layout).held, None, "it is released");
}

/// Somebody stops the service while the new version is watched: that is neither the version's end nor a wish for a start.
#[test]
fn a_service_that_is_stopped_during_the_proof_stays_stopped_and_blames_no_version() {
    let host = Host::new();
    host.goes_to("1.0.0");
    host.break_versions(&["2.0.0"]);
    host.change_state(|state| state.crash = Some((RunEnd::Stopped, Vec::new())));
    let Outcome::Undone { failure, .. } = host.update("2.0.0", Urgency::Due) else { panic!("it works") };
    assert_eq!(failure.to_string(), "service: the service was stopped during the update");
    assert_eq!((host.active().as_deref(), host.runs()), (Some("1.0.0"), None));
    host.start_agent();
    host.break_versions(&[]);
    assert!(
        matches!(host.update("2.0.0", Urgency::Due), Outcome::Switched { .. }),
        "it is tried again at once"
    );
}

/// A download that was cut, of a version that nobody wants any more.
#[test]
fn what_is_left_of_a_download_goes_with_the_next_command() {
    let host = Host::new();
    host.goes_to("1.0.0");
    let part = host.layout.versions().join("2.0.0.part");
    std::fs::create_dir_all(part.join("bin")).unwrap();
    host.environment().recover(Recovery::Online, None).unwrap();
    assert!(!part.exists());
}

#[test]
fn a_version_whose_binaries_do_not_run_has_failed() {
    let host = Host::new();
    host.goes_to("1.0.0");
    host.change_state(|state| state.kills_probes = true);
    assert!(matches!(host.update("2.0.0", Urgency::Due), Outcome::Obstructed { .. }));
    host.change_state(|state| state.kills_probes = false);
    let binary = host.layout.version(&host::version("2.0.0")).join("bin").join(&host.profile.binaries[0]);
    std::fs::write(binary, "garbage").unwrap();
    assert!(matches!(host.update("2.0.0", Urgency::Spread), Outcome::Failed { .. }));
    assert_eq!(told(&host), (None, Some("validate".into())));
}

/// The agent may have been moved to another control plane since `enable` ran last.
#[test]
fn the_proxy_of_a_person_comes_before_that_of_the_agent_and_that_before_the_stored_one() {
    let host = Host::new();
    host.want("1.0.0");
    let enable =
        |proxy: Option<&str>| host.updater().enable(proxy.map(str::to_owned), None, None, false, &host);
    let error = enable(None).unwrap_err().to_string();
    assert!(error.starts_with("no proxy is known: name it with --proxy, or in "), "{error}");
    enable(Some("one:3080")).unwrap();
    enable(None).unwrap();
    host.change_state(|state| state.agent_proxy = Some("two:3080"));
    enable(None).unwrap();
    enable(Some("three:3080")).unwrap();
    let asked = host.state.lock().unwrap().asked.clone();
    assert_eq!(asked, ["one:3080", "one:3080", "two:3080", "three:3080"]);
}

/// `enable` of what is active already leaves no more versions than an update.
#[test]
fn old_versions_are_removed_by_an_enable_that_changes_nothing() {
    let host = Host::new();
    for version in ["1.0.0", "2.0.0"] {
        host.goes_to(version);
    }
    let old = host.layout.version(&host::version("0.9.0"));
    std::fs::create_dir_all(old.join("bin")).unwrap();
    std::fs::write(old.join("sha256"), "good").unwrap();
    host.updater().enable(Some(host::PROXY.into()), None, None, false, &host).unwrap();
    assert!(!old.exists());
    assert!(host.layout.version(&host::version("1.0.0")).exists(), "the last that worked stays");
}

/// A service that should run and does not is started with the new version, which must prove itself as any other.
#[test]
fn an_enabled_service_that_does_not_run_is_started_and_must_prove_itself() {
    let host = Host::new();
    host.goes_to("1.0.0");
    host.change_state(|state| state.running = None);
    assert!(matches!(host.update("2.0.0", Urgency::Due), Outcome::Switched { .. }));
    assert_eq!(host.runs(), None, "it is not enabled, so nobody wants it to run");

    host.change_state(|state| (state.running, state.is_enabled) = (None, true));
    assert!(matches!(host.update("3.0.0", Urgency::Due), Outcome::Switched { .. }));
    assert_eq!(host.runs().as_deref(), Some("3.0.0"));
    assert!(host.layout.proved(&host::version("3.0.0")).exists());

    host.change_state(|state| state.running = None);
    host.break_versions(&["4.0.0"]);
    assert!(matches!(host.update("4.0.0", Urgency::Due), Outcome::Undone { .. }));
    assert_eq!((host.active().as_deref(), host.runs()), (Some("3.0.0"), None), "as it was before");
}

/// Nobody has configured the agent yet: it could only fail.
#[test]
fn a_first_installation_is_started_once_its_agent_is_configured() {
    for is_configured in [false, true] {
        let host = Host::new();
        host.change_state(|state| state.is_enabled = true);
        if is_configured {
            let config = host.layout.agent_config();
            std::fs::create_dir_all(config.parent().unwrap()).unwrap();
            std::fs::write(config, "refit: {}").unwrap();
        }
        host.want("1.0.0");
        host.updater().enable(Some(host::PROXY.into()), None, None, false, &host).unwrap();
        assert_eq!((host.active().as_deref(), host.runs().is_some()), (Some("1.0.0"), is_configured));
        assert_eq!(host.layout.proved(&host::version("1.0.0")).exists(), is_configured);
    }
}

/// As at boot: its start waits for other units, and would have to be waited for without knowing how long.
#[test]
fn nothing_is_switched_while_the_service_is_about_to_be_started() {
    let host = Host::new();
    host.goes_to("1.0.0");
    host.change_state(|state| (state.running, state.is_enabled, state.is_queued) = (None, true, true));
    let obstructed = host.update("2.0.0", Urgency::Due);
    let Outcome::Obstructed { failure, .. } = obstructed else { panic!("{obstructed:?}") };
    assert!(failure.reason.contains("is about to be started"), "{failure}");
    assert_eq!(host.active().as_deref(), Some("1.0.0"));
    host.start_agent();
    assert!(matches!(host.update("2.0.0", Urgency::Now), Outcome::Switched { .. }));
    assert_eq!(host.runs().as_deref(), Some("2.0.0"));
}

/// It was downloaded, and may be wanted again.
#[test]
fn an_enable_that_is_held_removes_no_version() {
    let host = Host::new();
    for version in ["2.0.0", "3.0.0"] {
        host.goes_to(version);
    }
    host.want("1.0.0");
    let held = host.updater().enable(Some(host::PROXY.into()), None, None, false, &host).unwrap();
    assert!(matches!(held, Outcome::Held(_)), "{held:?}");
    assert!(host.layout.version(&host::version("1.0.0")).exists());
}

/// The first seconds tell: an agent that has ended is not waited for.
#[test]
fn an_agent_that_ends_is_judged_at_once_and_what_it_wrote_is_kept_until_the_next_success() {
    let host = Host::new();
    host.goes_to("1.0.0");
    host.break_versions(&["2.0.0", "3.0.0"]);
    let lines: Vec<String> = (1..=30)
        .map(|n| format!("line {n}"))
        .chain(["joining with --token 6ac3a7390d7ae9beb543f169700ec9da".into()])
        .collect();
    host.change_state(|state| (state.crash, state.attempt) = (Some((RunEnd::Exit(3), lines)), 7));
    let begin = host.state.lock().unwrap().milliseconds;
    let Outcome::Undone { failure, .. } = host.update("2.0.0", Urgency::Due) else { panic!("it works") };
    assert_eq!(failure.to_string(), "health: the agent ended (exit status 3)");
    let took = host.state.lock().unwrap().milliseconds - begin;
    assert!(took < 10_000, "it was waited for {took} ms, with the proof that 1.0.0 works again");

    let stored = last_status(&RealDisk, &host.layout).last_failure.unwrap();
    let agent = stored.agent.unwrap();
    assert_eq!(agent.ended.as_deref(), Some("exit status 3"));
    assert!(agent.seen_dead_at.is_some_and(|at| at <= stored.at));
    assert_eq!((agent.last_lines.len(), agent.last_lines[0].as_str()), (20, "line 12"));
    assert_eq!(agent.last_lines[19], "joining with --token ***");
    let log = std::fs::read_to_string(host.layout.failure_log()).unwrap();
    for part in ["version: 2.0.0\n", "attempt: 7\n", "agent: exit status 3\n", "  line 12\n", "--token ***\n"]
    {
        assert!(log.contains(part), "{part:?} in {log}");
    }
    assert!(!log.contains("6ac3a739"), "{log}");

    // A build that hangs is waited for, and told apart.
    host.change_state(|state| state.crash = None);
    let Outcome::Undone { failure, .. } = host.update("3.0.0", Urgency::Due) else { panic!("it works") };
    assert_eq!(failure.to_string(), "health: no agent answers after 60 s");
    let log = std::fs::read_to_string(host.layout.failure_log()).unwrap();
    assert!(log.contains("version: 3.0.0\n") && log.contains("agent: still ran\n"), "{log}");

    assert!(matches!(host.update("4.0.0", Urgency::Due), Outcome::Switched { .. }));
    assert!(!host.layout.failure_log().exists());
    assert_eq!(last_status(&RealDisk, &host.layout).last_failure, None);
}
