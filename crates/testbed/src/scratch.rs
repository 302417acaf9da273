//! Temporary directories of tests, including removal of those that killed runs left behind.

use std::fs;
use std::path::Path;
use std::sync::Once;

use tempfile::TempDir;

const NAME: &str = "refit-testbed-";

/// A directory that is gone after the test. What is shared by all tests of a process is never
/// dropped, so what earlier processes left behind goes first.
pub fn directory() -> TempDir {
    static SWEEP: Once = Once::new();
    SWEEP.call_once(sweep);
    let prefix = format!("{NAME}{}-", std::process::id());
    tempfile::Builder::new().prefix(&prefix).tempdir().expect("a directory for the test")
}

/// Makes a directory with the files of another, without a copy of what is large and never changes.
pub fn link_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory for the test");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("a directory");
        fs::hard_link(entry.path(), to.join(entry.file_name())).expect("a link on the same disk");
    }
}

fn sweep() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(NAME)?.split('-').next());
        if owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
