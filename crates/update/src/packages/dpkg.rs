//! The purge of a Debian package.

use std::fs;
use std::path::{Path, PathBuf};

use super::script_scan::may_touch;
use super::{PreservedPaths, has, run};
use crate::disk::{RealDisk, write_durably};

/// Where dpkg keeps the scripts of installed packages.
const SCRIPTS: &str = "/var/lib/dpkg/info";
/// Replaces a script that may delete what is preserved.
const DOES_NOTHING: &str = "\
#!/bin/sh
# Replaced by refit-update before it purged this package: what was here may delete the configuration or the data of the
# agent, which goes on running without the package.
exit 0
";

/// What apt reports until dpkg itself has repaired an interrupted run.
const INTERRUPTED: &str = "dpkg was interrupted";

/// Whether anything of the package is installed, if only its configuration.
pub(super) fn has_package(package: &str) -> bool {
    states(package).iter().any(|state| state != "not-installed")
}

fn is_unpacked(package: &str) -> bool {
    states(package).iter().any(|state| !matches!(state.as_str(), "config-files" | "not-installed"))
}

/// Removes the package with its own scripts, and purges it without scripts that may delete what is preserved.
pub(super) fn purge(package: &str, paths: &PreservedPaths) -> Result<(), String> {
    change("remove", package, is_unpacked)?;
    disable_scripts(Path::new(SCRIPTS), package, paths)?;
    change("purge", package, has_package)
}

/// The state of the package, for each architecture that it is installed for.
fn states(package: &str) -> Vec<String> {
    let found = run("dpkg-query", &["--show", "--showformat=${db:Status-Status}\\n", package]);
    found.unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Removes or purges the package unless that has been done already. Neither tool needs the network for this.
fn change(action: &str, package: &str, is_to_be_done: fn(&str) -> bool) -> Result<(), String> {
    if !is_to_be_done(package) {
        return Ok(());
    }
    let by_dpkg = || run("dpkg", &[&format!("--{action}"), package]);
    let options = ["-o", "DPkg::Lock::Timeout=60", "-o", "APT::Get::AutomaticRemove=false", "-y", "-q"];
    let done = match has("apt-get") {
        true => run("apt-get", &[&options[..], &[action, package]].concat()),
        false => by_dpkg(),
    };
    let done = match done {
        Err(error) if error.contains(INTERRUPTED) => by_dpkg(),
        done => done,
    };
    done.map(drop).or_else(|error| if is_to_be_done(package) { Err(error) } else { Ok(()) })
}

fn disable_scripts(scripts: &Path, package: &str, paths: &PreservedPaths) -> Result<(), String> {
    let failed = |path: &Path, error| format!("{} cannot be replaced: {error}", path.display());
    for path in scripts_after_removal(scripts, package) {
        let script = fs::read(&path).map_err(|error| failed(&path, error))?;
        if may_touch(&script, &paths.data) || may_touch(&script, &paths.config) {
            tracing::info!("{} may delete the agent's configuration or data and is not run", path.display());
            write_durably(&RealDisk, &path, DOES_NOTHING.as_bytes(), 0o755)
                .map_err(|error| failed(&path, error))?;
        }
    }
    Ok(())
}

/// The `postrm` script of the package, or one for each architecture.
fn scripts_after_removal(scripts: &Path, package: &str) -> Vec<PathBuf> {
    let is_its = |name: &str| {
        let stem = name.strip_suffix(".postrm").and_then(|name| name.strip_prefix(package));
        stem.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    };
    let entries = fs::read_dir(scripts).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_str().is_some_and(is_its)).map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_scripts_of_the_package_that_concern_the_agent_are_silenced() {
        let folder = tempfile::tempdir().unwrap();
        let paths = PreservedPaths { config: "/etc/refit.yaml".into(), data: "/var/lib/refit".into() };
        let files = [
            ("refit.postrm", "rm -rf /var/lib/refit", true),
            ("refit:amd64.postrm", "rm -f /etc/refit.yaml", true),
            ("refit:i386.postrm", "deluser refit", false),
            ("refit-extra.postrm", "rm -rf /var/lib/refit", false),
            ("refit.prerm", "echo /var/lib/refit", false),
        ];
        for (name, text, _) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        disable_scripts(folder.path(), "refit", &paths).unwrap();
        for (name, text, is_disabled) in files {
            let found = fs::read_to_string(folder.path().join(name)).unwrap();
            assert_eq!(found, if is_disabled { DOES_NOTHING } else { text }, "{name}");
        }
        disable_scripts(&folder.path().join("none"), "refit", &paths).unwrap();
    }
}
