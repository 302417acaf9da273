//! The platform of a host, and the names of the archives that are published for platforms.

use serde::{Deserialize, Serialize};

use crate::{Edition, Version};

/// The operating system, as archives name it, of hosts that run this binary.
pub const HOST_OS: &str = std::env::consts::OS;

/// The architecture, as archives name it, of hosts that run this binary.
pub fn host_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// What an agent reports about the system that it runs on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// As archives name it: `linux`.
    pub os: Box<str>,
    /// Which distribution and release: `debian 13`; empty if the host does not say.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub os_version: Box<str>,
    /// As archives name it: `amd64`.
    pub arch: Box<str>,
}

/// A text that cannot be a part of a platform.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} cannot be; expected {expected}")]
pub struct NotAPlatform {
    found: String,
    expected: &'static str,
}

impl Platform {
    /// Checks what an agent sent: operating system and architecture become parts of file names.
    pub fn new(os: &str, os_version: &str, arch: &str) -> Result<Self, NotAPlatform> {
        let refused =
            |found: &str, expected| NotAPlatform { found: found.chars().take(80).collect(), expected };
        for word in [os, arch] {
            let is_word = (1..=32).contains(&word.len())
                && word
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
            if !is_word {
                return Err(refused(word, "1 to 32 lower-case letters, digits and '_'"));
            }
        }
        if os_version.len() > 128 || os_version.chars().any(char::is_control) {
            return Err(refused(os_version, "at most 128 printable characters"));
        }
        Ok(Self { os: os.into(), os_version: os_version.into(), arch: arch.into() })
    }
}

/// Which build of an archive: one file is published for each.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Build {
    /// The edition.
    pub edition: Edition,
    /// As in [`Platform::os`].
    pub os: Box<str>,
    /// As in [`Platform::arch`].
    pub arch: Box<str>,
}

const PREFIX: &str = "refit-";
const SUFFIX: &str = "-bin.tar.gz";
/// What the name of a checksum's file adds to that of its archive.
pub const CHECKSUM_SUFFIX: &str = ".sha256";

impl Build {
    /// The build of that edition for hosts that run this binary.
    pub fn of_this_binary(edition: Edition) -> Self {
        Self { edition, os: HOST_OS.into(), arch: host_arch().into() }
    }

    /// The file name of the archive of a version.
    pub fn archive_name(&self, version: &Version) -> String {
        format!("{PREFIX}{}-v{version}-{}-{}{SUFFIX}", self.edition, self.os, self.arch)
    }

    /// The build and the version of an archive by its file name.
    pub fn of_archive(name: &str) -> Option<(Self, Version)> {
        let rest = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
        let (rest, arch) = rest.rsplit_once('-')?;
        let (rest, os) = rest.rsplit_once('-')?;
        let edition = Edition::ALL.iter().find(|edition| {
            rest.strip_prefix(edition.as_str()).is_some_and(|version| version.starts_with("-v"))
        })?;
        let version = rest.strip_prefix(edition.as_str())?.strip_prefix("-v")?.parse().ok()?;
        let platform = Platform::new(os, "", arch).ok()?;
        Some((Self { edition: *edition, os: platform.os, arch: platform.arch }, version))
    }
}

impl std::fmt::Display for Build {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.edition, self.os, self.arch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_named_and_known_by_their_names() {
        let fips = Build { edition: Edition::EnterpriseFips, os: "linux".into(), arch: "arm64".into() };
        for (build, version, name) in [
            (fips, "1.2.3", "refit-enterprise-fips-v1.2.3-linux-arm64-bin.tar.gz"),
            (
                Build { edition: Edition::Oss, os: "linux".into(), arch: "amd64".into() },
                "15.2.0-rc.1+x.y",
                "refit-oss-v15.2.0-rc.1+x.y-linux-amd64-bin.tar.gz",
            ),
        ] {
            let version: Version = version.parse().unwrap();
            assert_eq!(build.archive_name(&version), name);
            assert_eq!(Build::of_archive(name), Some((build, version)));
        }
        for other in [
            "",
            "refit-oss-v1.2.3-linux-amd64-bin.tar.gz.sha256",
            "refit-gold-v1.2.3-linux-amd64-bin.tar.gz",
            "refit-oss-vnew-linux-amd64-bin.tar.gz",
            "refit-oss-v1.2.3-linux-bin.tar.gz",
            "teleport-v15.1.1-linux-amd64-bin.tar.gz",
        ] {
            assert_eq!(Build::of_archive(other), None, "{other}");
        }
    }

    #[test]
    fn only_words_that_may_stand_in_a_file_name_are_taken() {
        assert!(
            Platform::new("linux", "debian 13", "amd64").is_ok()
                && Platform::new("linux", "", "s390x").is_ok()
        );
        for (os, version, arch) in [
            ("", "", "amd64"),
            ("linux", "", "../x"),
            ("Linux", "", "amd64"),
            ("linux", "a\nb", "amd64"),
            ("linux", &*"v".repeat(129), "amd64"),
            (&*"l".repeat(33), "", "amd64"),
        ] {
            assert!(Platform::new(os, version, arch).is_err(), "{os:?} {version:?} {arch:?}");
        }
    }
}
