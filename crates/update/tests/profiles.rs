//! Profiles as files: the one that is shipped, and invalid ones.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use jiff::SignedDuration;
use refit_types::Edition;
use refit_update::{Layout, Profile, Readiness};

fn shipped() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles/teleport.yaml")
}

fn refused(text: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mine.yaml");
    fs::write(&path, text).unwrap();
    let error = Profile::load(&path).unwrap_err();
    assert_eq!(error.path, path);
    error.to_string()
}

#[test]
fn the_teleport_profile_describes_stock_agents() {
    let profile = Profile::load(&shipped()).unwrap();
    assert_eq!(profile.name, "teleport");
    assert_eq!(profile.binaries, ["teleport", "tctl", "tsh", "tbot"]);
    assert_eq!(
        (profile.updater.as_ref(), profile.version_arguments.as_slice()),
        (None, &["version".into()][..])
    );
    assert_eq!(profile.archive_root.as_deref(), Some("teleport"));
    assert_eq!(profile.archive_unit, "examples/systemd/teleport.service");
    assert_eq!(profile.bin_dir, Path::new("/usr/local/bin"));
    let http =
        Readiness::Http { url: "http://127.0.0.1:3000/readyz".into(), pid_file: "/run/teleport.pid".into() };
    assert_eq!(profile.readiness, http);
    let url = profile.artifact_url("https://cdn.teleport.dev/", Edition::Oss, &"15.1.1".parse().unwrap());
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    assert_eq!(url, format!("https://cdn.teleport.dev/teleport-v15.1.1-linux-{arch}-bin.tar.gz"));
    assert_eq!(profile.identity_lifetime, SignedDuration::from_hours(720));
    let layout = Layout::new(Path::new("/"), &profile, None);
    assert_eq!(layout.database(), Path::new("/var/lib/teleport/proc/sqlite.db"));
    assert_eq!(layout.unit_path(&profile.unit), Path::new("/usr/local/lib/systemd/system/teleport.service"));
}

#[test]
fn faults_are_told_with_the_file_the_field_and_all_at_once() {
    let good = fs::read_to_string(shipped()).unwrap();
    let two =
        good.replace("data_dir: /var/lib/teleport", "data_dir: lib").replace("[teleport, tctl", "[a/b, tctl");
    let said = refused(&two);
    for part in
        ["mine.yaml cannot be used: ", "binaries[0]: \"a/b\"", "data_dir: lib is not an absolute path"]
    {
        assert!(said.contains(part), "{said}");
    }
    let unknown = refused(&good.replace("package:", "packages:"));
    assert!(unknown.contains("packages") && unknown.contains("line"), "{unknown}");
    for (from, to, named) in [
        ("    pid_file", "    pidfile", "pidfile"),
        ("\nunit: teleport.service", "", "unit"),
        ("  http:", "  smoke:", "smoke"),
        ("config: /etc/teleport.yaml", "config: [1]", ": config: "),
        ("config: /etc/teleport.yaml", "config: [1]", "line"),
        ("    url:", "    url: [1] #", ": readiness.http.url: "),
        ("lifetime: 720h", "lifetime: 0s", ": identity_lifetime: "),
        ("lifetime: 720h", "lifetime: soon", "\"soon\" is not a lifetime; expected something like 720h"),
        ("\nname: teleport", "\nname: teleport\nname: teleport", "name"),
    ] {
        let said = refused(&good.replace(from, to));
        assert!(said.contains(named), "{named}: {said}");
    }
    for nothing in ["", "# nothing\n", "- a\n", "teleport\n"] {
        assert!(refused(nothing).contains("cannot be used: "));
    }
    assert!(refused(&format!("{good}{}", "#".repeat(65 * 1024))).contains("longer than 64 KiB"));
    assert!(
        Profile::load(Path::new("/no/such/profile.yaml")).unwrap_err().to_string().contains("No such file")
    );
}
