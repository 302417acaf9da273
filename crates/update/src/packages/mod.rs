//! The system's package of the same agent: purged, while the agent's configuration and data are preserved. Called by the
//! takeover of `enable`.

mod dpkg;
mod preserved_config;
mod rpm;
mod script_scan;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::host::{HostError, Packages};
use preserved_config::PreservedConfig;

/// The packages of this host, managed by dpkg or rpm.
#[derive(Debug, Clone)]
pub struct SystemPackages {
    paths: PreservedPaths,
    config: PreservedConfig,
}

/// What must survive a purge.
#[derive(Debug, Clone)]
struct PreservedPaths {
    config: PathBuf,
    data: PathBuf,
}

/// No packages: the tools of the host do not know those of an image that it builds.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPackages;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    Dpkg,
    Rpm,
}

impl SystemPackages {
    /// Preserves the agent's configuration and its data directory. A copy of the configuration is at `copy` during a
    /// purge.
    pub fn new(config: &Path, data: &Path, copy: &Path) -> Self {
        let paths = PreservedPaths { config: config.to_owned(), data: data.to_owned() };
        Self { config: PreservedConfig::new(config, copy), paths }
    }

    /// Restores the configuration if a purge was interrupted. Must be called before anything that reads it.
    pub fn finish_interrupted_purge(&self) -> Result<(), HostError> {
        self.config.finish_interrupted().map_err(|error| self.not_preserved(&error))
    }

    fn not_preserved(&self, error: &std::io::Error) -> HostError {
        let (config, copy) = (self.paths.config.display(), self.config.copy().display());
        HostError(format!("{config} could not be preserved, with its copy at {copy}: {error}"))
    }

    /// The tool that manages the package. Some hosts have both, one of them without any packages.
    fn tool(package: &str) -> Option<Tool> {
        match () {
            () if dpkg::has_package(package) => Some(Tool::Dpkg),
            () if rpm::has_package(package) => Some(Tool::Rpm),
            () => None,
        }
    }
}

impl Packages for SystemPackages {
    fn is_installed(&self, package: &str) -> Result<bool, HostError> {
        Ok(Self::tool(package).is_some())
    }

    /// The configuration belongs to the package, and a later purge by hand would delete it. So the package is purged
    /// now, and the file is restored without belonging to a package.
    fn purge(&self, package: &str) -> Result<(), HostError> {
        self.finish_interrupted_purge()?;
        let snapshot = self.config.save_copy().map_err(|error| self.not_preserved(&error))?;
        let purged = match Self::tool(package) {
            Some(Tool::Dpkg) => dpkg::purge(package, &self.paths),
            Some(Tool::Rpm) => rpm::purge(package, &self.paths),
            None => Ok(()),
        };
        self.config.restore(snapshot).map_err(|error| self.not_preserved(&error))?;
        purged.map_err(|error| HostError(format!("the package {package} could not be purged: {error}")))
    }
}

impl Packages for NoPackages {
    fn is_installed(&self, _: &str) -> Result<bool, HostError> {
        Ok(false)
    }

    fn purge(&self, _: &str) -> Result<(), HostError> {
        Ok(())
    }
}

fn has(program: &str) -> bool {
    run(program, &["--version"]).is_ok()
}

/// The output of a program, or an error with its error output.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .envs([("DEBIAN_FRONTEND", "noninteractive"), ("LC_ALL", "C")])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stderr: String = stderr.trim().chars().take(500).collect();
    Err(format!("{program} {}: {} {stderr}", arguments.join(" "), output.status))
}
