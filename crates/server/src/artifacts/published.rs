//! Which versions are published in the artifacts directory, and what of a version is missing there.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use refit_types::{Build, CHECKSUM_SUFFIX, Edition, Platform, Version};

use super::files;
use crate::fleet::{Fleet, FleetView, LOADED_WITHIN};

/// Entries of the directory that are looked at. Nobody publishes more.
const MOST_ENTRIES: usize = 100_000;
/// Versions and files that a sentence names.
const MOST_TOLD: usize = 10;

/// Knows what is published, and what hosts need. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Published {
    directory: Arc<PathBuf>,
    fleet: Arc<Fleet>,
    /// That of this server, for a cluster without hosts.
    edition: Edition,
}

/// The builds of each version for which archive and checksum are there, the newest version last.
pub(crate) type PublishedVersions = BTreeMap<Version, BTreeSet<Build>>;

/// What hosts need of a version and cannot download here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Missing {
    version: Version,
    builds: Vec<Build>,
    files: Vec<String>,
    published: PublishedVersions,
}

/// Why nobody can tell what is missing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PublishedError {
    /// The server has just started: platforms of hosts would be missed.
    #[error(
        "the hosts of the fleet have not all been read yet, so nobody knows what they need; try again in a moment"
    )]
    NotLoaded,
    /// The directory.
    #[error("the artifacts of this server cannot be read: {0}")]
    Directory(#[from] io::Error),
}

impl Published {
    pub(crate) fn new(directory: PathBuf, fleet: Arc<Fleet>, edition: Edition) -> Self {
        Self { directory: Arc::new(directory), fleet, edition }
    }

    /// What is published.
    pub(crate) async fn versions(&self) -> io::Result<PublishedVersions> {
        let directory = self.directory.clone();
        tokio::task::spawn_blocking(move || published(&directory)).await.map_err(io::Error::other)?
    }

    /// What is missing of a version for the builds that hosts need, if anything is. Waits until all hosts are known.
    pub(crate) async fn missing(&self, version: &Version) -> Result<Option<Missing>, PublishedError> {
        if !self.fleet.until_loaded(LOADED_WITHIN).await {
            return Err(PublishedError::NotLoaded);
        }
        let (directory, view, edition) = (self.directory.clone(), self.fleet.view(), self.edition);
        let version = version.clone();
        let looked =
            tokio::task::spawn_blocking(move || missing(&directory, version, &needed(&view, edition)));
        Ok(looked.await.map_err(io::Error::other)??)
    }
}

/// The builds that hosts need: those that they report. Hosts of agents that do not report their platform count only if no
/// host does, with this server's platform; without any host it is this server's own build.
fn needed(view: &FleetView, own: Edition) -> BTreeSet<Build> {
    let (mut reported, mut editions) = (BTreeSet::new(), BTreeSet::new());
    for (_, host) in view.hosts.iter_after(None) {
        let Some(report) = &host.value.report else { continue };
        let Some(edition) = report.edition.known().copied() else { continue };
        match &report.platform {
            Some(platform) => {
                let Platform { os, arch, .. } = &**platform;
                let is_new =
                    |build: &Build| build.edition == edition && build.os == *os && build.arch == *arch;
                if !reported.iter().any(is_new) {
                    reported.insert(Build { edition, os: os.clone(), arch: arch.clone() });
                }
            }
            None => {
                editions.insert(edition);
            }
        }
    }
    if reported.is_empty() && editions.is_empty() {
        editions.insert(own);
    }
    match reported.is_empty() {
        true => editions.into_iter().map(Build::of_this_binary).collect(),
        false => reported,
    }
}

fn missing(directory: &Path, version: Version, needed: &BTreeSet<Build>) -> io::Result<Option<Missing>> {
    let (mut builds, mut names) = (Vec::new(), Vec::new());
    for build in needed {
        let archive = build.archive_name(&version);
        let checksum = format!("{archive}{CHECKSUM_SUFFIX}");
        let before = names.len();
        for name in [archive, checksum] {
            if files::open(directory, Path::new(&name))?.is_none() {
                names.push(name);
            }
        }
        if names.len() > before {
            builds.push(build.clone());
        }
    }
    if names.is_empty() {
        return Ok(None);
    }
    Ok(Some(Missing { version, builds, files: names, published: published(directory)? }))
}

fn published(directory: &Path) -> io::Result<PublishedVersions> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    let mut names = BTreeSet::new();
    for entry in entries.take(MOST_ENTRIES) {
        names.extend(entry?.file_name().to_str().map(str::to_owned));
    }
    let mut versions = PublishedVersions::new();
    for name in &names {
        let Some((build, version)) = Build::of_archive(name) else { continue };
        let is_file = |name: &str| files::open(directory, Path::new(name)).is_ok_and(|it| it.is_some());
        let checksum = format!("{name}{CHECKSUM_SUFFIX}");
        if names.contains(&checksum) && is_file(name) && is_file(&checksum) {
            versions.entry(version).or_default().insert(build);
        }
    }
    Ok(versions)
}

impl Missing {
    /// What is missing, for whom, and what is there.
    pub(crate) fn in_words(&self) -> String {
        let builds: Vec<String> = self.builds.iter().map(ToString::to_string).collect();
        format!(
            "{} is not published for {}: the artifacts of this server lack {}. {}",
            self.version,
            few(&builds),
            few(&self.files),
            in_words(&self.published)
        )
    }
}

/// What is published, in a sentence: the newest versions.
fn in_words(published: &PublishedVersions) -> String {
    if published.is_empty() {
        return "Nothing is published there.".into();
    }
    let told: Vec<String> = published
        .iter()
        .rev()
        .map(|(version, builds)| {
            let builds: Vec<String> = builds.iter().map(ToString::to_string).collect();
            format!("{version} ({})", builds.join(", "))
        })
        .collect();
    format!("Published there: {}.", few(&told))
}

fn few(all: &[String]) -> String {
    let told = all[..all.len().min(MOST_TOLD)].join(", ");
    match all.len() > MOST_TOLD {
        true => format!("{told} and {} more", all.len() - MOST_TOLD),
        false => told,
    }
}
