//! The updater's status file, read again whenever it changes. The agent sends it along in heartbeats.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use refit_types::UpdaterStatus;
use tokio::sync::watch;

/// Often enough for a rollout that moves in seconds, at the cost of one `stat`. Not inotify: the file and its
/// directory are replaced by renames, and some file systems send no events.
const POLL_EVERY: Duration = Duration::from_secs(2);
/// Every heartbeat carries the text.
const MAX_BYTES: u64 = UpdaterStatus::MAX_BYTES as u64;

/// What the updater last wrote: read, for decisions, and as it is, for the heartbeat (the control plane
/// may know fields that this agent does not).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdaterReport {
    /// What it says.
    pub status: UpdaterStatus,
    /// The file's text.
    pub text: String,
}

/// Follows the updater's status file until the last receiver is gone. Nothing while there has been none;
/// a file that is gone or cannot be understood leaves the last good one in place and is logged once.
pub fn watch_updater_status(path: PathBuf) -> watch::Receiver<Option<UpdaterReport>> {
    let mut reader = StatusReader::new(path);
    let (reports, receiver) = watch::channel(reader.read_if_changed());
    tokio::spawn(async move {
        let mut polls = tokio::time::interval(POLL_EVERY);
        loop {
            tokio::select! {
                () = reports.closed() => return,
                _ = polls.tick() => {}
            }
            if let Some(report) = reader.read_if_changed() {
                reports.send_replace(Some(report));
            }
        }
    });
    receiver
}

/// Identifies the contents of a file: equal versions mean that it was not written in between.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileVersion {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

#[derive(Debug)]
struct StatusReader {
    path: PathBuf,
    /// Of the last good one: what is bad may be half-written, and is read again each time.
    seen: Option<FileVersion>,
    last: Option<UpdaterReport>,
    /// The error that was last logged, so that it is logged once.
    last_error: Option<String>,
}

impl StatusReader {
    fn new(path: PathBuf) -> Self {
        Self { path, seen: None, last: None, last_error: None }
    }

    /// The report, if it is another than the last.
    fn read_if_changed(&mut self) -> Option<UpdaterReport> {
        let error_text = match read(&self.path, self.seen.as_ref()) {
            Ok(None) => None,
            Ok(Some((version_on_disk, report))) => {
                self.seen = Some(version_on_disk);
                self.last_error = None;
                if self.last.as_ref() == Some(&report) {
                    return None;
                }
                self.last = Some(report.clone());
                return Some(report);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.last.is_none() => None,
            Err(error) => Some(error.to_string()),
        };
        if error_text.is_some() && error_text != self.last_error {
            let path = self.path.display();
            let error = error_text.as_deref();
            tracing::warn!(%path, error, "cannot read the updater's status file; keeping the last valid status");
        }
        self.last_error = error_text;
        None
    }
}

/// Nothing if the file is the one that was `seen`.
fn read(path: &Path, seen: Option<&FileVersion>) -> io::Result<Option<(FileVersion, UpdaterReport)>> {
    let file = File::open(path)?;
    // Of the open file, so that the version_on_disk is of what is read.
    let found = file.metadata()?;
    let invalid = |problem: String| io::Error::new(io::ErrorKind::InvalidData, problem);
    if !found.is_file() {
        return Err(invalid("it is not a file".into()));
    }
    let modified = (found.mtime(), found.mtime_nsec());
    let version_on_disk =
        FileVersion { device: found.dev(), inode: found.ino(), size: found.size(), modified };
    if seen == Some(&version_on_disk) {
        return Ok(None);
    }
    if version_on_disk.size > MAX_BYTES {
        return Err(invalid(format!(
            "it has {} bytes, more than the {MAX_BYTES} allowed",
            version_on_disk.size
        )));
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    if !text.trim_start().starts_with('{') {
        return Err(invalid("it is not a JSON object".into()));
    }
    let status = serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?;
    Ok(Some((version_on_disk, UpdaterReport { status, text })))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use refit_types::DataDir;

    use super::*;

    fn status(version: &str) -> String {
        format!(r#"{{"agent_version_installed": "{version}", "later": 1}}"#)
    }

    #[test]
    fn only_good_and_new_reports_count() {
        let directory = tempfile::tempdir().unwrap();
        let path = DataDir::new(directory.path()).updater_status();
        let mut reader = StatusReader::new(path.clone());
        assert_eq!(reader.read_if_changed(), None);
        assert_eq!(reader.last_error, None, "an absent file is no error at first");

        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, status("1.2.3")).unwrap();
        let report = reader.read_if_changed().unwrap();
        assert_eq!(report.text, status("1.2.3"));
        assert_eq!(report.status.agent_version_installed.unwrap().to_string(), "1.2.3");
        assert_eq!(reader.read_if_changed(), None);

        let (half, huge) = (&status("1.2.4")[..20], "x".repeat(70_000));
        for bad in [half, "", "[]", "null", huge.as_str()] {
            fs::write(&path, bad).unwrap();
            assert_eq!(reader.read_if_changed(), None, "{bad:.30}");
            assert!(reader.last_error.is_some(), "{bad:.30}");
        }
        fs::write(&path, b"\xff\xfe").unwrap();
        assert_eq!(reader.read_if_changed(), None);
        fs::remove_file(&path).unwrap();
        assert_eq!(reader.read_if_changed(), None);
        assert!(reader.last_error.as_ref().is_some_and(|error| error.contains("No such file")));

        fs::write(&path, status("1.2.3")).unwrap();
        assert_eq!(reader.read_if_changed(), None, "it says what it said before");
        assert_eq!(reader.last_error, None);
        fs::write(&path, status("1.2.4")).unwrap();
        assert_eq!(reader.read_if_changed().unwrap().text, status("1.2.4"));
    }

    #[tokio::test(start_paused = true)]
    async fn receivers_are_told_of_changes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status.json");
        fs::write(&path, status("1.0.0")).unwrap();
        let mut reports = watch_updater_status(path.clone());
        assert_eq!(reports.borrow_and_update().as_ref().unwrap().text, status("1.0.0"));
        let aside = directory.path().join("aside");
        fs::write(&aside, status("1.0.1")).unwrap();
        fs::rename(&aside, &path).unwrap();
        reports.changed().await.unwrap();
        assert_eq!(reports.borrow().as_ref().unwrap().text, status("1.0.1"));
    }
}
