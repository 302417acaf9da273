//! Resources of a machine on the host, named after the test process: what a killed test left behind, the next one
//! removes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Once;

const PREFIX: &str = "refit-test-";
const RECORDS: &str = "/run/systemd/machines";

pub(super) fn name(number: u32) -> String {
    format!("{PREFIX}{}-{number}", std::process::id())
}

/// Where systemd's programs look for a machine.
pub(super) fn record(name: &str) -> PathBuf {
    Path::new(RECORDS).join(name)
}

/// The control groups of a machine, one in each hierarchy that systemd uses.
pub(super) fn cgroups(name: &str) -> Vec<PathBuf> {
    let hierarchies = ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
    let used = hierarchies.into_iter().filter(|path| path.join("cgroup.procs").exists());
    used.map(|path| path.join(name)).collect()
}

pub(super) fn remove_cgroups(name: &str) {
    cgroups(name).iter().for_each(|path| remove_cgroup(path));
}

fn remove_cgroup(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroup(&entry.path());
        }
    }
    let _ = fs::remove_dir(path);
}

pub(super) fn sweep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for folder in cgroups("").iter().map(PathBuf::as_path).chain([Path::new(RECORDS)]) {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let Some(name) = name.to_str().filter(|name| is_left(name)) else { continue };
                let _ = fs::remove_file(record(name));
                remove_cgroups(name);
            }
        }
    });
}

fn is_left(name: &str) -> bool {
    let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
    owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists())
}
