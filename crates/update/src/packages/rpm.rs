//! The purge of an RPM package.

use std::fs;
use std::path::{Path, PathBuf};

use super::script_scan::may_touch;
use super::{PreservedPaths, has, run};

pub(super) fn has_package(package: &str) -> bool {
    run("rpm", &["-q", package]).is_ok()
}

/// Erases the package, without its scripts if they may delete what is preserved.
pub(super) fn purge(package: &str, paths: &PreservedPaths) -> Result<(), String> {
    let scripts = run("rpm", &["-q", "--scripts", package])?;
    let concern = |path: &Path| may_touch(scripts.as_bytes(), path);
    let without_scripts = concern(&paths.data) || concern(&paths.config);
    if without_scripts {
        tracing::info!(
            "the scripts of {package} may delete the agent's configuration or data and are not run"
        );
    }
    let saved = saved(&paths.config);
    let (before, config) = (fs::read(&saved).ok(), fs::read(&paths.config).ok());
    let frontend = ["dnf", "yum"].into_iter().find(|program| has(program));
    let erased = match frontend {
        Some(program) => run(program, &frontend_arguments(package, without_scripts)),
        None => run("rpm", &arguments(package, without_scripts)),
    };
    // rpm renames a changed configuration; the restored file needs no second copy.
    if before.is_none() && config.is_some() && fs::read(&saved).ok() == config {
        fs::remove_file(&saved).map_err(|error| format!("{}: {error}", saved.display()))?;
    }
    erased.map(drop)
}

fn saved(config: &Path) -> PathBuf {
    let mut name = config.as_os_str().to_owned();
    name.push(".rpmsave");
    name.into()
}

fn arguments(package: &str, without_scripts: bool) -> Vec<&str> {
    let mut arguments = vec!["-e", package];
    arguments.extend(without_scripts.then_some("--noscripts"));
    arguments
}

/// Without the network, and without removing the package's dependencies.
fn frontend_arguments(package: &str, without_scripts: bool) -> Vec<&str> {
    let mut arguments = vec!["-y", "-q", "--disablerepo=*", "--setopt=clean_requirements_on_remove=False"];
    arguments.extend(without_scripts.then_some("--setopt=tsflags=noscripts"));
    arguments.extend(["remove", package]);
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_left_out_where_they_must_not_run() {
        assert_eq!(arguments("refit", false), ["-e", "refit"]);
        assert_eq!(arguments("refit", true), ["-e", "refit", "--noscripts"]);
        let silent = frontend_arguments("refit", true);
        assert!(silent.contains(&"--setopt=tsflags=noscripts") && silent.ends_with(&["remove", "refit"]));
        assert!(!frontend_arguments("refit", false).contains(&"--setopt=tsflags=noscripts"));
    }

    #[test]
    fn a_saved_configuration_is_beside_it() {
        assert_eq!(saved(Path::new("/etc/refit.yaml")), Path::new("/etc/refit.yaml.rpmsave"));
    }
}
