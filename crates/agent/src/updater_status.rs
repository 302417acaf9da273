use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use refit_types::UpdaterStatus;
use tokio::sync::watch;

/// Often enough for a rollout that moves in seconds, and one `stat` each time. Not inotify: the file, and
/// the directory above it, come and go by renames, and some file systems tell nothing.
const LOOK_EVERY: Duration = Duration::from_secs(2);
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
    let mut follower = Follower::new(path);
    let (reports, receiver) = watch::channel(follower.look());
    tokio::spawn(async move {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                () = reports.closed() => return,
                _ = looks.tick() => {}
            }
            if let Some(report) = follower.look() {
                reports.send_replace(Some(report));
            }
        }
    });
    receiver
}

/// Two of one file that are equal mean that nobody wrote between them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

#[derive(Debug)]
struct Follower {
    path: PathBuf,
    /// Of the last good one: what is bad may be half-written, and is read again each time.
    seen: Option<Stamp>,
    last: Option<UpdaterReport>,
    trouble: Option<String>,
}

impl Follower {
    fn new(path: PathBuf) -> Self {
        Self { path, seen: None, last: None, trouble: None }
    }

    /// The report, if it is another than the last.
    fn look(&mut self) -> Option<UpdaterReport> {
        let trouble = match read(&self.path, self.seen.as_ref()) {
            Ok(None) => None,
            Ok(Some((stamp, report))) => {
                self.seen = Some(stamp);
                self.trouble = None;
                if self.last.as_ref() == Some(&report) {
                    return None;
                }
                self.last = Some(report.clone());
                return Some(report);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.last.is_none() => None,
            Err(error) => Some(error.to_string()),
        };
        if trouble.is_some() && trouble != self.trouble {
            let path = self.path.display();
            let problem = trouble.as_deref();
            tracing::warn!(%path, problem, "the updater's status cannot be read; the last good one is kept");
        }
        self.trouble = trouble;
        None
    }
}

/// Nothing if the file is the one that was `seen`.
fn read(path: &Path, seen: Option<&Stamp>) -> io::Result<Option<(Stamp, UpdaterReport)>> {
    let file = File::open(path)?;
    // Of the open file, so that the stamp is of what is read.
    let found = file.metadata()?;
    let invalid = |problem: String| io::Error::new(io::ErrorKind::InvalidData, problem);
    if !found.is_file() {
        return Err(invalid("it is not a file".into()));
    }
    let modified = (found.mtime(), found.mtime_nsec());
    let stamp = Stamp { device: found.dev(), inode: found.ino(), size: found.size(), modified };
    if seen == Some(&stamp) {
        return Ok(None);
    }
    if stamp.size > MAX_BYTES {
        return Err(invalid(format!("it has {} bytes, more than the {MAX_BYTES} allowed", stamp.size)));
    }
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    if !text.trim_start().starts_with('{') {
        return Err(invalid("it is not a JSON object".into()));
    }
    let status = serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?;
    Ok(Some((stamp, UpdaterReport { status, text })))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn status(version: &str) -> String {
        format!(r#"{{"agent_version_installed": "{version}", "later": 1}}"#)
    }

    #[test]
    fn only_good_and_new_reports_count() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("versions/status.json");
        let mut follower = Follower::new(path.clone());
        assert_eq!(follower.look(), None);
        assert_eq!(follower.trouble, None, "an absent file is no trouble at first");

        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, status("1.2.3")).unwrap();
        let report = follower.look().unwrap();
        assert_eq!(report.text, status("1.2.3"));
        assert_eq!(report.status.agent_version_installed.unwrap().to_string(), "1.2.3");
        assert_eq!(follower.look(), None);

        let (half, huge) = (&status("1.2.4")[..20], "x".repeat(70_000));
        for bad in [half, "", "[]", "null", huge.as_str()] {
            fs::write(&path, bad).unwrap();
            assert_eq!(follower.look(), None, "{bad:.30}");
            assert!(follower.trouble.is_some(), "{bad:.30}");
        }
        fs::write(&path, b"\xff\xfe").unwrap();
        assert_eq!(follower.look(), None);
        fs::remove_file(&path).unwrap();
        assert_eq!(follower.look(), None);
        assert!(follower.trouble.as_ref().is_some_and(|trouble| trouble.contains("No such file")));

        fs::write(&path, status("1.2.3")).unwrap();
        assert_eq!(follower.look(), None, "it says what it said before");
        assert_eq!(follower.trouble, None);
        fs::write(&path, status("1.2.4")).unwrap();
        assert_eq!(follower.look().unwrap().text, status("1.2.4"));
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
