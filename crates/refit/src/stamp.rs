//! The version of this binary: by default that of its sources. A release stamps another one into the finished binary,
//! so that one build can yield several versions.

use std::fs;
use std::hint::black_box;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use memchr::memmem;
use refit_identity::atomic_file;
use refit_types::Version;

use crate::exit::Failure;
use crate::output;

/// As long as the longest version.
const FIELD: usize = 64;
const MARKER: &[u8] = b"\0refit version stamp 5c0e7b2f9d6a4183:\0";
const LENGTH: usize = MARKER.len() + FIELD;

/// A marker that is nowhere else, and the version, filled up with zeros.
#[used]
static STAMP: [u8; LENGTH] = initial();

const fn initial() -> [u8; LENGTH] {
    let version = env!("CARGO_PKG_VERSION").as_bytes();
    assert!(version.len() <= FIELD, "the version does not fit");
    let mut stamp = [0; LENGTH];
    let mut at = 0;
    while at < MARKER.len() {
        stamp[at] = MARKER[at];
        at += 1;
    }
    let mut at = 0;
    while at < version.len() {
        stamp[MARKER.len() + at] = version[at];
        at += 1;
    }
    stamp
}

/// Reads the stamp from the binary at run time: without the black box the compiler would inline the initial value.
fn stamp() -> &'static [u8; LENGTH] {
    black_box(&STAMP)
}

/// The version of this binary, as text.
pub(crate) fn text() -> &'static str {
    let field = &stamp()[MARKER.len()..];
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(FIELD);
    std::str::from_utf8(&field[..end]).unwrap_or("unknown")
}

/// The version of this binary.
pub(crate) fn version() -> Result<Version, Failure> {
    text().parse().map_err(|error| Failure::failed(format!("this binary was stamped wrongly: {error}")))
}

/// Writes a version into a copy of a finished binary (a step of the release)
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  refit stamp --version 1.2.3 target/release/refit refit-1.2.3")]
pub(crate) struct Args {
    /// The version to write
    #[arg(long, value_name = "VERSION")]
    version: Version,
    /// The binary
    r#in: PathBuf,
    /// Where the stamped binary goes
    out: PathBuf,
}

impl Args {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let Self { version, r#in: from, out: to } = self;
        let failed = |path: &Path, error| Failure::failed(format!("{}: {error}", path.display()));
        let mut binary = fs::read(&from).map_err(|error| failed(&from, error))?;
        let mode = fs::metadata(&from).map_err(|error| failed(&from, error))?.permissions().mode() & 0o777;
        write(&mut binary, &version).map_err(|why| Failure::failed(format!("{}: {why}", from.display())))?;
        // Renamed into place, so that the binary may be one that runs.
        atomic_file::replace(&to, &binary, mode).map_err(|error| failed(&to, error))?;
        output::print(&format!("{} is version {version}", to.display()))
    }
}

/// Writes a version into a binary.
pub(crate) fn write(binary: &mut [u8], version: &Version) -> Result<(), &'static str> {
    let marker = &stamp()[..MARKER.len()];
    let mut places = memmem::find_iter(binary, marker).map(|at| at + marker.len());
    let field = match (places.next(), places.next()) {
        (Some(field), None) => field,
        (None, _) => return Err("this is no binary of Refit: it has no place for a version"),
        (Some(_), Some(_)) => {
            return Err("it has more than one place for a version; stamp the binary itself");
        }
    };
    let field = binary.get_mut(field..field + FIELD).ok_or("it ends in the middle of the version")?;
    let text = version.to_string();
    field.fill(0);
    field.get_mut(..text.len()).ok_or("the version does not fit")?.copy_from_slice(text.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamped(binary: &[u8], version: &str) -> Result<Vec<u8>, &'static str> {
        let mut binary = binary.to_vec();
        write(&mut binary, &version.parse().unwrap())?;
        Ok(binary)
    }

    #[test]
    fn the_version_is_that_of_the_sources_until_it_is_stamped() {
        assert_eq!(text(), env!("CARGO_PKG_VERSION"));
        assert_eq!(version().unwrap().to_string(), env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn only_the_field_is_written_and_a_shorter_version_leaves_nothing_behind() {
        let binary = [b"before", stamp().as_slice(), b"after"].concat();
        let field = 6 + MARKER.len();
        let long = stamped(&binary, "10.20.30-rc.1+build.5").unwrap();
        let short = stamped(&long, "1.2.3").unwrap();
        assert_eq!(short[..field], binary[..field]);
        assert_eq!(short[field + FIELD..], *b"after");
        assert_eq!(short[field..field + FIELD], [b"1.2.3".as_slice(), &[0; FIELD - 5]].concat());
        let longest = format!("1.2.3-{}", "x".repeat(FIELD - 6));
        assert_eq!(stamped(&binary, &longest).unwrap()[field..field + FIELD], *longest.as_bytes());
    }

    #[test]
    fn what_cannot_be_stamped_is_refused() {
        let (one, marker) = (stamp().as_slice(), &stamp()[..MARKER.len()]);
        let why = |binary: &[u8]| stamped(binary, "1.2.3").unwrap_err();
        assert!(why(b"no binary").contains("no place"));
        assert!(why(&one[1..]).contains("no place"));
        assert!(why(&[one, one].concat()).contains("more than one"));
        assert!(why(&[one, marker].concat()).contains("more than one"));
        assert!(why(&one[..LENGTH - 1]).contains("ends in the middle"));
    }
}
