//! Real and hostile packages, purged by real tools; the agent keeps its configuration and data.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use refit_testbed::{Machine, Process};
use refit_update::{Packages, SystemPackages};
use tempfile::TempDir;

/// What a copy of this program does on the host of a test, as the updater.
const ACTION: &str = "PACKAGES_ACTION";
const PATIENCE: Duration = Duration::from_secs(120);
const CONFIG: &str = "/etc/refit.yaml";
/// Looked at by a name, as the tools do, and by what is in it.
const DATA: [(&str, &str); 3] = [
    ("/var/lib/refit/host_uuid", "6f1b0b5e-0c5a-4bbd-9d7e-2f1f0f6f3a55\n"),
    ("/var/lib/refit/proc/sqlite.db", "rows"),
    ("/var/lib/refit/versions/1.2.3/bin/refit", "binary"),
];
const CHANGED: &str = "refit:\n  # by the operator\n  proxy: refit.example.com:3080\n";
const KEPT: &str = "/var/lib/refit/versions/kept-config";

/// Not a test: what the updater does, on the host that a test made.
#[test]
fn the_updater_itself() {
    let Some(action) = std::env::var_os(ACTION) else { return };
    fs::write("/updater.pid", std::process::id().to_string()).unwrap();
    let packages = SystemPackages::new(Path::new(CONFIG), Path::new("/var/lib/refit"), Path::new(KEPT));
    match action.to_str().unwrap() {
        "ask" => assert!(packages.is_installed("refit").unwrap(), "it is not installed"),
        "purge" => {
            packages.purge("refit").unwrap();
            assert!(!packages.is_installed("refit").unwrap(), "it is still installed");
        }
        "settle" => packages.finish_interrupted_purge().unwrap(),
        other => panic!("{other}"),
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A host of its own, for as long as a test takes.
trait Host {
    fn run(&self, command: &[&str]) -> Output;

    /// Where a file of it is.
    fn path(&self, inside: &str) -> PathBuf;

    /// The updater's program, in there.
    fn updater(&self) -> String;

    #[track_caller]
    fn good(&self, command: &[&str]) -> String {
        let output = self.run(command);
        assert!(output.status.success(), "{command:?}: {}", text(&output));
        text(&output)
    }

    fn update(&self, action: &str) -> Output {
        let updater = self.updater();
        let action = format!("{ACTION}={action}");
        self.run(&["env", &action, &updater, "--exact", "the_updater_itself", "--nocapture"])
    }

    #[track_caller]
    fn updates(&self, action: &str) {
        let output = self.update(action);
        assert!(output.status.success() && text(&output).contains("1 passed"), "{action}: {}", text(&output));
    }

    /// What the operator and the agent make of it.
    fn use_it(&self) {
        fs::write(self.path(CONFIG), CHANGED).unwrap();
        for (path, bytes) in DATA {
            fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
            fs::write(self.path(path), bytes).unwrap();
        }
        self.good(&["chmod", "0640", CONFIG]);
        self.good(&["chown", "33:34", CONFIG]);
    }

    #[track_caller]
    fn has_everything(&self) {
        let config = fs::read_to_string(self.path(CONFIG));
        assert_eq!(config.unwrap_or_else(|error| panic!("{CONFIG}: {error}")), CHANGED);
        assert_eq!(self.good(&["stat", "-c", "%a %u:%g", CONFIG]), "640 33:34\n");
        for (path, bytes) in DATA {
            let found = fs::read_to_string(self.path(path));
            assert_eq!(found.unwrap_or_else(|error| panic!("{path}: {error}")), bytes, "{path}");
        }
        let beside = self.good(&["sh", "-c", "ls -A /etc | grep ^refit; ls -A /var/lib/refit/versions"]);
        assert_eq!(beside, "refit.yaml\n1.2.3\n", "nothing else is left");
    }
}

struct Debian(Machine);

impl Debian {
    /// Debian with a package of those scripts, which is in use.
    fn with(scripts: &[(&str, &str)]) -> Self {
        let host = Self(Machine::new());
        let copied =
            Command::new("cp").arg(std::env::current_exe().unwrap()).arg(host.path("/updater")).status();
        assert!(copied.unwrap().success());
        let folder = refit_testbed::directory();
        let put = |path: &str, text: &str, mode: u32| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        };
        let control = "Package: refit\nVersion: 1.0.0\nArchitecture: all\nMaintainer: nobody <nobody@example.com>\n\
                       Description: the agent as a package\n";
        put("package/DEBIAN/control", control, 0o644);
        put("package/DEBIAN/conffiles", "/etc/refit.yaml\n", 0o644);
        for (name, script) in scripts {
            put(&format!("package/DEBIAN/{name}"), &format!("#!/bin/sh\nset -e\n{script}\n"), 0o755);
        }
        put("package/etc/refit.yaml", "refit: {}\n", 0o644);
        put("package/usr/bin/refit", "#!/bin/sh\n", 0o755);
        fs::create_dir_all(folder.path().join("package/var/lib/refit")).unwrap();
        let mut build = Command::new("dpkg-deb");
        build
            .args(["--root-owner-group", "--build"])
            .arg(folder.path().join("package"))
            .arg(host.path("/refit.deb"));
        let built = build.output().unwrap();
        assert!(built.status.success(), "{}", text(&built));
        host.good(&["dpkg", "--install", "/refit.deb"]);
        host.use_it();
        host.updates("ask");
        host
    }

    /// Nothing of the package is known, and a purge by hand changes nothing.
    #[track_caller]
    fn is_free(&self) {
        self.has_everything();
        let known = self.run(&["dpkg", "--list", "refit"]);
        assert!(!known.status.success() && text(&known).contains("no packages found"), "{}", text(&known));
        assert!(!self.path("/usr/bin/refit").exists());
        let later = self.run(&["apt-get", "purge", "-y", "refit"]);
        assert!(!text(&later).contains("Removing") && !text(&later).contains("Purging"), "{}", text(&later));
        self.good(&["dpkg", "--purge", "refit"]);
        self.has_everything();
    }
}

impl Host for Debian {
    fn run(&self, command: &[&str]) -> Output {
        self.0.outside(&["chroot"], "/", command)
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.0.path(inside)
    }

    fn updater(&self) -> String {
        "/updater".into()
    }
}

const DELETES_ALL: &str = "echo postrm \"$1\" >> /ran
case \"$1\" in
remove) echo 'refit: {}' > /etc/refit.yaml ;;
purge) rm -rf /var/lib/refit /etc/refit.yaml ;;
esac";

#[test]
fn a_package_that_would_delete_everything_goes_alone() {
    let host = Debian::with(&[("postrm", DELETES_ALL)]);
    host.updates("purge");
    host.is_free();
    // What it does on its removal it may do.
    assert_eq!(fs::read_to_string(host.path("/ran")).unwrap(), "postrm remove\n");
}

#[test]
fn a_package_of_which_only_the_configuration_is_left_goes_alone() {
    let host = Debian::with(&[("postrm", "[ \"$1\" != purge ] || { cd /var/lib && rm -rf refit; }")]);
    host.good(&["dpkg", "--remove", "refit"]);
    host.updates("ask");
    host.updates("purge");
    host.is_free();
}

#[test]
fn a_package_that_does_no_harm_may_tidy_up_also_where_dpkg_was_cut_off() {
    let host = Debian::with(&[("postrm", "echo postrm \"$1\" >> /ran")]);
    let state = host.good(&["dpkg-query", "--status", "refit"]);
    fs::write(host.path("/var/lib/dpkg/updates/0001"), state).unwrap();
    assert!(text(&host.run(&["apt-get", "remove", "-y", "refit"])).contains("dpkg was interrupted"));
    host.updates("purge");
    host.is_free();
    assert_eq!(fs::read_to_string(host.path("/ran")).unwrap(), "postrm remove\npostrm purge\n");
}

#[test]
fn a_purge_that_fails_changes_nothing_that_is_to_stay() {
    let host = Debian::with(&[("prerm", "echo 'refit: {}' > /etc/refit.yaml; echo broken >&2; exit 1")]);
    let failed = text(&host.update("purge"));
    assert!(failed.contains("the package refit could not be purged: apt-get"), "{failed}");
    host.has_everything();
    host.updates("ask");
}

#[test]
fn a_purge_that_is_cut_off_is_finished_by_the_next() {
    // The configuration is gone by then, and the updater with it, once.
    let cut = "[ \"$1\" != purge ] || [ -e /cut ] || { touch /cut; kill -KILL $(cat /updater.pid); }";
    let host = Debian::with(&[("postrm", cut)]);
    let cut = host.update("purge");
    assert!(!cut.status.success() && !text(&cut).contains("passed"), "{}", text(&cut));
    assert!(!host.path(CONFIG).exists() && host.path(KEPT).exists());
    host.updates("settle");
    host.has_everything();
    if host.update("ask").status.success() {
        host.updates("purge");
    }
    // Whom the updater started goes on without it, and may still have dpkg's lock.
    let end = Instant::now() + PATIENCE;
    while !host.run(&["dpkg", "--purge", "nobodys"]).status.success() {
        assert!(Instant::now() < end, "dpkg is still locked");
    }
    host.is_free();
}

/// This host with all that it has, in which whatever changes is gone after the test.
struct Copy {
    disk: Process,
    folder: TempDir,
}

impl Copy {
    fn new() -> Self {
        let folder = refit_testbed::directory();
        let script = "mount -t tmpfs tmpfs \"$1\" && cd \"$1\" && mkdir changes work root \
                      && mount -t overlay overlay -o lowerdir=/,upperdir=changes,workdir=work root \
                      && touch root/mounted && exec sleep infinity";
        let here = folder.path().to_str().unwrap();
        let arguments =
            ["--mount", "--propagation", "private", "sh", "-c", script, "sh", here].map(str::to_owned);
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut copy = Self { disk: Process::start("unshare", &arguments, log.path()), folder };
        let end = Instant::now() + PATIENCE;
        while !copy.path("/mounted").exists() {
            let said = || fs::read_to_string(log.path());
            assert!(!copy.disk.has_ended() && Instant::now() < end, "no disk: {:?}", said());
            std::thread::yield_now();
        }
        copy
    }

    /// A package of that script, installed and in use.
    fn with(after_removal: &str) -> Self {
        let host = Self::new();
        let spec = format!(
            "Name: refit\nVersion: 1.0.0\nRelease: 1\nSummary: the agent as a package\nLicense: none\n\
             BuildArch: noarch\n%description\nx\n%install\nmkdir -p %{{buildroot}}/etc %{{buildroot}}/var/lib/refit\n\
             echo 'refit: {{}}' > %{{buildroot}}/etc/refit.yaml\n%files\n%config(noreplace) /etc/refit.yaml\n\
             %dir /var/lib/refit\n%postun\n{after_removal}\n"
        );
        fs::write(host.path("/refit.spec"), spec).unwrap();
        host.good(&[
            "rpmbuild",
            "-bb",
            "--define",
            "_topdir /rpms",
            "--define",
            "_rpmdir /rpms",
            "/refit.spec",
        ]);
        host.good(&["rpm", "--install", "--nodeps", "/rpms/noarch/refit-1.0.0-1.noarch.rpm"]);
        host.use_it();
        host.updates("ask");
        host
    }
}

impl Host for Copy {
    fn run(&self, command: &[&str]) -> Output {
        let namespace = format!("--mount=/proc/{}/ns/mnt", self.disk.pid());
        let mut run = Command::new("nsenter");
        run.args([&namespace, "--", "chroot"]).arg(self.folder.path().join("root")).args(command);
        run.stdin(Stdio::null()).output().unwrap()
    }

    fn path(&self, inside: &str) -> PathBuf {
        let root = self.folder.path().join("root");
        let root = format!("/proc/{}/root{}", self.disk.pid(), root.display());
        Path::new(&root).join(inside.trim_start_matches('/'))
    }

    fn updater(&self) -> String {
        std::env::current_exe().unwrap().to_str().unwrap().into()
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        self.disk.kill();
    }
}

#[test]
fn a_package_of_the_other_family_goes_alone_too() {
    for (script, runs) in [("rm -rf /var/lib/refit; echo postun > /ran", false), ("echo postun > /ran", true)]
    {
        let host = Copy::with(script);
        host.updates("purge");
        host.has_everything();
        let known = host.run(&["rpm", "-q", "refit"]);
        assert!(text(&known).contains("package refit is not installed"), "{}", text(&known));
        assert_eq!(host.path("/ran").exists(), runs, "{script}");
    }
}
