//! The outcomes of commands, by what is installed and which failures came before.

#![allow(clippy::unwrap_used)]

#[path = "host/folder.rs"]
mod folder;
mod host;

use std::path::Path;

use folder::Folder;
use host::Host;
use refit_types::UpdaterStatus;
use refit_update::{Outcome, RealDisk, Urgency, last_status};

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
