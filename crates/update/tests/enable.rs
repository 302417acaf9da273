//! `enable` on hosts that the cluster knows, on new ones, and while a rollout is stopped.

#![allow(clippy::unwrap_used)]

#[path = "host/folder.rs"]
mod folder;
mod host;

use folder::Folder;
use host::{Host, PROXY};
use refit_update::{Outcome, UpdateError};

fn enable(host: &Host<Folder>, is_urgent: bool) -> Result<Outcome, UpdateError> {
    host.updater().enable(Some(PROXY.into()), None, None, is_urgent, host)
}

/// The agent has joined.
fn joins(host: &Host<Folder>) {
    std::fs::write(host.layout.data().join("host_uuid"), "6f1b0b5e-0c5a-4bbd-9d7e-2f1f0f6f3a55\n").unwrap();
}

#[test]
fn a_host_that_the_cluster_knows_changes_its_version_only_when_it_is_told_to() {
    let host = Host::new();
    host.goes_to("1.0.0");
    joins(&host);
    host.state.lock().unwrap().not_due = true;
    host.want("2.0.0");
    let Outcome::Nothing(why) = enable(&host, false).unwrap() else { panic!("it changed its version") };
    assert_eq!(
        why,
        "updates are enabled, and 1.0.0 stays until the cluster wants 2.0.0 on this host; `enable --now` installs 2.0.0 at \
         once"
    );
    assert_eq!(host.active().as_deref(), Some("1.0.0"));
    host.updater().disable().unwrap();
    enable(&host, false).unwrap();
    let config = std::fs::read_to_string(host.layout.config()).unwrap();
    assert!(config.contains("enabled: true"), "updates are enabled all the same: {config}");

    let switched = |outcome| matches!(outcome, Outcome::Switched { .. });
    assert!(switched(enable(&host, true).unwrap()), "an operator asks for it now");
    host.want("3.0.0");
    host.state.lock().unwrap().not_due = false;
    assert!(switched(enable(&host, false).unwrap()), "it is told to");
    assert_eq!(host.active().as_deref(), Some("3.0.0"));

    // What configuration management runs every half hour does not try a version each time that has failed here.
    host.break_versions(&["4.0.0"]);
    host.want("4.0.0");
    assert!(matches!(enable(&host, false).unwrap(), Outcome::Undone { .. }));
    let Outcome::Nothing(why) = enable(&host, false).unwrap() else { panic!("it was tried again") };
    assert!(why.contains("4.0.0 failed at health"), "{why}");
    assert_eq!((host.active().as_deref(), host.rows().is_empty()), (Some("3.0.0"), false));
    std::fs::write(host.layout.data().join("host_uuid"), "garbage").unwrap();
    host.state.lock().unwrap().not_due = true;
    host.want("5.0.0");
    assert!(matches!(enable(&host, false).unwrap(), Outcome::Nothing(_)), "a UUID that cannot be read");
}

#[test]
fn what_is_left_of_a_host_after_uninstall_gets_what_new_hosts_get() {
    let host = Host::new();
    host.goes_to("1.0.0");
    joins(&host);
    assert!(host.updater().uninstall().unwrap());
    assert!(host.active().is_none() && host.layout.data().join("host_uuid").exists());
    host.state.lock().unwrap().not_due = true;
    host.want("3.0.0");

    // The rollout of 3.0.0 has halted, and nothing has ended well before.
    host.state.lock().unwrap().withheld = Some("halted");
    let refused = enable(&host, false).unwrap_err().to_string();
    assert!(refused.starts_with("the rollout of 3.0.0 is halted"), "{refused}");
    assert!(host.active().is_none() && !host.layout.config().exists());

    let mut state = host.state.lock().unwrap();
    (state.withheld, state.wanted_by_new) = (None, Some(host::version("2.0.0")));
    drop(state);
    enable(&host, false).unwrap();
    assert_eq!(host.active().as_deref(), Some("2.0.0"));
}

#[test]
fn a_new_host_installs_what_it_is_given_unless_that_is_withheld() {
    let host = Host::new();
    host.want("1.0.0");
    host.state.lock().unwrap().not_due = true;
    host.state.lock().unwrap().withheld = Some("halted");
    let refused = enable(&host, false).unwrap_err().to_string();
    assert_eq!(
        refused,
        "the rollout of 1.0.0 is halted, and the control plane has no version for new hosts whose rollout ended well; \
         nothing was installed: run `enable` again once `refitctl autoupdate status` shows that the rollout goes on, or \
         install 1.0.0 all the same with `enable --now`"
    );
    assert!(host.active().is_none() && !host.layout.config().exists());
    enable(&host, true).unwrap();
    assert_eq!(host.active().as_deref(), Some("1.0.0"), "an operator asks for it now");
    assert!(matches!(enable(&host, false).unwrap(), Outcome::Nothing(_)), "it stays");

    let other = Host::new();
    other.want("1.0.0");
    other.state.lock().unwrap().not_due = true;
    enable(&other, false).unwrap();
    assert_eq!(other.active().as_deref(), Some("1.0.0"), "the last good version, with false");
}
