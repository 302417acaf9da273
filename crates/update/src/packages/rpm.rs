//! The packages of Red Hat's family.

use std::fs;
use std::path::{Path, PathBuf};

use super::mention::may_concern;
use super::{Places, has, run};

pub(super) fn knows(package: &str) -> bool {
    run("rpm", &["-q", package]).is_ok()
}

/// Erased, without its scripts if they are about what must stay.
pub(super) fn purge(package: &str, places: &Places) -> Result<(), String> {
    let scripts = run("rpm", &["-q", "--scripts", package])?;
    let concern = |path: &Path| may_concern(scripts.as_bytes(), path);
    let is_silent = concern(&places.data) || concern(&places.config);
    if is_silent {
        tracing::info!("the scripts of {package} may delete what is to stay: they are not run");
    }
    let saved = saved(&places.config);
    let (before, config) = (fs::read(&saved).ok(), fs::read(&places.config).ok());
    let front = ["dnf", "yum"].into_iter().find(|program| has(program));
    let erased = match front {
        Some(program) => run(program, &front_arguments(package, is_silent)),
        None => run("rpm", &arguments(package, is_silent)),
    };
    // A changed configuration is renamed, not deleted: what is put back needs no second copy.
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

fn arguments(package: &str, is_silent: bool) -> Vec<&str> {
    let mut arguments = vec!["-e", package];
    arguments.extend(is_silent.then_some("--noscripts"));
    arguments
}

/// Nothing is looked up on the network, and what the package depended on stays.
fn front_arguments(package: &str, is_silent: bool) -> Vec<&str> {
    let mut arguments = vec!["-y", "-q", "--disablerepo=*", "--setopt=clean_requirements_on_remove=False"];
    arguments.extend(is_silent.then_some("--setopt=tsflags=noscripts"));
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
        let silent = front_arguments("refit", true);
        assert!(silent.contains(&"--setopt=tsflags=noscripts") && silent.ends_with(&["remove", "refit"]));
        assert!(!front_arguments("refit", false).contains(&"--setopt=tsflags=noscripts"));
    }

    #[test]
    fn a_saved_configuration_is_beside_it() {
        assert_eq!(saved(Path::new("/etc/refit.yaml")), Path::new("/etc/refit.yaml.rpmsave"));
    }
}
