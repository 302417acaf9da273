//! The platform of this host, as its heartbeats report it: read once, when the agent starts.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use refit_types::{HOST_OS, Platform, host_arch};

/// Where a distribution says which it is, the first that exists.
const OS_RELEASE: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];
const MAX_BYTES: u64 = 64 * 1024;

/// The platform of this host; none if it has a name that cannot be reported.
pub(crate) fn platform() -> Option<Platform> {
    let release = OS_RELEASE.iter().find_map(|path| read(Path::new(path)));
    let os_version = release.map(|text| os_version(&text)).unwrap_or_default();
    Platform::new(HOST_OS, &os_version, host_arch()).or_else(|_| Platform::new(HOST_OS, "", host_arch())).ok()
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// `debian 13`, from the words that distributions give for programs.
fn os_version(release: &str) -> String {
    let value = |name: &str| {
        let line = release.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='));
        line.map(|value| value.trim_matches(['"', '\''])).unwrap_or_default()
    };
    format!("{} {}", value("ID"), value("VERSION_ID")).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_told_in_a_few_words() {
        let debian = "PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nVERSION_ID=\"13\"\nVERSION=\"13 (trixie)\"\nID=debian\n";
        assert_eq!(os_version(debian), "debian 13");
        assert_eq!(os_version("ID='arch'\nBUILD_ID=rolling"), "arch");
        assert_eq!(os_version("nothing"), "");
        let here = platform().unwrap();
        assert_eq!((&*here.os, &*here.arch), (HOST_OS, host_arch()));
    }
}
