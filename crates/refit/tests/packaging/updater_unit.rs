//! What `refit-update.service` runs: whether SELinux lets systemd start it, and which updater does the job where the active
//! one does not. The script of the unit is run as it is, on a host of shell scripts.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use refit_update::Profile;

use crate::sources;

const UNIT: &str = "refit-update.service";

fn unit(name: &str) -> String {
    fs::read_to_string(sources().join("packaging/systemd").join(name)).unwrap().replace("\\\n", "")
}

/// The commands of a unit, by setting, with their prefixes; one that is empty only clears those before.
fn commands(unit: &str) -> Vec<(&str, &str)> {
    let settings = unit.lines().filter_map(|line| line.split_once('='));
    settings.filter(|(name, command)| name.starts_with("Exec") && !command.is_empty()).collect()
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// The type of a file in the targeted policy, as far as our units run any.
fn selinux_type(path: &str) -> &'static str {
    match path {
        "/bin/sh" | "/usr/bin/sh" | "/bin/bash" | "/usr/bin/bash" => "shell_exec_t",
        "/bin/systemctl" | "/usr/bin/systemctl" => "systemd_systemctl_exec_t",
        _ if Path::new(path).parent().is_some_and(|parent| parent.ends_with("bin")) => "bin_t",
        other => panic!("the type of {other} is not known here"),
    }
}

/// Hosts keep the module that they have when a new unit arrives, so what the first release allows must do.
#[test]
fn selinux_lets_every_command_of_the_updater_enter_its_domain() {
    let rules = fs::read_to_string(sources().join("packaging/selinux/refit_update.te")).unwrap();
    let allows = |kind: &str, permission: &str| {
        let rule = format!("allow refit_update_t {kind}:file ");
        rules.lines().any(|line| line.starts_with(&rule) && line.contains(&format!(" {permission} ")))
    };
    let may_enter = |kind: &str| allows(kind, "entrypoint");
    assert!(may_enter("bin_t") && !may_enter("shell_exec_t"), "as in the module of the first release");
    for kind in ["bin_t", "shell_exec_t"] {
        assert!(allows(kind, "execute_no_trans"), "{kind}, from there on");
    }
    let own = unit(UNIT);
    let profile = Profile::refit();
    assert!(own.contains("SELinuxContext=-system_u:system_r:refit_update_t:s0\n"));
    for text in [&own, &profile.suffix_drop_ins[UNIT]] {
        let commands = commands(text);
        assert_eq!(commands.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["ExecStartPre", "ExecStart"]);
        for (name, command) in commands {
            let path = command.trim_start_matches(['-', '@', ':', '!']).split(' ').next().unwrap();
            assert!(may_enter(selinux_type(path)), "{name}={command}");
        }
    }
}

#[test]
fn a_second_agent_has_the_same_unit_with_its_own_paths() {
    let suffixed = Profile::refit().suffix_drop_ins[UNIT].clone();
    let plain = suffixed
        .replace("{bin_dir}", "/usr/local/bin")
        .replace("{data_dir}", "/var/lib/refit")
        .replace("--install-suffix {suffix} ", "");
    let own = unit(UNIT);
    let (own, plain) = (commands(&own), commands(&plain));
    for ((name, command), (other_name, other)) in own.iter().zip(&plain) {
        assert_eq!((name, words(command)), (other_name, words(other)));
    }
    assert_eq!(own.len(), plain.len());
    assert_eq!(suffixed.matches("--install-suffix {suffix} ").count(), 3, "for each updater that is run");
}

/// A host of which each updater is a script.
struct ScriptHost {
    root: tempfile::TempDir,
}

impl ScriptHost {
    /// With this version active, whose updater does that.
    fn new(active: &str, deed: &str) -> Self {
        let host = Self { root: tempfile::tempdir().unwrap() };
        fs::create_dir_all(host.path("bin")).unwrap();
        host.add(active, deed, &["sha256"]);
        symlink(format!("versions/{active}"), host.path("data/active")).unwrap();
        symlink(host.path("data/active/bin/refit-update"), host.path("bin/refit-update")).unwrap();
        host
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    /// Adds a version with these files, whose updater records how it was called and then does that.
    fn add(&self, version: &str, deed: &str, files: &[&str]) {
        let directory = self.path("data/versions").join(version);
        fs::create_dir_all(directory.join("bin")).unwrap();
        files.iter().for_each(|file| fs::write(directory.join(file), "").unwrap());
        let record = self.path("record");
        let text = format!(
            "#!/bin/sh\necho {version} \"$@\" ${{REFIT_UPDATE_LAUNCHED:+launched}} ${{REFIT_UPDATE_HANDED:+handed}} \
             >>{}\n{deed}\n",
            record.display()
        );
        let updater = directory.join("bin/refit-update");
        // A child process writes it, so that no process started meanwhile has it open.
        let mut write = Command::new("sh");
        write.args(["-c", "printf %s \"$1\" >\"$2\" && chmod 755 \"$2\"", "sh", &text]).arg(updater);
        assert!(write.status().unwrap().success());
    }

    /// Runs the unit's command: its exit code, and which updaters have run.
    fn start(&self) -> (i32, Vec<String>) {
        let text = unit(UNIT);
        let commands = commands(&text);
        let command = commands.iter().find(|(name, _)| *name == "ExecStart").unwrap().1;
        let script = command.strip_prefix("/usr/bin/env sh -c '").and_then(|rest| rest.strip_suffix('\''));
        let script = script.unwrap().replace("$$", "$").replace("%%", "%");
        let script = script.replace("/usr/local/bin", self.path("bin").to_str().unwrap());
        let script = script.replace("/var/lib/refit", self.path("data").to_str().unwrap());
        let _ = fs::remove_file(self.path("record"));
        let ended = Command::new("/usr/bin/env").args(["sh", "-c", &script]).output().unwrap().status;
        let record = fs::read_to_string(self.path("record")).unwrap_or_default();
        let code = ended.code().unwrap_or_else(|| 128 + ended.signal().unwrap());
        (code, record.lines().map(str::to_owned).collect())
    }
}

const PROVED: &[&str] = &["sha256", "proved"];

#[test]
fn the_newest_older_version_does_the_job_of_an_updater_that_dies() {
    for deed in ["kill -SEGV $$", "exit 1", "exit 101", "exit 127"] {
        let host = ScriptHost::new("1.10.0", deed);
        host.add("1.2.0", "exit 0", PROVED);
        host.add("1.9.0", "exit 0", PROVED);
        host.add("1.10.0-rc.1", "exit 0", &["proved"]);
        host.add("1.11.0", "exit 0", PROVED);
        host.add("2.0.0", "exit 0", &["sha256"]);
        let ran = |other: &str| vec!["1.10.0 update launched".into(), format!("{other} update handed")];
        assert_eq!(host.start(), (0, ran("1.9.0")), "{deed}");
        host.add("1.10.0-rc.1", "exit 3", PROVED);
        assert_eq!(host.start(), (1, ran("1.10.0-rc.1")), "{deed}");
    }
}

#[test]
fn a_newer_version_does_it_only_where_it_has_worked_and_none_is_older() {
    let host = ScriptHost::new("1.2.4", "exit 1");
    let active = "1.2.4 update launched".to_owned();
    host.add("1.2.5", "exit 0", &["sha256"]);
    assert_eq!(host.start(), (1, vec![active.clone()]), "it may be the one that was rolled back");
    host.add("1.2.6", "exit 0", PROVED);
    host.add("1.2.7", "exit 0", PROVED);
    assert_eq!(host.start(), (0, vec![active, "1.2.6 update handed".into()]));
}

#[test]
fn what_is_done_or_final_is_not_done_again() {
    for (deed, code) in
        [("exit 0", 0), ("exit 3", 1), ("kill -TERM $$", 143), ("kill -INT $$; exit 130", 130)]
    {
        let host = ScriptHost::new("1.2.4", deed);
        host.add("1.2.3", "exit 0", PROVED);
        let (ended, ran) = host.start();
        assert_eq!(ran, ["1.2.4 update launched"], "{deed}");
        assert_eq!(ended, code, "{deed}");
    }
}
