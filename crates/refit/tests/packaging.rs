//! The release archive, byte for byte, and validation of our units by systemd and of our policy by SELinux.

#![allow(clippy::unwrap_used, dead_code)]

mod host;
#[path = "packaging/updater_unit.rs"]
mod updater_unit;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use refit_types::DataDir;

use crate::host::{Host, REFIT, Ran, mode};

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn arch() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

/// What `make dist` makes of the program under test, for someone with that umask.
fn dist(version: &str, directory: &Path, umask: &str, variables: &[(&str, &str)]) -> Ran {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("umask {umask}; exec make --no-print-directory dist")])
        .current_dir(sources());
    command.envs(variables.iter().copied());
    command.env("VERSION", version).env("DIST_BINARY", REFIT).env("DIST_DIR", directory);
    Ran::of(command.env("DIST_GZIP_LEVEL", "1"))
}

fn run(program: &str, arguments: &[&str], directory: &Path) -> Ran {
    Ran::of(Command::new(program).args(arguments).current_dir(directory))
}

#[test]
fn the_same_input_gives_the_same_archive() {
    let host = Host::new();
    let (one, two) = (host.path("one"), host.path("two"));
    let date = ("SOURCE_DATE_EPOCH", "1700000000");
    dist("1.2.3", &one, "022", &[date]).good();
    dist("v1.2.3", &two, "077", &[date, ("TZ", "Asia/Tokyo"), ("LC_ALL", "de_DE.UTF-8")]).good();
    let name = format!("refit-oss-v1.2.3-linux-{}-bin.tar.gz", arch());
    for file in [name.clone(), format!("{name}.sha256")] {
        let read = |directory: &Path| fs::read(directory.join(&file)).unwrap();
        assert!(read(&one) == read(&two), "{file} differs");
    }
    let mut left: Vec<_> = fs::read_dir(&one).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [name.as_str(), &format!("{name}.sha256")], "nothing else is left behind");
    run("sha256sum", &["--check", "--strict", &format!("{name}.sha256")], &one).good();

    let listing = run("tar", &["tvzf", &name, "--full-time", "--utc"], &one).good();
    let lines: Vec<Vec<&str>> = listing.lines().map(|line| line.split_whitespace().collect()).collect();
    let entries: Vec<_> = lines.iter().map(|line| (line[0], line[5..].join(" "))).collect();
    let (directory, file) = ("drwxr-xr-x", "-rw-r--r--");
    let expected = [
        (directory, "refit/"),
        (file, "refit/LICENSE"),
        (file, "refit/README.md"),
        (directory, "refit/etc/"),
        (directory, "refit/etc/systemd/"),
        (file, "refit/etc/systemd/refit-update.path"),
        (file, "refit/etc/systemd/refit-update.service"),
        (file, "refit/etc/systemd/refit-update.timer"),
        (file, "refit/etc/systemd/refit.service"),
        ("-rwxr-xr-x", "refit/refit"),
        ("lrwxr-xr-x", "refit/refit-update -> refit"),
        ("lrwxr-xr-x", "refit/refitctl -> refit"),
    ];
    assert_eq!(entries, expected.map(|(mode, name)| (mode, name.to_owned())));
    for line in lines {
        assert_eq!((line[1], line[3], line[4]), ("0/0", "2023-11-14", "22:13:20"));
    }
}

#[test]
fn two_versions_of_one_build_say_which_they_are() {
    let host = Host::new();
    for version in ["1.2.3", "2.0.0-rc.1"] {
        let directory = host.path(version);
        let made = dist(version, &directory, "022", &[]).good();
        let archive = made.lines().last().unwrap();
        run("tar", &["xzf", archive], &directory).good();
        for name in ["refit", "refitctl", "refit-update"] {
            let program = directory.join("refit").join(name);
            let told = Ran::of(&mut host.command(&program, &["version"])).good();
            assert_eq!(told, format!("{name} v{version} (oss)\n"));
        }
        assert_eq!(mode(&directory.join("refit/refit")), 0o755);
    }
    assert_ne!(dist("latest", &host.path("bad"), "022", &[]).code, Some(0));
    assert_eq!(fs::read_dir(host.path("bad")).unwrap().count(), 0, "what failed leaves nothing behind");
}

#[test]
fn systemd_understands_our_units() {
    let host = Host::new();
    let bin = format!("{}/", host.path("").to_str().unwrap().trim_end_matches('/'));
    for name in ["refit", "refit-update"] {
        std::os::unix::fs::symlink(REFIT, host.path(name)).unwrap();
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(sources().join("packaging/systemd")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        // What the units run must be there for the check.
        let text = fs::read_to_string(entry.path()).unwrap().replace("/usr/local/bin/", &bin);
        host.write(&name, &text);
        names.push(name);
    }
    names.sort();
    assert_eq!(names, ["refit-update.path", "refit-update.service", "refit-update.timer", "refit.service"]);
    let arguments: Vec<&str> = ["verify", "--man=no", "--recursive-errors=no"]
        .into_iter()
        .chain(names.iter().map(String::as_str))
        .collect();
    let checked = run("systemd-analyze", &arguments, &host.path(""));
    assert_eq!((checked.code, checked.stderr.as_str()), (Some(0), ""));

    let unit = |name: &str| fs::read_to_string(sources().join("packaging/systemd").join(name)).unwrap();
    let wake = DataDir::new("/var/lib/refit").updater_wake();
    assert!(unit("refit-update.path").contains(&format!("PathChanged={}\n", wake.display())));
    let agent = unit("refit.service");
    for line in [
        "Type=notify",
        "ExecStartPre=-+/usr/local/bin/refit-update recover",
        "ExecStart=/usr/local/bin/refit agent start",
        "ExecReload=/bin/kill -HUP $MAINPID",
        "Restart=on-failure",
    ] {
        assert!(agent.lines().any(|one| one == line), "{line}");
    }
    let next = run("systemd-analyze", &["calendar", "--iterations=1", "*:0/10"], &host.path(""));
    assert!(next.good().contains("*-*-* *:00/10:00"));
    assert!(unit("refit-update.timer").contains("OnCalendar=*:0/10\n"));
}

#[test]
fn the_policy_module_compiles() {
    let host = Host::new();
    let policy = sources().join("packaging/selinux");
    let source = policy.join("refit_update.te");
    let here = host.path("");
    run("checkmodule", &["-M", "-m", "-o", "refit_update.mod", source.to_str().unwrap()], &here).good();
    let contexts = policy.join("refit_update.fc");
    let package = ["-o", "refit_update.pp", "-m", "refit_update.mod", "-f", contexts.to_str().unwrap()];
    run("semodule_package", &package, &here).good();
    assert!(fs::metadata(host.path("refit_update.pp")).unwrap().len() > 1000);

    // Every type that a path gets is one that the module knows.
    let rules = fs::read_to_string(&source).unwrap();
    for line in fs::read_to_string(&contexts).unwrap().lines() {
        let kind = line.rsplit(':').nth(1).unwrap();
        assert!(rules.contains(&format!("type {kind};")), "{line}");
    }
    assert!(fs::read_to_string(policy.join("refit_update.if")).unwrap().contains("type refit_var_lib_t;"));
    let unit = fs::read_to_string(sources().join("packaging/systemd/refit-update.service")).unwrap();
    assert!(unit.contains(":refit_update_t:"));
}
