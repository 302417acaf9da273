//! The root file system that every machine starts from: built once by debootstrap and cached.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Increase it when the recipe changes, so that cached roots of the old one are not used.
const RECIPE: u32 = 2;
const PACKAGES: &str = "systemd,systemd-sysv,dbus,procps,curl";

/// A small Debian of this host's release, so that what was built here runs there. Made once and kept outside of
/// the checkout: it takes a minute.
pub(super) fn base() -> PathBuf {
    let folder = crate::cache_directory();
    fs::create_dir_all(&folder).expect("the cache directory of the tests");
    let release = release();
    let root = folder.join(format!("{release}-{}-{RECIPE}", std::env::consts::ARCH));
    let lock = File::create(folder.join(format!("{release}.lock"))).expect("a lock");
    lock.lock().expect("the lock");
    if !root.exists() {
        // An interrupted build leaves a name that is not used.
        let aside = root.with_extension("new");
        let _ = fs::remove_dir_all(&aside);
        make(&release, &aside);
        fs::rename(&aside, &root).expect("the finished root in its place");
    }
    root
}

fn release() -> String {
    let text = fs::read_to_string("/etc/os-release").expect("the release of this host");
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.expect("a release with a name").trim_matches('"').to_owned()
}

fn make(release: &str, root: &Path) {
    let mut command = Command::new("debootstrap");
    command
        .args(["--variant=minbase", &format!("--include={PACKAGES}"), release])
        .arg(root)
        .arg(mirror(release));
    for (scheme, variable) in [("http", "http_proxy"), ("https", "https_proxy")] {
        let proxy = said("apt-config", &["shell", "proxy", &format!("Acquire::{scheme}::Proxy")]);
        if let Some(proxy) = proxy.trim().strip_prefix("proxy=").map(|quoted| quoted.trim_matches('\'')) {
            command.env(variable, proxy);
        }
    }
    let made = command.output().expect("debootstrap, as the Makefile installs it");
    assert!(made.status.success(), "no root: {}", String::from_utf8_lossy(&made.stdout));
    // The journal survives a power cut, and no timer runs by itself.
    fs::create_dir_all(root.join("var/log/journal")).expect("a directory for the journal");
    let _ = fs::remove_dir_all(root.join("etc/systemd/system/timers.target.wants"));
    let _ = fs::remove_dir_all(root.join("var/cache/apt/archives"));
}

/// Where this host's own packages come from.
fn mirror(release: &str) -> String {
    let format = "$(REPO_URI) $(RELEASE) $(COMPONENT)";
    let sources = said("apt-get", &["indextargets", "--format", format, "Created-By: Packages"]);
    let wanted = format!(" {release} main");
    let found = sources.lines().find_map(|line| line.strip_suffix(&wanted));
    found.unwrap_or_else(|| panic!("apt knows no source of {release}: {sources}")).to_owned()
}

fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    String::from_utf8(output.unwrap_or_else(|error| panic!("{program}: {error}")).stdout).expect("text")
}
