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

fn sweep() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(NAME)?.split('-').next());
        if owner.is_some_and(|owner| !Path::new("/proc").join(owner).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
