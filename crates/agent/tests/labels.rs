//! Labels from real programs: whatever a program does, its label says so and the others do not wait.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use refit_agent::{COMMAND_TIME_LIMIT, LabelCommand, LabelSource};
use refit_testbed::eventually;
use refit_types::Labels;

const SOON: Duration = Duration::from_secs(20);
const RARELY: Duration = Duration::from_secs(3600);

fn label(name: &str, command: &[&str], period: Duration) -> LabelCommand {
    let command = command.iter().map(ToString::to_string).collect();
    LabelCommand { name: name.into(), command, period }
}

fn shell(name: &str, script: &str) -> LabelCommand {
    label(name, &["/bin/sh", "-c", script], RARELY)
}

fn runs(pid: &str) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

async fn written(path: &Path) -> String {
    eventually("a file is written", SOON, async || {
        fs::read_to_string(path).is_ok_and(|text| text.ends_with('\n'))
    })
    .await;
    fs::read_to_string(path).unwrap().trim().to_owned()
}

async fn values(commands: Vec<LabelCommand>) -> Labels {
    let source = LabelSource::start("fixed=yes".parse().unwrap(), commands);
    source.first_round().await;
    let labels = source.labels().borrow().clone();
    source.stop().await;
    labels
}

#[tokio::test]
async fn every_way_to_end_has_its_value() {
    let directory = refit_testbed::directory();
    let data = directory.path().join("data");
    fs::write(&data, "").unwrap();
    let labels = values(vec![
        shell("good", "echo ' one two '; echo three"),
        shell("quiet", "true"),
        shell("fails", "echo value; exit 3"),
        shell("killed", "kill -9 $$"),
        shell("bytes", r"printf '\377\376\n'"),
        shell("control", r"printf 'a\007b\n'"),
        shell("long", "printf '%300s' | tr ' ' x"),
        shell("floods", "yes"),
        shell("full", "head -c 4096 /dev/zero | tr '\\0' '\\n'"),
        label("missing", &["/no/such/program"], RARELY),
        label("data", &[data.to_str().unwrap()], RARELY),
        label("nothing", &[], RARELY),
        shell("leaves", "sleep 1000 & echo left"),
        shell("reads", "cat; echo no input"),
        shell("token", "echo \"<$REFIT_TOKEN><$NOTIFY_SOCKET>\""),
    ])
    .await;
    let expected = [
        ("bytes", "error: the output is not UTF-8"),
        ("control", "error: the value is too long or has a control character"),
        ("data", "error: the program may not be executed"),
        ("fails", "error: exit status 3"),
        ("fixed", "yes"),
        ("floods", "error: more than 4096 bytes of output"),
        ("full", ""),
        ("good", "one two"),
        ("killed", "error: ended by signal 9"),
        ("leaves", "left"),
        ("long", "error: the value is too long or has a control character"),
        ("missing", "error: there is no such program"),
        ("nothing", "error: the program cannot be started"),
        ("quiet", ""),
        ("reads", "no input"),
        ("token", "<><>"),
    ];
    let found: Vec<_> = labels.iter().collect();
    assert_eq!(found, expected);
}

#[test]
fn programs_do_not_see_the_agents_own_settings() {
    let again = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "every_way_to_end_has_its_value"])
        .envs([("REFIT_TOKEN", "s3cret"), ("NOTIFY_SOCKET", "/no/such/socket")])
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&again.stdout);
    assert!(again.status.success() && output.contains("1 passed"), "{output}");
}

#[tokio::test]
async fn a_program_that_hangs_is_ended_with_its_children_and_delays_nobody() {
    let directory = refit_testbed::directory();
    let (child, own): (PathBuf, PathBuf) = (directory.path().join("child"), directory.path().join("own"));
    let script = format!(
        "sleep infinity & echo $! > {}; echo $$ > {}; sleep infinity",
        child.display(),
        own.display()
    );
    let start = Instant::now();
    let source =
        LabelSource::start(Labels::default(), vec![shell("hangs", &script), shell("works", "echo ok")]);
    let mut labels = source.labels();
    labels.wait_for(|labels| labels.get("works") == Some("ok")).await.unwrap();
    assert!(start.elapsed() < COMMAND_TIME_LIMIT && labels.borrow().get("hangs").is_none());
    let (child, own) = (written(&child).await, written(&own).await);
    assert!(runs(&child) && runs(&own));
    source.first_round().await;
    assert!(start.elapsed() >= COMMAND_TIME_LIMIT);
    assert_eq!(labels.borrow().get("hangs"), Some("error: timed out after 10s"));
    eventually("the program and its child are gone", SOON, async || !runs(&child) && !runs(&own)).await;
    assert!(!Path::new("/proc").join(&own).exists(), "it was not reaped");
}

#[tokio::test]
async fn stopping_ends_and_reaps_what_runs() {
    let directory = refit_testbed::directory();
    for dropped in [false, true] {
        let own = directory.path().join(format!("own-{dropped}"));
        let script = format!("echo $$ > {}; sleep infinity", own.display());
        let source = LabelSource::start(Labels::default(), vec![shell("hangs", &script)]);
        let own = written(&own).await;
        if dropped {
            drop(source);
            eventually("the program is gone", SOON, async || !runs(&own)).await;
        } else {
            let asked = Instant::now();
            source.stop().await;
            assert!(asked.elapsed() < COMMAND_TIME_LIMIT / 2, "it was waited for");
            assert!(!Path::new("/proc").join(&own).exists(), "it runs or was not reaped");
        }
    }
}

#[tokio::test]
async fn a_value_that_changes_is_told() {
    let directory = refit_testbed::directory();
    let file = directory.path().join("value");
    fs::write(&file, "old\n").unwrap();
    let often = Duration::from_millis(50);
    let source =
        LabelSource::start(Labels::default(), vec![label("v", &["cat", file.to_str().unwrap()], often)]);
    let mut labels = source.labels();
    labels.wait_for(|labels| labels.get("v") == Some("old")).await.unwrap();
    fs::write(&file, "new\n").unwrap();
    labels.wait_for(|labels| labels.get("v") == Some("new")).await.unwrap();
    fs::remove_file(&file).unwrap();
    labels.wait_for(|labels| labels.get("v") == Some("error: exit status 1")).await.unwrap();
    source.stop().await;
}
