//! Archives that are only looked for: what a control plane must have before it lets a version be chosen.

use std::fs;
use std::path::Path;

use refit_types::{Build, CHECKSUM_SUFFIX, Edition};

/// Publishes versions for hosts of this machine's platform. Nothing is in the archives; for hosts that are simulated.
pub fn publish(artifacts: &Path, versions: &[&str]) {
    fs::create_dir_all(artifacts).expect("a directory for the test");
    for version in versions {
        let build = Build::of_this_binary(Edition::Oss);
        let archive = build.archive_name(&version.parse().expect("a version"));
        fs::write(artifacts.join(&archive), "an archive").expect("a file for the test");
        let checksum = format!("{}  {archive}\n", "0".repeat(64));
        fs::write(artifacts.join(format!("{archive}{CHECKSUM_SUFFIX}")), checksum)
            .expect("a file for the test");
    }
}
