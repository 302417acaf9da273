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
    agent_config: PathBuf,
    suffix: Option<String>,
}

impl Layout {
    /// The places of a profile below `root`. A suffix keeps a second agent on one host apart: nothing of it is where
    /// the first one's is, its links neither.
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

    /// What a unit of the profile is called on this host.
    pub fn unit_name(&self, unit: &str) -> String {
        match &self.suffix {
            Some(suffix) => suffixed_name(unit, suffix),
            None => unit.to_owned(),
        }
    }

    /// Whether this agent is a second one on its host.
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

    /// What that link says.
    pub fn wants_target(&self, unit: &str) -> PathBuf {
        self.units.join(self.unit_name(unit))
    }

    /// The link that would keep the service from being started by anybody.
    pub fn mask(&self) -> PathBuf {
        self.outside(Path::new("/etc/systemd/system")).join(&self.unit)
    }

    /// Where the database is kept that was there before anything was installed.
    pub fn first_backup(&self) -> PathBuf {
        self.versions().join("before")
    }

    /// There once the version has proved that it works.
    pub fn proved(&self, version: &Version) -> PathBuf {
        self.version(version).join("proved")
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

    /// The pointer back, made before the pointer moves: a full disk cannot stand in the way of a rename.
    pub(crate) fn active_back(&self) -> PathBuf {
        self.data().join("active.back")
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

    /// The directory of these links, where it is nobody else's.
    pub fn own_bin(&self) -> Option<PathBuf> {
        self.is_suffixed().then(|| self.outside(&self.bin))
    }

    /// What that link says.
    pub fn bin_target(&self, binary: &str) -> PathBuf {
        self.data.join("active/bin").join(binary)
    }

    /// Where a unit of the profile is read by the service manager.
    pub fn unit_path(&self, unit: &str) -> PathBuf {
        self.outside(&self.units).join(self.unit_name(unit))
    }

    /// Where a version has it.
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
