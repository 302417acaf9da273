use std::path::{Path, PathBuf};

use refit_types::Version;

use crate::Profile;

/// Where everything is on a host, or in an image that is being built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// `/`, or the directory that will be it.
    root: PathBuf,
    /// As seen from inside: what links say.
    data: PathBuf,
    bin: PathBuf,
    units: PathBuf,
    unit: String,
    database: PathBuf,
}

impl Layout {
    /// The places of a profile below `root`. A suffix keeps a second agent on one host apart.
    pub fn new(root: &Path, profile: &Profile, suffix: Option<&str>) -> Self {
        let suffixed = |path: &Path| match suffix {
            Some(suffix) => PathBuf::from(format!("{}-{suffix}", path.display())),
            None => path.to_owned(),
        };
        let data = suffixed(&profile.data_dir);
        let unit = match suffix {
            Some(suffix) => {
                let stem = profile.unit.strip_suffix(".service").unwrap_or(&profile.unit);
                format!("{stem}-{suffix}.service")
            }
            None => profile.unit.clone(),
        };
        Self {
            root: root.to_owned(),
            database: data.join(&profile.database),
            data,
            bin: profile.bin_dir.clone(),
            units: profile.unit_dir.clone(),
            unit,
        }
    }

    /// Where something that has that path inside is to be found from here.
    pub fn outside(&self, inside: &Path) -> PathBuf {
        self.root.join(inside.strip_prefix("/").unwrap_or(inside))
    }

    /// Whether this is the host itself, and not an image.
    pub fn is_host(&self) -> bool {
        self.root == Path::new("/")
    }

    /// The agent's data directory.
    pub fn data(&self) -> PathBuf {
        self.outside(&self.data)
    }

    /// Where versions are kept.
    pub fn versions(&self) -> PathBuf {
        self.data().join("versions")
    }

    /// Where one version is kept.
    pub fn version(&self, version: &Version) -> PathBuf {
        self.versions().join(version.to_string())
    }

    /// Written last: the version is complete.
    pub fn checksum(&self, version: &Version) -> PathBuf {
        self.version(version).join("sha256")
    }

    /// Where the database of a version is kept when it is left.
    pub fn backup(&self, version: &Version) -> PathBuf {
        self.version(version).join("backup")
    }

    /// The one pointer.
    pub fn active(&self) -> PathBuf {
        self.data().join("active")
    }

    /// What the pointer says of a version: relative, so that it holds in images too.
    pub fn active_target(&self, version: &Version) -> PathBuf {
        Path::new("versions").join(version.to_string())
    }

    /// The updater's configuration.
    pub fn config(&self) -> PathBuf {
        self.versions().join("updates.yaml")
    }

    /// What it last did, for the agent's heartbeat.
    pub fn status(&self) -> PathBuf {
        self.versions().join("status.json")
    }

    /// What it is in the middle of.
    pub fn journal(&self) -> PathBuf {
        self.versions().join("journal.json")
    }

    /// Held by whoever changes anything.
    pub fn lock(&self) -> PathBuf {
        self.versions().join("lock")
    }

    /// The agent's database.
    pub fn database(&self) -> PathBuf {
        self.outside(&self.database)
    }

    /// The link of a binary.
    pub fn bin_link(&self, binary: &str) -> PathBuf {
        self.outside(&self.bin).join(binary)
    }

    /// What that link says.
    pub fn bin_target(&self, binary: &str) -> PathBuf {
        self.data.join("active/bin").join(binary)
    }

    /// The link of the unit.
    pub fn unit_link(&self) -> PathBuf {
        self.outside(&self.units).join(&self.unit)
    }

    /// What that link says.
    pub fn unit_target(&self, unit: &str) -> PathBuf {
        self.data.join("active/etc/systemd").join(unit)
    }

    /// The unit's name on this host.
    pub fn unit(&self) -> &str {
        &self.unit
    }
}
