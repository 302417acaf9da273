//! Versions that were switched to while no agent ran: proved after their next start, or undone.

#![allow(clippy::unwrap_used)]

#[path = "host/folder.rs"]
mod folder;
mod host;

use std::path::Path;

use folder::Folder;
use host::{Host, version};
use refit_update::{Outcome, RealDisk, Recovered, Recovery, Unproved, Urgency, last_status};

impl Host<Folder> {
    /// A host on which 1.0.0 has worked, and whose agent does not run.
    fn stopped() -> Self {
        let host = Self::new();
        host.goes_to("1.0.0");
        let nothing = host.update("1.0.0", Urgency::Now);
        assert!(matches!(nothing, Outcome::Nothing(_)), "{nothing:?}");
        assert_eq!(host.unproved(), None, "it runs and is healthy");
        host.state.lock().unwrap().running = None;
        host
    }

    /// The record of the active version.
    fn unproved(&self) -> Option<Unproved> {
        let path = self.layout.unproved(&version(&self.active().unwrap()));
        Some(serde_json::from_slice(&std::fs::read(path).ok()?).unwrap())
    }

    /// Switches while no agent runs.
    #[track_caller]
    fn switches_without_an_agent(&self, to: &str) {
        let outcome = self.update(to, Urgency::Now);
        assert!(matches!(outcome, Outcome::Switched { .. }), "{outcome:?}");
        assert_eq!(self.active().as_deref(), Some(to));
        assert!(!self.layout.proved(&version(to)).exists(), "nobody has seen it work");
        assert!(last_status(&RealDisk, &self.layout).unproved);
    }

    fn way_back(&self) -> Option<String> {
        let link = std::fs::read_link(self.layout.data().join("active.back")).ok()?;
        Some(link.file_name().unwrap().to_str().unwrap().into())
    }

    fn recover(&self, start: &str) -> Recovered {
        self.state.lock().unwrap().is_failing = true;
        let recovered = self.environment().recover(Recovery::BeforeStart, Some(start)).unwrap();
        self.state.lock().unwrap().is_failing = false;
        recovered
    }

    fn unit_is_of(&self, text: &str) -> bool {
        let unit = std::fs::read_to_string(self.layout.unit_path(&self.profile.unit)).unwrap();
        unit == format!("refit.service of {text}")
    }
}

#[test]
fn a_version_that_was_installed_without_an_agent_is_proved_after_its_start() {
    for is_unmanaged in [false, true] {
        let host = Host::stopped();
        host.state.lock().unwrap().is_unmanaged = is_unmanaged;
        host.switches_without_an_agent("2.0.0");
        assert_eq!(host.way_back().as_deref(), Some("1.0.0"), "its updater can undo it");
        let again = host.update("2.0.0", Urgency::Due);
        assert!(matches!(again, Outcome::Nothing(_)), "{again:?}");
        assert_eq!(host.unproved().unwrap().from, Some(version("1.0.0")), "it has not been started");

        host.state.lock().unwrap().is_unmanaged = false;
        host.start_agent();
        host.update("2.0.0", Urgency::Due);
        assert_eq!((host.unproved(), host.way_back()), (None, None));
        assert!(host.layout.proved(&version("2.0.0")).exists());
        assert!(!last_status(&RealDisk, &host.layout).unproved);
        assert_eq!(host.rows(), ["1.0.0", "2.0.0"]);
    }
}

#[test]
fn a_version_that_does_not_work_is_undone_after_its_start() {
    let host = Host::stopped();
    host.break_versions(&["2.0.0"]);
    host.switches_without_an_agent("2.0.0");
    host.start_agent();
    let undone = host.update("2.0.0", Urgency::Due);
    assert!(matches!(undone, Outcome::Undone { .. }), "{undone:?}");
    assert_eq!(host.active().as_deref(), Some("1.0.0"));
    assert_eq!(host.rows(), ["1.0.0", "1.0.0 again"], "with its database");
    assert!(host.unit_is_of("1.0.0"));
    let status = last_status(&RealDisk, &host.layout);
    let failure = status.last_failure.unwrap();
    assert_eq!((failure.version, failure.step.as_str(), failure.attempt), (version("2.0.0"), "health", 1));
    assert_eq!((status.agent_version_installed, status.unproved), (Some(version("1.0.0")), false));
    let held = host.update("2.0.0", Urgency::Due);
    assert!(matches!(&held, Outcome::Nothing(why) if why.contains("2.0.0 failed at health")), "{held:?}");
}

/// Its own updater may be as broken as its agent, so the starts alone undo it too.
#[test]
fn a_version_that_is_started_again_and_again_is_undone_before_its_next_start() {
    let host = Host::stopped();
    host.switches_without_an_agent("2.0.0");
    for start in ["a", "a", "b", "c", "c"] {
        assert_eq!(host.recover(start), Recovered::Nothing);
        host.start_agent();
        host.state.lock().unwrap().running = None;
    }
    assert_eq!(host.unproved().unwrap().starts, 3, "two commands before one start are one start");
    let Recovered::Disproved(disproved) = host.recover("d") else { panic!("it may go on for ever") };
    assert_eq!((disproved.version, disproved.from), (version("2.0.0"), version("1.0.0")));
    assert_eq!(host.active().as_deref(), Some("1.0.0"));
    assert!(host.unit_is_of("1.0.0") && host.way_back().is_none());
    host.start_agent();
    assert_eq!(host.rows(), ["1.0.0", "1.0.0 again"]);
    assert_eq!(last_status(&RealDisk, &host.layout).last_failure.unwrap().version, version("2.0.0"));
    assert_eq!(host.recover("e"), Recovered::Nothing);
}

/// A first installation has nothing to go back to, and its agent may not even be configured.
#[test]
fn a_first_installation_takes_its_time() {
    let host = Host::new();
    host.break_versions(&["1.0.0"]);
    host.switches_without_an_agent("1.0.0");
    assert_eq!(host.way_back(), None);
    for start in 0..10 {
        assert_eq!(host.recover(&start.to_string()), Recovered::Nothing);
    }
    host.start_agent();
    let nothing = host.update("1.0.0", Urgency::Due);
    assert!(matches!(nothing, Outcome::Nothing(_)), "{nothing:?}");
    assert!(host.unproved().is_some());
    host.break_versions(&[]);
    host.update("1.0.0", Urgency::Due);
    assert_eq!(host.unproved(), None);
}

#[test]
fn the_way_back_leads_to_a_version_that_has_worked() {
    let host = Host::stopped();
    host.break_versions(&["4.0.0"]);
    for to in ["2.0.0", "3.0.0", "4.0.0"] {
        host.switches_without_an_agent(to);
        assert_eq!(host.unproved().unwrap().from, Some(version("1.0.0")));
        assert_eq!(host.way_back().as_deref(), Some("1.0.0"));
    }
    assert!(!host.layout.version(&version("2.0.0")).exists(), "it is neither active nor on a way back");
    host.start_agent();
    let undone = host.update("4.0.0", Urgency::Due);
    assert!(matches!(undone, Outcome::Undone { .. }), "{undone:?}");
    assert_eq!(host.active().as_deref(), Some("1.0.0"));
    assert!(host.unit_is_of("1.0.0"));
    assert_eq!(host.rows(), ["1.0.0", "1.0.0 again"]);
}

/// Somebody starts the service after it was asked and before the switch is final.
#[test]
fn an_agent_that_starts_in_the_middle_of_a_switch_is_proved() {
    for (is_broken, ends_on) in [(false, "2.0.0"), (true, "1.0.0")] {
        let host = Host::stopped();
        if is_broken {
            host.break_versions(&["2.0.0"]);
        }
        host.state.lock().unwrap().starts_meanwhile = true;
        let outcome = host.update("2.0.0", Urgency::Now);
        assert_eq!(matches!(outcome, Outcome::Undone { .. }), is_broken, "{outcome:?}");
        assert_eq!((host.active().as_deref(), host.unproved()), (Some(ends_on), None));
        assert_eq!(host.layout.proved(&version("2.0.0")).exists(), !is_broken);
    }
}

#[test]
fn an_agent_that_is_stopped_in_the_middle_of_a_switch_makes_no_version_look_broken() {
    let host = Host::stopped();
    host.start_agent();
    host.state.lock().unwrap().stops_meanwhile = true;
    host.switches_without_an_agent("2.0.0");
    assert!(host.state.lock().unwrap().running.is_none(), "it stays as it was left");
    host.start_agent();
    host.update("2.0.0", Urgency::Due);
    assert_eq!(host.unproved(), None);
}

#[test]
fn nothing_is_switched_under_an_agent_that_nothing_can_stop() {
    let host = Host::stopped();
    host.start_agent();
    host.state.lock().unwrap().is_unmanaged = true;
    let refused = host.update("2.0.0", Urgency::Now);
    let Outcome::Obstructed { failure, .. } = refused else { panic!("{refused:?}") };
    assert!(failure.reason.contains("an agent of 1.0.0 runs"), "{failure}");
    assert_eq!(host.active().as_deref(), Some("1.0.0"));
}

/// It goes on, or is started again, after the service manager has said that it is gone.
#[test]
fn the_database_is_never_replaced_under_a_live_agent() {
    let host = Host::stopped();
    host.start_agent();
    host.goes_to("2.0.0");
    host.state.lock().unwrap().ignores_stop = true;
    let rows = host.rows();
    let undone = host.update("1.0.0", Urgency::Now);
    let Outcome::Undone { failure, .. } = undone else { panic!("{undone:?}") };
    assert_eq!(failure.step.as_str(), "restore");
    assert!(failure.reason.contains("an agent of 2.0.0 runs"), "{failure}");
    assert_eq!((host.rows(), host.active().as_deref()), (rows, Some("2.0.0")));
    assert!(host.layout.journal().exists(), "the next command repeats the rollback");

    host.state.lock().unwrap().ignores_stop = false;
    host.environment().recover(Recovery::Online, None).unwrap();
    assert!(!host.layout.journal().exists() && host.way_back().is_none());
    assert!(host.rows().starts_with(&["1.0.0".into()]) && host.active().as_deref() == Some("2.0.0"));
}

/// An older updater may have removed it.
#[test]
fn a_way_back_that_is_gone_is_not_taken() {
    let host = Host::stopped();
    host.break_versions(&["2.0.0"]);
    host.switches_without_an_agent("2.0.0");
    std::fs::remove_file(host.layout.checksum(&version("1.0.0"))).unwrap();
    host.start_agent();
    let nothing = host.update("2.0.0", Urgency::Due);
    assert!(matches!(nothing, Outcome::Nothing(_)), "{nothing:?}");
    assert_eq!(host.active().as_deref(), Some("2.0.0"));
}

/// An image gets an update before its first boot: neither version has ever run, so there is nothing to go back to.
#[test]
fn a_version_that_never_ran_is_no_way_back() {
    let host = Host::new();
    host.state.lock().unwrap().is_unmanaged = true;
    host.switches_without_an_agent("1.0.0");
    host.switches_without_an_agent("2.0.0");
    assert_eq!((host.unproved().unwrap().from, host.way_back()), (None, None));
}

#[test]
fn back_to_the_version_that_works_needs_no_proof() {
    let host = Host::stopped();
    host.switches_without_an_agent("2.0.0");
    let outcome = host.update("1.0.0", Urgency::Now);
    assert!(matches!(outcome, Outcome::Switched { .. }), "{outcome:?}");
    assert_eq!((host.active().as_deref(), host.unproved(), host.way_back()), (Some("1.0.0"), None, None));
    assert!(host.layout.proved(&version("1.0.0")).exists());
}

/// An updater of 0.1 does not know the record, and says in its own way that the version works.
#[test]
fn a_proof_of_an_older_release_ends_the_count_of_starts() {
    let host = Host::stopped();
    host.switches_without_an_agent("2.0.0");
    std::fs::write(host.layout.proved(&version("2.0.0")), "").unwrap();
    for start in ["a", "b", "c", "d", "e"] {
        assert_eq!(host.recover(start), Recovered::Nothing);
    }
    assert_eq!((host.active().as_deref(), host.unproved(), host.way_back()), (Some("2.0.0"), None, None));
}

/// An agent that cannot connect while its updater can has proved nothing, whether updates are enabled or not.
#[test]
fn a_version_is_proved_by_its_connection_also_where_updates_are_disabled() {
    let host = Host::stopped();
    host.switches_without_an_agent("2.0.0");
    host.updater().disable().unwrap();
    host.state.lock().unwrap().is_cut_off = true;
    host.start_agent();
    let undone = host.update("2.0.0", Urgency::Due);
    assert!(matches!(undone, Outcome::Undone { .. }), "{undone:?}");
    assert_eq!(host.active().as_deref(), Some("1.0.0"));
}

/// The service is stopped, and somebody runs the agent by hand: its database would be replaced under it.
#[test]
fn an_agent_that_runs_by_hand_beside_its_service_is_left_alone() {
    let host = Host::stopped();
    host.start_agent();
    host.goes_to("2.0.0");
    host.state.lock().unwrap().runs_by_hand = true;
    for to in ["1.0.0", "3.0.0"] {
        let refused = host.update(to, Urgency::Now);
        let Outcome::Obstructed { failure, .. } = refused else { panic!("{refused:?}") };
        assert!(failure.reason.contains("an agent of 2.0.0 runs"), "{failure}");
        assert!(!host.layout.journal().exists() && host.active().as_deref() == Some("2.0.0"));
    }
}

/// What a newer release adds survives a count of starts, and what cannot be read is not taken for absent.
#[test]
fn the_record_keeps_what_it_does_not_know() {
    let host = Host::stopped();
    host.switches_without_an_agent("2.0.0");
    let path = host.layout.unproved(&version("2.0.0"));
    std::fs::write(&path, r#"{"from":"1.0.0","backed_up":true,"new":[1]}"#).unwrap();
    host.recover("a");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(r#""new":[1]"#) && text.contains(r#""starts":1"#), "{text}");
    write_garbage(&path);
    assert!(host.environment().recover(Recovery::BeforeStart, None).is_err());
}

fn write_garbage(path: &Path) {
    std::fs::write(path, "{").unwrap();
}
