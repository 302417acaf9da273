//! The system's package of the same agent: removed for good, without what the agent needs to go on.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::host::HostError;
use crate::updater::Packages;

/// `dpkg` or `rpm`, whichever this host has.
#[derive(Debug, Clone)]
pub struct SystemPackages {
    /// What must survive a purge: the agent's configuration.
    config: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    Dpkg,
    Rpm,
}

impl SystemPackages {
    /// Keeps that file through a purge.
    pub fn keeping(config: &Path) -> Self {
        Self { config: config.to_owned() }
    }

    fn tool() -> Option<Tool> {
        let has = |program: &str| run(program, &["--version"]).is_ok();
        match () {
            () if has("dpkg-query") => Some(Tool::Dpkg),
            () if has("rpm") => Some(Tool::Rpm),
            () => None,
        }
    }
}

impl Packages for SystemPackages {
    fn is_installed(&self, package: &str) -> Result<bool, HostError> {
        Ok(match Self::tool() {
            Some(Tool::Dpkg) => run("dpkg-query", &["-W", "-f=${db:Status-Status}", package])
                .is_ok_and(|status| status == "installed" || status == "config-files"),
            Some(Tool::Rpm) => run("rpm", &["-q", package]).is_ok(),
            None => false,
        })
    }

    /// The configuration belongs to the package, and a later purge by hand would take it along: so it is purged
    /// now, and the file put back as nobody's. Data directories are not the package's.
    fn purge(&self, package: &str) -> Result<(), HostError> {
        let kept = std::fs::read(&self.config).ok();
        let purged = match Self::tool() {
            Some(Tool::Dpkg) => {
                run("apt-get", &["-o", "DPkg::Lock::Timeout=60", "purge", "-y", "-q", package]).map(drop)
            }
            Some(Tool::Rpm) => run("rpm", &["-e", package]).map(drop),
            None => Ok(()),
        };
        if let Some(bytes) = kept.filter(|_| !self.config.exists()) {
            let failed = |error: std::io::Error| {
                HostError(format!("{} could not be put back: {error}", self.config.display()))
            };
            crate::write_durably(&crate::RealDisk, &self.config, &bytes, 0o600).map_err(failed)?;
        }
        purged.map_err(|said| HostError(format!("the package {package} could not be purged: {said}")))
    }
}

/// What a program printed, or what it complained of.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().chars().take(500).collect()),
    }
}
