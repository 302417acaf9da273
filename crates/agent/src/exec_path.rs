//! The path by which this process was started, for a reload to re-execute.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// How this process was started, kept from its start on: what a reload re-executes.
///
/// The path is not `/proc/self/exe`, which stays at the old version: an upgrade moves a link somewhere on
/// the path, so its links are left unresolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecPath {
    path: PathBuf,
    arguments: Vec<OsString>,
}

/// The path by which this process was started cannot be determined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot determine the path by which the agent was started ({called:?} is not in PATH), so it cannot reload: \
     start it by its full path"
)]
pub struct ExecPathError {
    called: OsString,
}

impl ExecPath {
    /// Of this process; to be called before anything changes its directory or `PATH`.
    pub fn this_process() -> Result<Self, ExecPathError> {
        let mut arguments = env::args_os();
        let called = arguments.next().unwrap_or_default();
        let directory = env::current_dir().unwrap_or_default();
        let path = resolve(&called, &directory, env::var_os("PATH").as_deref(), is_program);
        let path = path.ok_or(ExecPathError { called })?;
        Ok(Self { path, arguments: arguments.collect() })
    }

    /// The path, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The arguments after the program's name.
    pub fn arguments(&self) -> &[OsString] {
        &self.arguments
    }
}

/// The absolute path that a shell in `directory` meant by `called`.
fn resolve(
    called: &OsStr,
    directory: &Path,
    search: Option<&OsStr>,
    is_program: impl Fn(&Path) -> bool,
) -> Option<PathBuf> {
    if called.as_bytes().contains(&b'/') {
        return Some(directory.join(called));
    }
    if called.is_empty() {
        return None;
    }
    // An empty part of PATH is the directory itself, which joining makes of it.
    let mut candidates = env::split_paths(search?).map(|part| directory.join(part).join(called));
    candidates.find(|candidate| is_program(candidate))
}

fn is_program(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(called: &str, search: Option<&str>, programs: &[&str]) -> Option<PathBuf> {
        let known = |path: &Path| programs.iter().any(|program| Path::new(program) == path);
        resolve(OsStr::new(called), Path::new("/home/me"), search.map(OsStr::new), known)
    }

    #[test]
    fn paths_are_made_absolute_and_names_are_looked_up() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(meant("/usr/local/bin/refit", None, &[]), path("/usr/local/bin/refit"));
        assert_eq!(meant("target/refit", Some("/bin"), &["/bin/refit"]), path("/home/me/target/refit"));
        assert_eq!(meant("./refit", None, &[]), path("/home/me/./refit"));
        let search = Some("/usr/bin:/opt/bin:/bin");
        assert_eq!(meant("refit", search, &["/bin/refit", "/opt/bin/refit"]), path("/opt/bin/refit"));
        assert_eq!(meant("refit", Some("bin:/bin"), &["/home/me/bin/refit"]), path("/home/me/bin/refit"));
        assert_eq!(meant("refit", Some("/bin:"), &["/home/me/refit"]), path("/home/me/refit"));
        for (called, search) in [("refit", search), ("refit", None), ("", search)] {
            assert_eq!(meant(called, search, &[]), None);
        }
        assert_eq!(meant("", Some("/bin"), &["/bin/"]), None);
    }

    #[test]
    fn links_are_left_as_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("sh");
        std::os::unix::fs::symlink("/bin/sh", &link).unwrap();
        let search = directory.path().as_os_str();
        let found = resolve(OsStr::new("sh"), Path::new("/"), Some(search), is_program);
        assert_eq!(found, Some(link));
        std::fs::write(directory.path().join("data"), "").unwrap();
        assert_eq!(resolve(OsStr::new("data"), Path::new("/"), Some(search), is_program), None);
    }

    #[test]
    fn this_process_knows_its_path() {
        let started = ExecPath::this_process().unwrap();
        assert!(started.path().is_absolute() && started.path().exists());
    }
}
