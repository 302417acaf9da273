//! The agent's database through downgrades and upgrades, checked by the rows of a real SQLite database.

#![allow(clippy::unwrap_used)]

#[path = "downgrades/database.rs"]
mod database;
#[path = "host/folder.rs"]
mod folder;
mod host;

use std::path::Path;

use folder::Folder;
use host::Host;
use refit_update::{FailedStep, Outcome, Profile, Urgency};

#[track_caller]
fn held(outcome: Outcome) -> String {
    match outcome {
        Outcome::Held(why) => why,
        other => panic!("{other:?}"),
    }
}

/// v2 broke the database; v3 gets the one of v1.
#[test]
fn a_broken_version_is_skipped_with_the_database_from_before_it() {
    let host = Host::new();
    for version in ["1.0.0", "2.0.0", "1.0.0", "3.0.0"] {
        host.goes_to(version);
    }
    assert_eq!(host.rows(), ["1.0.0", "1.0.0 again", "3.0.0"]);
    assert_eq!(host.versions(), ["1.0.0", "3.0.0"], "the broken version is gone, with its backup");
}

/// The way back was broken; it is reversed exactly, and v3 goes on from v2.
#[test]
fn a_way_back_that_is_reversed_gets_its_own_database_again() {
    let host = Host::new();
    for version in ["1.0.0", "2.0.0", "1.0.0", "2.0.0", "3.0.0"] {
        host.goes_to(version);
    }
    assert_eq!(host.rows(), ["1.0.0", "2.0.0", "2.0.0 again", "3.0.0"]);
}

#[test]
fn a_log_of_the_newer_database_is_not_taken_for_one_of_the_older() {
    let host = Host::new();
    host.goes_to("1.0.0");
    host.goes_to("2.0.0");
    // The agent of 2.0.0 dies without a checkpoint: what it wrote last is in the log only.
    host.crash_with_a_log();
    assert!(host.log_bytes() > 0);
    host.goes_to("1.0.0");
    assert_eq!(host.rows(), ["1.0.0", "1.0.0 again"]);
    host.is_intact();
}

#[test]
fn what_a_failed_version_did_to_the_database_is_undone() {
    let host = Host::new();
    host.goes_to("1.0.0");
    host.break_versions(&["2.0.0"]);
    let Outcome::Undone { version, failure } = host.update("2.0.0", Urgency::Now) else {
        panic!("it was not undone")
    };
    assert_eq!((version.to_string().as_str(), failure.step), ("2.0.0", FailedStep::Health));
    assert_eq!(host.rows(), ["1.0.0", "1.0.0 again"]);
    host.is_intact();
    host.state.lock().unwrap().ignores_reload = true;
    let Outcome::Undone { failure, .. } = host.update("2.1.0", Urgency::Now) else {
        panic!("it was not undone")
    };
    assert!(failure.reason.contains("the agent that answers is 1.0.0"), "{failure}");
}

#[test]
fn a_version_without_a_good_backup_is_not_gone_back_to() {
    let cases: [(&str, &str, &str); 5] = [
        ("version: v1", "version: [", "cannot be read"),
        ("refit.example.com:3080", "elsewhere.example.com:3080", "elsewhere.example.com:3080"),
        ("1.0.0", "0.9.0", "of version 0.9.0, not of 1.0.0"),
        ("2099-", "2001-", "was good until 2001-"),
        ("sha256:aa", "sha256:bb", "issued by sha256:bb, which is no longer trusted"),
    ];
    for (from, to, told) in cases {
        let host = Host::new();
        host.goes_to("1.0.0");
        host.goes_to("2.0.0");
        host.change_note("1.0.0", |note| {
            assert!(note.contains(from), "{note}");
            note.replace(from, to)
        });
        let why = held(host.update("1.0.0", Urgency::Now));
        assert!(why.contains("older than what is active") && why.contains(told), "{why}");
        assert_eq!(
            (host.active().unwrap(), host.rows()),
            ("2.0.0".into(), vec!["1.0.0".into(), "2.0.0".into()])
        );
        assert_eq!(host.status().held.as_deref(), Some(why.as_str()));
        assert_eq!(host.status().last_failure, None, "it is held, and has not failed");
    }
    let host = Host::new();
    host.goes_to("1.0.0");
    host.goes_to("2.0.0");
    std::fs::remove_file(host.note("1.0.0")).unwrap();
    assert!(held(host.update("1.0.0", Urgency::Now)).contains("no complete backup"));
}

/// An agent of a foreign profile reports no identity: the age of its backup is judged.
#[test]
fn a_backup_of_an_unknown_identity_is_not_used_when_it_is_older_than_identities_live() {
    let teleport = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles/teleport.yaml");
    for profile in [Profile::refit(), Profile::load(&teleport).unwrap()] {
        let created = |host: &Host<Folder>, at: &str| {
            host.change_note("1.0.0", |note| {
                assert!(!note.contains("identity_valid_until"), "{note}");
                let line = note.lines().find(|line| line.contains("creation_time")).unwrap();
                note.replace(line, &format!("  creation_time: {at}"))
            });
        };
        let host = Host::managing(profile);
        host.state.lock().unwrap().hides_identity = true;
        host.goes_to("1.0.0");
        host.goes_to("2.0.0");
        created(&host, "2001-01-01T00:00:00Z");
        let why = held(host.update("1.0.0", Urgency::Now));
        assert!(why.contains("was made at 2001-01-01T00:00:00Z, and an identity lives for 720h"), "{why}");
        assert_eq!(host.active().as_deref(), Some("2.0.0"));
        assert_eq!(host.status().held.as_deref(), Some(why.as_str()));
        // The clock of the test stands in November 2023.
        created(&host, "2023-11-01T00:00:00Z");
        host.goes_to("1.0.0");
    }
}

/// 2.0.0 was installed while the agent was stopped, and has never answered: its database is not one to go back to.
#[test]
fn what_never_worked_leaves_no_backup_to_go_forward_with() {
    let host = Host::new();
    host.goes_to("1.0.0");
    assert!(matches!(host.update("1.0.0", Urgency::Now), Outcome::Nothing(_)), "and it is seen to work");
    host.stop_agent();
    assert!(matches!(host.update("2.0.0", Urgency::Now), Outcome::Switched { .. }));
    host.break_versions(&["2.0.0"]);
    host.start_agent();
    host.break_versions(&[]);
    host.stop_agent();
    assert!(matches!(host.update("1.0.0", Urgency::Now), Outcome::Switched { .. }));
    host.start_agent();
    host.goes_to("2.0.0");
    assert_eq!(host.rows(), ["1.0.0", "1.0.0 again", "2.0.0"], "not what 2.0.0 did the first time");
}
