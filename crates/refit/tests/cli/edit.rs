//! The resources of rollouts through `refitctl`: shown with their defaults, stored, and changed in an editor.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use refit_testbed::publish;

use crate::host::{Host, Ran, mode};

const CONFIG: &str = "kind: cluster_maintenance_config\nspec:\n  agent_auto_update_groups:\n    regular:\n    \
    - name: staging\n      max_in_flight: 25%\n    - name: prod\n      requires: [staging]\n";

fn version(version: &str) -> String {
    format!("kind: autoupdate_version\nspec:\n  agent_version: {version}\n")
}

/// Runs `refitctl edit` with a shell script as the editor; `$1` is the file.
pub fn edit(host: &Host, arguments: &[&str], script: &str) -> Ran {
    let editor = host.write("editor.sh", &format!("#!/bin/sh\nset -e\n{script}\n"));
    std::fs::set_permissions(&editor, std::fs::Permissions::from_mode(0o755)).unwrap();
    let arguments = [&["edit"], arguments].concat();
    let mut command = host.command(&host.path("refitctl"), &arguments);
    command.env("REFIT_DATA_DIR", host.path("data")).env("TMPDIR", host.path("")).env_remove("VISUAL");
    Ran::of(command.env("EDITOR", editor))
}

fn kept(error: &str) -> PathBuf {
    error.trim_end().rsplit_once("the text is kept in ").unwrap().1.into()
}

#[test]
fn the_config_is_one_and_its_defaults_can_be_seen() {
    let host = Host::new();
    let _server = host.serve();
    let defaults = host.ctl(&["get", "cluster_maintenance_config"]).good();
    let note = "# No cluster_maintenance_config is stored; these are the defaults.\n";
    assert!(defaults.starts_with(note) && defaults.contains("window_hours: 4"), "{defaults}");
    let missing = host.ctl(&["rm", "cluster_maintenance_config"]).bad(1);
    assert!(missing.contains("there is no cluster_maintenance_config"), "{missing}");
    let missing = host.ctl(&["get", "autoupdate_version"]).bad(1);
    assert!(missing.contains("there is no autoupdate_version"), "{missing}");

    host.ctl_with_input(&["create", "-"], CONFIG).good();
    let taken = host.ctl_with_input(&["create", "-"], CONFIG).bad(1);
    assert!(taken.contains("cluster_maintenance_config exists already; replace it with --force"), "{taken}");
    let shown = host.ctl(&["get", "cluster_maintenance_config"]).good();
    assert!(shown.contains("25%") && !shown.contains("window_hours"), "{shown}");
    let all =
        host.ctl(&["get", "cluster_maintenance_config/cluster-maintenance-config", "--defaults"]).good();
    assert!(
        all.contains("25%") && all.contains("window_hours: 4") && all.contains("timeout_seconds: 60"),
        "{all}"
    );
    let other = host.ctl(&["get", "cluster_maintenance_config/other"]).bad(2);
    assert!(other.contains("expected cluster-maintenance-config, or none"), "{other}");
    // What was shown can be stored as it is, once.
    host.ctl_with_input(&["create", "--force", "-"], &all).good();
    let stale = host.ctl_with_input(&["create", "--force", "-"], &all).bad(1);
    assert!(stale.contains("was changed by someone else meanwhile"), "{stale}");
    let gone = host.ctl(&["rm", "cluster_maintenance_config"]).good();
    assert_eq!(gone, "cluster_maintenance_config has been deleted.\n");
}

#[test]
fn a_lower_major_version_must_be_meant() {
    let host = Host::new();
    publish(&host.path("data/artifacts"), &["15.1.1", "15.0.0", "14.9.9"]);
    let _server = host.serve();
    host.ctl_with_input(&["create", "-"], &version("15.1.1")).good();
    host.ctl_with_input(&["create", "--force", "-"], &version("15.0.0")).good();
    let refused = host.ctl_with_input(&["create", "--force", "-"], &version("14.9.9")).bad(1);
    assert!(refused.contains("14.9.9 is of a lower major version than the present 15.0.0"), "{refused}");
    assert!(refused.contains("--allow-major-downgrade"), "{refused}");
    let lower = "sed -i s/15.0.0/14.9.9/ \"$1\"";
    let refused = edit(&host, &["autoupdate_version"], lower).bad(1);
    assert!(refused.contains("--allow-major-downgrade") && kept(&refused).exists(), "{refused}");
    assert!(host.ctl(&["get", "autoupdate_version"]).good().contains("15.0.0  "));
    edit(&host, &["autoupdate_version", "--allow-major-downgrade"], lower).good();
    let shown = host.ctl(&["get", "autoupdate_version"]).good();
    assert!(shown.starts_with("AGENT VERSION") && shown.contains("14.9.9         regular"), "{shown}");
}

#[test]
fn a_version_that_is_not_published_must_be_meant() {
    let host = Host::new();
    publish(&host.path("data/artifacts"), &["15.1.1"]);
    let _server = host.serve();
    let choose =
        |more: &[&str]| host.ctl(&[&["autoupdate", "update", "--set-agent-version=15.1.2"], more].concat());
    let refused = choose(&[]).bad(1);
    for words in [
        "error: spec.agent_version: 15.1.2 is not published for oss linux/",
        "lack refit-oss-v15.1.2-linux-",
        "Published there: 15.1.1 (oss linux/",
        "repeat with --allow-missing if hosts download from a mirror elsewhere",
    ] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
    let created = host.ctl_with_input(&["create", "-"], &version("15.1.2")).bad(1);
    assert!(created.contains("15.1.2 is not published"), "{created}");
    host.ctl_with_input(&["create", "-"], &version("15.1.1")).good();
    let to_other = "sed -i s/15.1.1/15.1.2/ \"$1\"";
    let edited = edit(&host, &["autoupdate_version"], to_other).bad(1);
    assert!(edited.contains("15.1.2 is not published") && kept(&edited).exists(), "{edited}");
    edit(&host, &["autoupdate_version", "--allow-missing"], to_other).good();
    host.ctl_with_input(&["create", "--force", "--allow-missing", "-"], &version("15.1.3")).good();
    choose(&["--allow-missing"]).good();
    assert!(host.ctl(&["get", "autoupdate_version"]).good().contains("15.1.2  "));
}

#[test]
fn a_resource_is_changed_in_an_editor() {
    let host = Host::new();
    publish(&host.path("data/artifacts"), &["15.1.1"]);
    let _server = host.serve();
    host.ctl_with_input(&["create", "-"], CONFIG).good();
    let seen = host.path("seen");
    let script = format!("stat -c %a \"$1\" > {}; sed -i s/25%/50%/ \"$1\"", seen.display());
    let stored = edit(&host, &["cluster_maintenance_config"], &script).good();
    assert_eq!(stored, "cluster_maintenance_config has been stored.\n");
    assert_eq!(std::fs::read_to_string(seen).unwrap(), "600\n");
    assert!(host.ctl(&["get", "cluster_maintenance_config"]).good().contains("50%"));
    assert_eq!(edit(&host, &["cluster_maintenance_config"], "true").good(), "Nothing was changed.\n");
    let left = std::fs::read_dir(host.path(""))
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("refitctl-"));
    assert_eq!(left.count(), 0, "a text that was stored is not left behind");

    // What is not there yet is made, and what cannot be is told.
    let made =
        edit(&host, &["autoupdate_version"], "sed -i 's/agent_version:.*/agent_version: 15.1.1/' \"$1\"");
    assert_eq!(made.good(), "autoupdate_version has been stored.\n");
    assert!(edit(&host, &["channel/none"], "true").bad(1).contains("there is no channel \"none\""));
    assert!(edit(&host, &["channel"], "true").bad(2).contains("expected KIND/NAME"));
}

#[test]
fn faults_and_failures_keep_the_text() {
    let host = Host::new();
    let _server = host.serve();
    host.ctl_with_input(&["create", "-"], CONFIG).good();
    let faulty =
        edit(&host, &["cluster_maintenance_config"], "sed -i 's/25%/125%/; s/prod/staging/' \"$1\"").bad(1);
    for word in [
        "regular[0].max_in_flight: expected a share from 0% to 100%",
        "Nothing was changed; the text is kept in",
    ] {
        assert!(faulty.contains(word), "{word:?} is not in {faulty}");
    }
    let file = kept(&faulty);
    assert!(std::fs::read_to_string(&file).unwrap().contains("125%"));
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    for (script, word) in [
        ("echo 'a: [' > \"$1\"", "line"),
        ("exit 3", "failed: exit status: 3"),
        (
            "echo 'kind: autoupdate_version\nspec: {agent_version: 1.0.0}' > \"$1\"",
            "kind and name cannot be edited",
        ),
        ("cat \"$1\" > copy; echo --- >> \"$1\"; cat copy >> \"$1\"", "several documents"),
    ] {
        let error = edit(&host, &["cluster_maintenance_config"], script).bad(1);
        assert!(error.contains(word) && kept(&error).exists(), "{word:?} is not in {error}");
    }
    assert!(host.ctl(&["get", "cluster_maintenance_config"]).good().contains("25%"));
}

#[test]
fn a_change_by_someone_else_meanwhile_is_not_overwritten() {
    let host = Host::new();
    let _server = host.serve();
    host.ctl_with_input(&["create", "-"], CONFIG).good();
    let theirs = host.write("theirs.yaml", &CONFIG.replace("25%", "75%"));
    // They do so while the editor is open; that the revision is removed there changes nothing.
    let script = format!(
        "sed -i 's/25%/50%/; /revision/d' \"$1\"\n{} create --force {} > /dev/null",
        host.path("refitctl").display(),
        theirs.display()
    );
    let refused = edit(&host, &["cluster_maintenance_config"], &script).bad(1);
    assert!(
        refused.contains("cluster_maintenance_config was changed by someone else meanwhile"),
        "{refused}"
    );
    assert!(std::fs::read_to_string(kept(&refused)).unwrap().contains("50%"));
    assert!(host.ctl(&["get", "cluster_maintenance_config"]).good().contains("75%"));
}

#[test]
fn hostile_configs_are_refused_quickly() {
    let host = Host::new();
    let _server = host.serve();
    let bomb: String = ('b'..='i').fold("a: &a [x,x,x,x,x,x,x,x,x,x]\n".into(), |text: String, name| {
        let before = (name as u8 - 1) as char;
        text + &format!("{name}: &{name} [{}]\n", vec![format!("*{before}"); 10].join(","))
    });
    let bomb = format!("kind: cluster_maintenance_config\n{bomb}spec: *i\n");
    let large = format!("kind: cluster_maintenance_config\nspec: [{}]\n", "x, ".repeat((10 << 20) / 3));
    for (text, word) in [(bomb, ""), (large, "is larger than the 1048576 bytes that are allowed")] {
        let began = Instant::now();
        let error = host.ctl_with_input(&["create", "-"], &text).bad(1);
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert!(error.contains(word) && error.len() < 2000, "{error}");
    }
}
