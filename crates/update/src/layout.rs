//! Every path that the updater uses, computed from the profile, the root and the suffix. Touches no disk.

use std::path::{Path, PathBuf};

use refit_types::Version;

use crate::Profile;

/// The paths of one agent on a host, or in an image that is being built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// `/`, or the root directory of an image.
    root: PathBuf,
    /// As seen from inside the root, like all that follow: the targets of links.
    data: PathBuf,
    bin: PathBuf,
    units: PathBuf,
    unit: String,
    database: PathBuf,
    agent_config: PathBuf,
    suffix: Option<String>,
}

impl Layout {
    /// The paths of a profile below `root`. With a suffix they share nothing with those of the first agent of the host.
    pub fn new(root: &Path, profile: &Profile, suffix: Option<&str>) -> Self {
        let suffixed = |path: &Path| match suffix {
            Some(suffix) => PathBuf::from(format!("{}-{suffix}", path.display())),
            None => path.to_owned(),
        };
        let data = suffixed(&profile.data_dir);
        let agent_config = match suffix {
            Some(suffix) => profile.config.with_file_name(suffixed_name(
                &profile.config.file_name().unwrap_or_default().to_string_lossy(),
                suffix,
            )),
            None => profile.config.clone(),
        };
        let bin = match suffix {
            Some(suffix) => Path::new("/opt").join(format!("{}-{suffix}/bin", profile.name)),
            None => profile.bin_dir.clone(),
        };
        let mut layout = Self {
            root: root.to_owned(),
            database: data.join(&profile.database),
            data,
            bin,
            units: profile.unit_dir.clone(),
            unit: String::new(),
            agent_config,
            suffix: suffix.map(str::to_owned),
        };
        layout.unit = layout.unit_name(&profile.unit);
        layout
    }

    /// The name of a unit of the profile on this host.
    pub fn unit_name(&self, unit: &str) -> String {
        match &self.suffix {
            Some(suffix) => suffixed_name(unit, suffix),
            None => unit.to_owned(),
        }
    }

    /// Whether this is a second agent on its host.
    pub fn is_suffixed(&self) -> bool {
        self.suffix.is_some()
    }

    /// The agent's own configuration.
    pub fn agent_config(&self) -> PathBuf {
        self.outside(&self.agent_config)
    }

    /// What a second agent's unit says otherwise.
    pub fn drop_in_text(&self, template: &str) -> String {
        template
            .replace("{suffix}", self.suffix.as_deref().unwrap_or_default())
            .replace("{bin_dir}", &self.bin.display().to_string())
            .replace("{data_dir}", &self.data.display().to_string())
            .replace("{config}", &self.agent_config.display().to_string())
    }

    /// Where it says so.
    pub fn drop_in(&self, unit: &str) -> PathBuf {
        self.outside(&self.units).join(format!("{}.d/suffix.conf", self.unit_name(unit)))
    }

    /// The link by which a target starts a unit at boot.
    pub fn wants_link(&self, target: &str, unit: &str) -> PathBuf {
        let folder = Path::new("/etc/systemd/system").join(format!("{target}.wants"));
        self.outside(&folder).join(self.unit_name(unit))
    }

    /// The target of that link.
    pub fn wants_target(&self, unit: &str) -> PathBuf {
        self.units.join(self.unit_name(unit))
    }

    /// The link that masks the service.
    pub fn mask(&self) -> PathBuf {
        self.outside(Path::new("/etc/systemd/system")).join(&self.unit)
    }

    /// The link that masks it until the next boot.
    pub fn runtime_mask(&self) -> PathBuf {
        self.outside(Path::new("/run/systemd/system")).join(&self.unit)
    }

    /// The backup of the database that another installation left, while a first installation is under way.
    pub fn first_backup(&self) -> PathBuf {
        self.versions().join("before")
    }

    /// Exists once the version has been healthy on this host.
    pub fn proved(&self, version: &Version) -> PathBuf {
        self.version(version).join("proved")
    }

    /// Exists while the version was switched to without an agent that ran, and has not been healthy since.
    pub fn unproved(&self, version: &Version) -> PathBuf {
        self.version(version).join("unproved")
    }

    /// A path inside the root, as seen from outside.
    pub fn outside(&self, inside: &Path) -> PathBuf {
        self.root.join(inside.strip_prefix("/").unwrap_or(inside))
    }

    /// Whether the root is `/`, and not an image.
    pub fn is_host(&self) -> bool {
        self.root == Path::new("/")
    }

    /// The agent's data directory.
    pub fn data(&self) -> PathBuf {
        self.outside(&self.data)
    }

    /// The directory of all versions.
    pub fn versions(&self) -> PathBuf {
        self.data().join("versions")
    }

    /// The directory of all versions while an uninstallation removes it: by one rename nothing is installed.
    pub fn removed_versions(&self) -> PathBuf {
        self.data().join("versions.removed")
    }

    /// The directory of a version.
    pub fn version(&self, version: &Version) -> PathBuf {
        self.versions().join(version.to_string())
    }

    /// The checksum of a version, written last: it exists if the version is complete.
    pub fn checksum(&self, version: &Version) -> PathBuf {
        self.version(version).join("sha256")
    }

    /// The backup of a version's database, made when the version is left.
    pub fn backup(&self, version: &Version) -> PathBuf {
        self.version(version).join("backup")
    }

    /// The link to the active version: the pointer.
    pub fn active(&self) -> PathBuf {
        self.data().join("active")
    }

    /// A link to the version before, made before the pointer moves, so that a rollback needs only a rename. It stays while the
    /// active version has not proved itself.
    pub fn active_back(&self) -> PathBuf {
        self.data().join("active.back")
    }

    /// The target of the pointer for a version: relative, so that it is right in images too.
    pub fn active_target(&self, version: &Version) -> PathBuf {
        Path::new("versions").join(version.to_string())
    }

    /// The updater's configuration.
    pub fn config(&self) -> PathBuf {
        self.versions().join("updates.yaml")
    }

    /// The status file.
    pub fn status(&self) -> PathBuf {
        self.versions().join("status.json")
    }

    /// What is known of the last version that failed.
    pub fn failure_log(&self) -> PathBuf {
        self.versions().join("failure.log")
    }

    /// The journal of a switch that is under way.
    pub fn journal(&self) -> PathBuf {
        self.versions().join("journal.json")
    }

    /// The lock.
    pub fn lock(&self) -> PathBuf {
        self.versions().join("lock")
    }

    /// Locked by commands of an operator that wait for the lock.
    pub fn lock_wanted(&self) -> PathBuf {
        self.versions().join("lock.wanted")
    }

    /// The agent's database.
    pub fn database(&self) -> PathBuf {
        self.outside(&self.database)
    }

    /// The link of a binary.
    pub fn bin_link(&self, binary: &str) -> PathBuf {
        self.outside(&self.bin).join(binary)
    }

    /// The directory of these links, if it belongs to this agent alone.
    pub fn own_bin(&self) -> Option<PathBuf> {
        self.is_suffixed().then(|| self.outside(&self.bin))
    }

    /// The target of that link.
    pub fn bin_target(&self, binary: &str) -> PathBuf {
        self.data.join("active/bin").join(binary)
    }

    /// Where the service manager reads a unit of the profile.
    pub fn unit_path(&self, unit: &str) -> PathBuf {
        self.outside(&self.units).join(self.unit_name(unit))
    }

    /// The unit in the directory of a version.
    pub fn unit_source(&self, version: &Version, unit: &str) -> PathBuf {
        self.version(version).join("etc/systemd").join(unit)
    }

    /// The service's name on this host.
    pub fn unit(&self) -> &str {
        &self.unit
    }
}

/// `refit.service` and `b` give `refit-b.service`.
fn suffixed_name(name: &str, suffix: &str) -> String {
    match name.rsplit_once('.') {
        Some((stem, kind)) => format!("{stem}-{suffix}.{kind}"),
        None => format!("{name}-{suffix}"),
    }
}
