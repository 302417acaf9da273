//! Every case of the plan, as a table.

use refit_types::{BootMoment, Edition, UpdateFailure};

use super::*;

fn version(text: &str) -> Version {
    text.parse().unwrap()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

/// A host that runs 1.0.0, in a cluster that wants 2.0.0 on it now.
struct Case {
    pinned: Option<&'static str>,
    active: Option<&'static str>,
    auto_update: bool,
    attempt: u64,
    urgency: Urgency,
    jitter: u64,
    /// The version, the step and the attempt of the last failure, and how often it has failed.
    failure: Option<(&'static str, &'static str, u64, u32)>,
    /// Seconds since that failure.
    since: u64,
    /// By how much the wall clock was set since.
    jump: i64,
    /// Whether the failure was in another boot, an hour before this one by the wall clock.
    rebooted: bool,
    /// Whether an updater stored the failure that knows no other clock.
    by_wall_only: bool,
}

const DUE: Case = Case {
    pinned: None,
    active: Some("1.0.0"),
    auto_update: true,
    attempt: 7,
    urgency: Urgency::Due,
    jitter: 0,
    failure: None,
    since: 60,
    jump: 0,
    rebooted: false,
    by_wall_only: false,
};

impl Case {
    fn decide(&self) -> Plan {
        let config = Config { pinned_version: self.pinned.map(version), ..Config::default() };
        let answer = Answer {
            version: version("2.0.0"),
            edition: Edition::Oss,
            auto_update: self.auto_update,
            jitter_seconds: 600,
            attempt: self.attempt,
            withheld: None,
        };
        let last_failure = self.failure.map(|(failed, step, attempt, _)| UpdateFailure {
            attempt,
            version: version(failed),
            step: step.into(),
            reason: "it crashed".into(),
            at: at(0),
            agent: None,
        });
        let failures = self.failure.map_or(0, |(.., failures)| failures);
        let moment = |boot_id: &str, seconds| BootMoment { boot_id: boot_id.into(), seconds };
        let (failed_at, now) = match self.rebooted {
            true => (moment("a", 5000), moment("b", self.since)),
            false => (moment("b", 5000), moment("b", 5000 + self.since)),
        };
        let failed_at = (last_failure.is_some() && !self.by_wall_only).then_some(failed_at);
        let status = UpdaterStatus { last_failure, failed_at, failures, ..UpdaterStatus::default() };
        let passed = i64::try_from(self.since).unwrap() + if self.rebooted { 3600 } else { 0 };
        let now = Moment { wall: at(passed + self.jump), since_boot: now };
        decide(Facts {
            config: &config,
            answer: &answer,
            active: self.active.map(version).as_ref(),
            status: &status,
            urgency: self.urgency,
            now: &now,
            jitter: Duration::from_secs(self.jitter),
            told: None,
        })
    }
}

fn keep(text: &str, is_pinned: bool) -> Plan {
    Plan::KeepActive { version: version(text), is_pinned }
}

fn switch(text: &str, confirm: bool) -> Plan {
    Plan::Switch { version: version(text), confirm }
}

fn held_back(step: FailedStep, seconds: i64) -> Plan {
    let (version, reason, until) = (version("2.0.0"), "it crashed".into(), at(seconds));
    Plan::Postpone(Postponed::HoldBack { version, step, reason, until })
}

#[test]
fn every_case_has_its_plan() {
    const HEALTH: Option<(&str, &str, u64, u32)> = Some(("2.0.0", "health", 7, 1));
    let not_due = || Plan::Postpone(Postponed::NotDue { version: version("2.0.0") });
    let cases = [
        ("the version is active", Case { active: Some("2.0.0"), ..DUE }, keep("2.0.0", false)),
        (
            "it is active and not due: kept all the same",
            Case { active: Some("2.0.0"), auto_update: false, failure: HEALTH, ..DUE },
            keep("2.0.0", false),
        ),
        (
            "it is active, and an operator asks",
            Case { active: Some("2.0.0"), urgency: Urgency::Now, ..DUE },
            keep("2.0.0", false),
        ),
        ("the pinned version is active", Case { pinned: Some("1.0.0"), ..DUE }, keep("1.0.0", true)),
        ("due", DUE, switch("2.0.0", true)),
        ("due on a fresh host", Case { active: None, ..DUE }, switch("2.0.0", true)),
        (
            "a downgrade is planned like an upgrade",
            Case { active: Some("3.0.0"), ..DUE },
            switch("2.0.0", true),
        ),
        ("not due", Case { auto_update: false, ..DUE }, not_due()),
        (
            "not due, after the jitter",
            Case { auto_update: false, urgency: Urgency::Spread, ..DUE },
            Plan::Postpone(Postponed::CalledOff { version: version("2.0.0") }),
        ),
        ("not due comes before a failure", Case { auto_update: false, failure: HEALTH, ..DUE }, not_due()),
        (
            "due, with jitter",
            Case { jitter: 42, ..DUE },
            Plan::Postpone(Postponed::Wait(Duration::from_secs(42))),
        ),
        (
            "the jitter has passed",
            Case { jitter: 42, urgency: Urgency::Spread, ..DUE },
            switch("2.0.0", true),
        ),
        (
            "an operator waits neither for the schedule, nor for jitter, nor for a backoff",
            Case { auto_update: false, jitter: 42, failure: HEALTH, urgency: Urgency::Now, ..DUE },
            switch("2.0.0", false),
        ),
        (
            "nor does a pin",
            Case { pinned: Some("2.0.0"), auto_update: false, jitter: 42, failure: HEALTH, ..DUE },
            switch("2.0.0", false),
        ),
        ("a pin wins over the control plane", Case { pinned: Some("1.5.0"), ..DUE }, switch("1.5.0", false)),
        ("it failed", Case { failure: HEALTH, ..DUE }, held_back(FailedStep::Health, 1800)),
        (
            "a backoff comes before jitter",
            Case { failure: HEALTH, jitter: 42, ..DUE },
            held_back(FailedStep::Health, 1800),
        ),
        (
            "and holds after it",
            Case { failure: HEALTH, urgency: Urgency::Spread, ..DUE },
            held_back(FailedStep::Health, 1800),
        ),
        (
            "the last second of the backoff",
            Case { failure: HEALTH, since: 1799, ..DUE },
            held_back(FailedStep::Health, 1800),
        ),
        ("the backoff is over", Case { failure: HEALTH, since: 1800, ..DUE }, switch("2.0.0", true)),
        (
            "the backoff doubles",
            Case { failure: Some(("2.0.0", "restart", 7, 3)), since: 7199, ..DUE },
            held_back(FailedStep::Restart, 7200),
        ),
        (
            "and ends at a day",
            Case { failure: Some(("2.0.0", "validate", 7, u32::MAX)), ..DUE },
            held_back(FailedStep::Validate, 86_400),
        ),
        (
            "the wall clock was set forward, and the backoff is as long as it was",
            Case { failure: HEALTH, since: 1799, jump: 86_400, ..DUE },
            held_back(FailedStep::Health, 1800 + 86_400),
        ),
        (
            "it was set back, and the backoff is over when it was to be",
            Case { failure: HEALTH, since: 1800, jump: -86_400, ..DUE },
            switch("2.0.0", true),
        ),
        (
            "a boot in between: the wall clock has gone on",
            Case { failure: Some(("2.0.0", "health", 7, 3)), since: 60, rebooted: true, ..DUE },
            held_back(FailedStep::Health, 7200),
        ),
        (
            "a boot in between, and it is over by the wall clock",
            Case { failure: HEALTH, since: 60, rebooted: true, ..DUE },
            switch("2.0.0", true),
        ),
        (
            "a host that boots in the past waits as long as it can tell",
            Case { failure: HEALTH, since: 60, jump: -1_000_000, rebooted: true, ..DUE },
            held_back(FailedStep::Health, 3600 + 1800 - 1_000_000),
        ),
        (
            "and no longer",
            Case { failure: HEALTH, since: 1800, jump: -1_000_000, rebooted: true, ..DUE },
            switch("2.0.0", true),
        ),
        (
            "a failure that an older updater stored",
            Case { failure: HEALTH, since: 1799, by_wall_only: true, ..DUE },
            held_back(FailedStep::Health, 1800),
        ),
        ("a new attempt", Case { failure: HEALTH, attempt: 8, ..DUE }, switch("2.0.0", true)),
        (
            "a control plane that counts no attempts",
            Case { failure: HEALTH, attempt: 0, ..DUE },
            held_back(FailedStep::Health, 1800),
        ),
        (
            "another version failed",
            Case { failure: Some(("1.9.0", "health", 7, 1)), ..DUE },
            switch("2.0.0", true),
        ),
        (
            "the version is not to blame",
            Case { failure: Some(("2.0.0", "download", 7, 1)), ..DUE },
            switch("2.0.0", true),
        ),
        (
            "a step of a newer release",
            Case { failure: Some(("2.0.0", "smoke", 7, 1)), ..DUE },
            switch("2.0.0", true),
        ),
    ];
    for (name, case, plan) in cases {
        assert_eq!(case.decide(), plan, "{name}");
    }
}

#[test]
fn only_an_enabled_host_with_a_proxy_asks() {
    let proxy = || Some("refit.example.com:3080".to_owned());
    let asked = |enabled, proxy| endpoint_to_ask(&Config { enabled, proxy, ..Config::default() });
    assert_eq!(asked(false, proxy()), Err(NotAsked::Disabled));
    assert_eq!(asked(false, None), Err(NotAsked::Disabled));
    assert_eq!(asked(true, None), Err(NotAsked::NoProxy));
    let config = Config {
        enabled: true,
        proxy: proxy(),
        base_url: Some("https://mirror.example.com".into()),
        mirrors: vec!["https://other.example.com".into()],
        ca_pin: Some("sha256:aa".into()),
        ..Config::default()
    };
    let endpoint = Endpoint {
        proxy: "refit.example.com:3080".into(),
        base_urls: ["https://mirror.example.com", "https://other.example.com"].map(Into::into).into(),
        ca_pin: Some("sha256:aa".into()),
    };
    assert_eq!(endpoint_to_ask(&config), Ok(endpoint));
}

#[test]
fn an_update_that_could_not_begin_is_tried_again_after_a_growing_delay_that_survives_the_process() {
    let delays = |drawn| (1..9).map(|tries| retry_delay(tries, drawn).as_secs()).collect::<Vec<_>>();
    assert_eq!(delays(0), [5, 10, 20, 40, 80, 160, 300, 300]);
    assert_eq!(delays(RETRY_SHARES), [2, 5, 10, 20, 40, 80, 150, 150]);
    assert_eq!(retry_delay(u32::MAX, 0), LONGEST_RETRY);

    let status = |step: FailedStep, attempt, version: Option<&str>| UpdaterStatus {
        obstacle: Some(UpdateObstacle {
            attempt,
            version: version.map(self::version),
            step: step.as_str().into(),
            reason: "404".into(),
            at: at(0),
            tries: 4,
            next_try: Some(at(40)),
        }),
        ..UpdaterStatus::default()
    };
    let boot = |seconds| BootMoment { boot_id: "a".into(), seconds };
    let decide_at = |status: &UpdaterStatus, urgency, now: Moment, auto_update| {
        let answer = Answer {
            version: version("2.0.0"),
            edition: Edition::Oss,
            auto_update,
            jitter_seconds: 600,
            attempt: 7,
            withheld: None,
        };
        let (config, active, jitter) = (Config::default(), version("1.0.0"), Duration::from_secs(600));
        decide(Facts {
            config: &config,
            answer: &answer,
            active: Some(&active),
            status,
            urgency,
            now: &now,
            jitter,
            told: None,
        })
    };
    let decide = |status: &UpdaterStatus, urgency, since, auto_update| {
        let since_boot = boot(5000 + u64::try_from(since).unwrap_or_default());
        decide_at(status, urgency, Moment { wall: at(since), since_boot }, auto_update)
    };
    let wait = |seconds| Plan::Postpone(Postponed::Wait(Duration::from_secs(seconds)));
    let download = status(FailedStep::Download, 7, Some("2.0.0"));
    assert_eq!(decide(&download, Urgency::Due, 10, true), wait(30));
    assert_eq!(decide(&download, Urgency::Due, 40, true), switch("2.0.0", true), "its jitter has passed");
    assert_eq!(decide(&download, Urgency::Due, -9000, true), wait(40), "a clock that was set back");
    let measured = UpdaterStatus { obstructed_at: Some(boot(5000)), ..download.clone() };
    for jump in [-9000, 0, 9000] {
        let after = |seconds: u64| Moment { wall: at(jump), since_boot: boot(5000 + seconds) };
        assert_eq!(decide_at(&measured, Urgency::Due, after(39), true), wait(1), "set by {jump} s");
        assert_eq!(decide_at(&measured, Urgency::Due, after(40), true), switch("2.0.0", true), "{jump}");
    }
    assert_eq!(decide(&download, Urgency::Spread, 10, true), switch("2.0.0", true));
    let not_due = Plan::Postpone(Postponed::NotDue { version: version("2.0.0") });
    assert_eq!(decide(&download, Urgency::Spread, 40, false), not_due, "it is no longer told to");
    assert_eq!(decide(&status(FailedStep::Find, 7, None), Urgency::Due, 40, true), wait(600));
    for other in
        [status(FailedStep::Download, 6, Some("2.0.0")), status(FailedStep::Download, 7, Some("1.9.0"))]
    {
        assert_eq!(decide(&other, Urgency::Due, 10, true), wait(600), "of another attempt");
    }
}
