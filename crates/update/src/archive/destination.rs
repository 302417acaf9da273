//! Which member of an archive is written where. Decides by names alone and touches no disk.

use super::ArchiveError;
use super::tar_reader::{Member, MemberKind};
use crate::Profile;

/// Where a member is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Destination {
    Binary(String),
    /// A binary that is a link to another.
    Link(String, String),
    /// The unit of that name.
    Unit(String),
    /// Not written: the profile does not name it.
    Ignored,
}

/// The destinations of all members, by name.
#[derive(Debug)]
pub(super) struct DestinationMap<'a> {
    root: Vec<&'a str>,
    units: Vec<(Vec<String>, &'a str)>,
    binaries: &'a [String],
}

impl<'a> DestinationMap<'a> {
    pub(super) fn new(profile: &'a Profile) -> Self {
        let parts = |path: &'a str| path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        let unit = |unit: &'a str| {
            let path = profile.archive_path(unit);
            let parts = path.iter().map(|part| part.to_string_lossy().into_owned());
            (parts.filter(|part| part != ".").collect(), unit)
        };
        Self {
            root: profile.archive_root.as_deref().map(parts).unwrap_or_default(),
            units: profile.units().map(unit).collect(),
            binaries: &profile.binaries,
        }
    }

    /// The normalized name of a member, and its destination.
    pub(super) fn destination(&self, member: &Member) -> Result<(String, Destination), ArchiveError> {
        let refused = |why| ArchiveError::member(&member.name, why);
        let name = std::str::from_utf8(&member.name).map_err(|_| refused("has a name that is not text"))?;
        if name.ends_with('/') && member.kind != MemberKind::Directory {
            return Err(refused("is named like a directory and is none"));
        }
        let parts = cleaned(name).map_err(refused)?;
        let destination = match (self.below_root(&parts), &member.kind) {
            (Some(_) | None, MemberKind::Directory) if self.root.starts_with(&parts) => Destination::Ignored,
            (None, _) => return Err(refused("is not in the directory that the archive should have")),
            (Some(inside), MemberKind::Directory)
                if self.binary(inside).is_some() || self.unit(inside).is_some() =>
            {
                return Err(refused("is a directory and should be a file"));
            }
            (Some(_), MemberKind::Directory) => Destination::Ignored,
            (Some(inside), MemberKind::File) => match self.binary(inside) {
                Some(binary) => Destination::Binary(binary.into()),
                None => self.unit(inside).map_or(Destination::Ignored, |unit| Destination::Unit(unit.into())),
            },
            (Some(inside), MemberKind::Symlink(target) | MemberKind::HardLink(target)) => {
                let target = std::str::from_utf8(target).map_err(|_| refused("links to what is not text"))?;
                let to = match member.kind {
                    MemberKind::Symlink(_) => self.followed(&parts, target),
                    _ => cleaned(target).ok(),
                };
                let to = to.filter(|to| !to.is_empty()).ok_or_else(|| refused("links out of the archive"))?;
                let to = self.below_root(&to).ok_or_else(|| refused("links out of the archive"))?;
                self.link(inside, to).map_err(refused)?
            }
        };
        Ok((parts.join("/"), destination))
    }

    fn link(&self, inside: &[&str], to: &[&str]) -> Result<Destination, &'static str> {
        if self.unit(inside).is_some() {
            return Err("is a link and should be a file");
        }
        let Some(binary) = self.binary(inside) else { return Ok(Destination::Ignored) };
        match self.binary(to) {
            Some(to) if to != binary => Ok(Destination::Link(binary.into(), to.into())),
            _ => Err("links to something that is not another binary"),
        }
    }

    fn binary(&self, inside: &[&str]) -> Option<&'a str> {
        let [name] = inside else { return None };
        self.binaries.iter().map(String::as_str).find(|binary| binary == name)
    }

    fn unit(&self, inside: &[&str]) -> Option<&'a str> {
        self.units.iter().find(|(path, _)| path == inside).map(|(_, unit)| *unit)
    }

    fn below_root<'b, 'c>(&self, parts: &'b [&'c str]) -> Option<&'b [&'c str]> {
        parts.starts_with(&self.root).then(|| &parts[self.root.len()..])
    }

    /// The target of a symbolic link, unless its path leaves the archive.
    fn followed<'b>(&self, link: &[&'b str], target: &'b str) -> Option<Vec<&'b str>> {
        if target.is_empty() || target.starts_with('/') || target.contains('\0') {
            return None;
        }
        let mut at = link[..link.len().saturating_sub(1)].to_vec();
        for part in target.split('/') {
            match part {
                "" | "." => {}
                ".." if at.len() > self.root.len() => {
                    at.pop();
                }
                ".." => return None,
                part => at.push(part),
            }
        }
        Some(at)
    }
}

/// The parts of a name that stays inside the archive.
fn cleaned(name: &str) -> Result<Vec<&str>, &'static str> {
    if name.is_empty() {
        return Err("has no name");
    }
    if name.starts_with('/') {
        return Err("has an absolute name");
    }
    if name.contains('\0') {
        return Err("has a zero byte in its name");
    }
    let parts: Vec<_> = name.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.contains(&"..") { Err("climbs out with ..") } else { Ok(parts) }
}
