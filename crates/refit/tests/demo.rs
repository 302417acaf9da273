//! `refit demo` from start to end, and that it leaves no process and no file behind.

#![allow(clippy::unwrap_used)]

mod demonstration;

use std::process::Command;

use demonstration::{Demo, TIMEOUT, program};
use refit_testbed::{Signal, eventually};

/// Where each of these begins, which are there in this order.
#[track_caller]
fn in_order(told: &str, lines: &[&str]) {
    let mut from = 0;
    for line in lines {
        let found = told[from..].find(line);
        let Some(found) = found else { panic!("{line:?} is not there, or too early:\n{told}") };
        from += found + line.len();
    }
}

#[tokio::test]
async fn every_host_gets_the_new_version_in_the_order_of_the_groups() {
    let mut demo = Demo::start(&["--once", "--hosts", "3"]);
    let (code, told) = demo.ends().await;
    assert_eq!(code, Some(0), "{told}");
    in_order(
        &told,
        &[
            "/web",
            " ctl --data-dir ",
            "all hosts have joined, and run 1.0.0",
            "canary1: 1.0.0 -> 1.1.0",
            "canary1: runs 1.1.0, and proves it for 5 s",
            "canary1: upgraded",
            "canary: succeeded",
            "staging1: 1.0.0 -> 1.1.0",
            "staging1: upgraded",
            "staging: succeeded",
            "production1: 1.0.0 -> 1.1.0",
            "production1: upgraded",
            "production: succeeded",
            "All 3 hosts run 1.1.0",
        ],
    );
    let first = |words: &str| told.find(words).unwrap();
    assert!(first("canary: succeeded") < first("  staging1: "), "{told}");
    assert!(first("staging: succeeded") < first("  production1: "), "{told}");
    assert!(!told.contains('\u{1b}'), "this is no terminal");
    demo.left_nothing();
}

#[tokio::test]
async fn a_version_that_does_not_run_is_undone_and_stops_the_rollout() {
    let mut demo = Demo::start(&["--once", "--hosts", "3", "--break", "one"]);
    let (code, told) = demo.ends().await;
    assert_eq!(code, Some(1), "{told}");
    in_order(
        &told,
        &[
            "canary1: 1.0.0 -> 1.1.0",
            "staging: active",
            "staging1 was told to upgrade to 1.1.0.",
            "at the step \"health\": the agent ended (exit status 3).",
            "    its agent ended: exit status 3, first seen at 20",
            "    | this build of 1.1.0 is broken: its agent does not start",
            "So staging1 runs 1.0.0 again",
            "The group staging halted: 1 of 1 failed, limit 0%.",
            "Spared, still on 1.0.0, never told to upgrade: production1.",
            "On 1.1.0, because it works there: canary1.",
            "try again: refitctl autoupdate run --group staging\n",
        ],
    );
    assert!(!told.contains("production: active") && !told.contains("staging1: 1.0.0 -> 1.1.0"), "{told}");
    demo.left_nothing();
}

#[tokio::test]
async fn an_interrupt_leaves_nothing_behind() {
    let mut early = Demo::start(&["--hosts", "50"]);
    early.says("This brings 50 hosts").await;
    early.signal(Signal::INT);
    let (code, told) = early.ends().await;
    assert_eq!(code, Some(130), "{told}");
    early.left_nothing();

    let mut demo = Demo::start(&["--hosts", "3"]);
    demo.says("  canary1: ").await;
    assert!(
        demo.runs().len() >= 7,
        "a server, and a supervisor and an agent on each host: {:?}",
        demo.runs()
    );
    demo.signal(Signal::INT);
    let (code, told) = demo.ends().await;
    assert_eq!(code, Some(130), "{told}");
    demo.left_nothing();
}

#[tokio::test]
async fn it_stays_until_it_is_told_to_end() {
    let mut demo = Demo::start(&["--hosts", "3"]);
    demo.says("Ctrl-C ends all of it.").await;
    demo.ctl(&["status"]).good();
    demo.signal(Signal::TERM);
    let (code, told) = demo.ends().await;
    assert_eq!(code, Some(0), "{told}");
    demo.left_nothing();
}

#[tokio::test]
async fn nothing_outlives_it_however_it_ends() {
    let mut demo = Demo::start(&["--hosts", "3"]);
    demo.says("  canary1: ").await;
    assert!(demo.runs().len() >= 7, "{:?}", demo.runs());
    demo.signal(Signal::KILL);
    demo.ends().await;
    eventually("the end of all that it started", TIMEOUT, async || demo.runs().is_empty()).await;
}

#[test]
fn invalid_options_are_refused() {
    for (arguments, words) in
        [(&["--hosts", "2"][..], "3..=50"), (&["--hosts", "51"], "3..=50"), (&["--break", "all"], "one")]
    {
        let refused = Command::new(program()).arg("demo").args(arguments).output().unwrap();
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{told}");
        assert!(told.contains(words), "{told}");
    }
}
