//! The system's package of the same agent: removed for good, without what the agent needs to go on.

mod dpkg;
mod kept;
mod mention;
mod rpm;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::host::{HostError, Packages};
use kept::Kept;

/// The packages of this host, whichever tool manages them.
#[derive(Debug, Clone)]
pub struct SystemPackages {
    places: Places,
    kept: Kept,
}

/// What must survive a purge.
#[derive(Debug, Clone)]
struct Places {
    config: PathBuf,
    data: PathBuf,
}

/// No packages at all: those of an image are not known to the tools of the host that builds it.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPackages;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    Dpkg,
    Rpm,
}

impl SystemPackages {
    /// Preserves the agent's configuration and its data directory. Of the former a copy is kept at the third path
    /// while a purge goes on.
    pub fn new(config: &Path, data: &Path, kept: &Path) -> Self {
        let places = Places { config: config.to_owned(), data: data.to_owned() };
        Self { kept: Kept::new(config, kept), places }
    }

    /// Puts the configuration back if a purge was cut off when it was gone. To be called before anything else that
    /// may want it.
    pub fn settle(&self) -> Result<(), HostError> {
        self.kept.settle().map_err(|error| self.not_kept(&error))
    }

    fn not_kept(&self, error: &std::io::Error) -> HostError {
        let (config, copy) = (self.places.config.display(), self.kept.copy().display());
        HostError(format!("{config} could not be kept, with its copy at {copy}: {error}"))
    }

    /// Whose package it is. Some hosts have both tools, and one of them without any packages.
    fn tool(package: &str) -> Option<Tool> {
        match () {
            () if dpkg::knows(package) => Some(Tool::Dpkg),
            () if rpm::knows(package) => Some(Tool::Rpm),
            () => None,
        }
    }
}

impl Packages for SystemPackages {
    fn is_installed(&self, package: &str) -> Result<bool, HostError> {
        Ok(Self::tool(package).is_some())
    }

    /// The configuration belongs to the package, and a later purge by hand would take it along: so it is purged
    /// now, and the file put back as nobody's.
    fn purge(&self, package: &str) -> Result<(), HostError> {
        self.settle()?;
        let kept = self.kept.take().map_err(|error| self.not_kept(&error))?;
        let purged = match Self::tool(package) {
            Some(Tool::Dpkg) => dpkg::purge(package, &self.places),
            Some(Tool::Rpm) => rpm::purge(package, &self.places),
            None => Ok(()),
        };
        self.kept.put_back(kept).map_err(|error| self.not_kept(&error))?;
        purged.map_err(|said| HostError(format!("the package {package} could not be purged: {said}")))
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

/// What a program printed, or what it complained of.
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
    let said = String::from_utf8_lossy(&output.stderr);
    let said: String = said.trim().chars().take(500).collect();
    Err(format!("{program} {}: {} {said}", arguments.join(" "), output.status))
}
