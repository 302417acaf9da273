//! The table of what `enable` does, by how the host stands and what the cluster says.

use std::time::Duration;

use refit_types::{BootMoment, Edition, UpdateFailure, UpdaterStatus};

use super::*;
use crate::config::Config;
use crate::host::Moment;

fn version(text: &str) -> Version {
    text.parse().unwrap()
}

/// A cluster that wants 2.0.0, and what `enable` decides there.
#[derive(Clone, Copy)]
struct Case {
    standing: fn() -> Standing,
    active: Option<&'static str>,
    is_told: bool,
    withheld: Option<&'static str>,
    pinned: Option<&'static str>,
    has_failed: bool,
}

fn joined() -> Standing {
    Standing::Joined { current: version("1.0.0") }
}

const JOINED: Case = Case {
    standing: joined,
    active: Some("1.0.0"),
    is_told: false,
    withheld: None,
    pinned: None,
    has_failed: false,
};

const NEW: Case = Case { standing: || Standing::New, active: None, ..JOINED };

impl Case {
    fn decide(&self) -> Result<Plan, NotEnabled> {
        let config = Config { pinned_version: self.pinned.map(version), ..Config::default() };
        let answer = Answer {
            version: version("2.0.0"),
            edition: Edition::Oss,
            auto_update: self.is_told,
            jitter_seconds: 600,
            attempt: 7,
            withheld: self.withheld.map(str::to_owned),
        };
        let since_boot = BootMoment { boot_id: "b".into(), seconds: 100 };
        let now = Moment { wall: jiff::Timestamp::UNIX_EPOCH, since_boot: since_boot.clone() };
        let failure = UpdateFailure {
            attempt: 7,
            version: version("2.0.0"),
            step: "health".into(),
            reason: "it does not work".into(),
            at: now.wall,
            agent: None,
        };
        let status = UpdaterStatus {
            last_failure: self.has_failed.then_some(failure),
            failures: u32::from(self.has_failed),
            failed_at: self.has_failed.then_some(since_boot),
            ..UpdaterStatus::default()
        };
        let active = self.active.map(version);
        let facts = Facts {
            config: &config,
            answer: &answer,
            active: active.as_ref(),
            status: &status,
            urgency: Urgency::Now,
            now: &now,
            jitter: Duration::from_secs(300),
            told: None,
        };
        decide_enable(facts, &(self.standing)())
    }
}

fn switch(to: &str, confirm: bool) -> Result<Plan, NotEnabled> {
    Ok(Plan::Switch { version: version(to), confirm })
}

fn not_yet() -> Result<Plan, NotEnabled> {
    Ok(Plan::Postpone(Postponed::NotYet { version: version("2.0.0"), current: version("1.0.0") }))
}

#[test]
fn a_host_that_has_joined_waits_until_it_is_told() {
    assert_eq!(JOINED.decide(), not_yet());
    let told = Case { is_told: true, ..JOINED };
    assert_eq!(told.decide(), switch("2.0.0", true), "without the jitter, which is for the timer");
    let failed = Case { has_failed: true, ..told }.decide();
    assert!(matches!(failed, Ok(Plan::Postpone(Postponed::HoldBack { .. }))), "not each time: {failed:?}");
    let active = Case { active: Some("2.0.0"), ..JOINED };
    assert_eq!(active.decide(), Ok(Plan::KeepActive { version: version("2.0.0"), is_pinned: false }));
    assert_eq!(Case { pinned: Some("1.5.0"), ..JOINED }.decide(), switch("1.5.0", false));
}

#[test]
fn an_agent_that_the_updater_has_not_installed_keeps_its_version_too() {
    let package = Case { active: None, ..JOINED };
    let not_due = NotEnabled::NotDue { version: version("2.0.0"), current: version("1.0.0") };
    assert_eq!(package.decide(), Err(not_due));
    assert_eq!(Case { is_told: true, ..package }.decide(), switch("2.0.0", true));
    let same = Case { standing: || Standing::Joined { current: version("2.0.0") }, ..package };
    assert_eq!(same.decide(), switch("2.0.0", false), "its version does not change");
}

#[test]
fn a_new_host_installs_what_it_is_given_unless_that_is_withheld() {
    for standing in [|| Standing::New, || Standing::Emptied] {
        let new = Case { standing, ..NEW };
        assert_eq!(new.decide(), switch("2.0.0", false));
        let withheld = Case { withheld: Some("halted"), ..new };
        let refused = NotEnabled::Withheld { version: version("2.0.0"), stopped: "halted".into() };
        assert_eq!(withheld.decide(), Err(refused));
        assert_eq!(Case { pinned: Some("1.5.0"), ..withheld }.decide(), switch("1.5.0", false));
    }
    let withheld = Case { withheld: Some("halted"), active: Some("1.0.0"), ..NEW };
    assert_eq!(withheld.decide(), not_yet(), "what is installed stays");
    let installed = Case { active: Some("2.0.0"), ..withheld };
    assert_eq!(installed.decide(), Ok(Plan::KeepActive { version: version("2.0.0"), is_pinned: false }));
}
