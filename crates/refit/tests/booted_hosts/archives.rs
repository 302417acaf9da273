//! Archives of the real agent in several versions, and of some that do not work.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use refit_testbed::directory;
use tempfile::TempDir;

const REFIT: &str = env!("CARGO_BIN_EXE_refit");

/// Versions of the real agent, in order.
pub const GOOD: [&str; 3] = ["1.2.3", "1.2.4", "1.2.5"];
/// Its agent ends as soon as it is started.
pub const EXITS: &str = "1.3.1";
/// Its agent never says anything, and ends for nobody.
pub const HANGS: &str = "1.3.2";
/// Its agent works, and is another version than it was installed as.
pub const POSES: &str = "1.3.3";
/// Nothing of it does anything but say its version.
pub const DEAD: &str = "1.3.4";

/// What an agent does that says nothing and ends for nobody.
pub const HANGING: &str = "trap '' HUP TERM; while :; do sleep 1000; done";

/// What each of these agents does when it is started.
const BROKEN: [(&str, &str); 4] = [
    (EXITS, "echo 'cannot join with --token 6ac3a7390d7ae9beb543f169700ec9da' >&2; exit 7"),
    (HANGS, HANGING),
    (POSES, "exec /var/lib/refit/versions/1.2.3/bin/refit \"$@\""),
    (DEAD, "exit 1"),
];

/// Made once for all tests.
pub fn archives() -> &'static Path {
    static ARCHIVES: OnceLock<TempDir> = OnceLock::new();
    let made = ARCHIVES.get_or_init(|| {
        let folder = directory();
        let binary = folder.path().join("refit");
        // Small archives are soon packed, sent and unpacked.
        run(Command::new("strip").arg("-o").arg(&binary).arg(REFIT));
        for version in GOOD {
            dist(version, &binary, folder.path());
        }
        for (version, deed) in BROKEN {
            spoil(&dist(version, &binary, folder.path()), version, deed);
        }
        std::fs::remove_file(binary).unwrap();
        folder
    });
    made.path()
}

/// The archive of a version.
pub fn archive(version: &str) -> PathBuf {
    let name = format!("refit-oss-v{version}-linux-{}-bin.tar.gz", architecture());
    archives().join(name)
}

/// As archives name it.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn dist(version: &str, binary: &Path, folder: &Path) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/dist.sh");
    let mut command = Command::new("sh");
    command.arg(script).arg(version).arg(binary).arg(folder).env("DIST_GZIP_LEVEL", "1");
    PathBuf::from(run(&mut command).trim())
}

/// Puts another agent into an archive. The updater in it is the real one, except where nothing is to work.
fn spoil(archive: &Path, version: &str, deed: &str) {
    let work = directory();
    run(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(work.path()));
    let agent = work.path().join("refit/refit");
    if version != DEAD {
        std::fs::remove_file(work.path().join("refit/refit-update")).unwrap();
        std::fs::rename(&agent, work.path().join("refit/refit-update")).unwrap();
    }
    std::fs::write(&agent, script(version, deed)).unwrap();
    std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();
    run(Command::new("tar")
        .args(["--owner=0", "--group=0", "-czf"])
        .arg(archive)
        .arg("-C")
        .arg(work.path())
        .arg("refit"));
    let sum = run(Command::new("sha256sum")
        .arg(archive.file_name().unwrap())
        .current_dir(archive.parent().unwrap()));
    std::fs::write(format!("{}.sha256", archive.display()), sum).unwrap();
}

/// An agent that says its version, and does that when it is asked for anything else.
pub fn script(version: &str, deed: &str) -> String {
    format!("#!/bin/sh\nif [ \"$1\" = version ]; then echo 'refit v{version} (oss)'; exit; fi\n{deed}\n")
}

fn run(command: &mut Command) -> String {
    let ran = command.output().unwrap();
    assert!(ran.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}
