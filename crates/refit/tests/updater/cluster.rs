//! A control plane with real archives, and an image that they are installed into.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use refit_testbed::{Server, directory, link_files};
use serde_json::Value;
use tempfile::TempDir;

pub const REFIT: &str = env!("CARGO_BIN_EXE_refit");
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A control plane with archives of two versions, and of one whose agent does not run.
pub struct Cluster {
    pub folder: TempDir,
    pub server: Server,
    pub address: String,
    pub pin: String,
}

/// Made once: stamping and packing take longer than any test.
fn archives() -> &'static Path {
    static ARCHIVES: OnceLock<TempDir> = OnceLock::new();
    let folder = ARCHIVES.get_or_init(|| {
        let folder = directory();
        for version in ["1.2.3", "1.2.4"] {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/dist.sh");
            let made = Command::new("sh")
                .arg(script)
                .args([version, REFIT, folder.path().to_str().unwrap()])
                .env("DIST_GZIP_LEVEL", "1")
                .output()
                .unwrap();
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        }
        break_archive(folder.path());
        folder
    });
    folder.path()
}

/// Two versions that say what they are, as they must: the agent of 1.2.5 fails, and that of 1.2.6 hangs.
fn break_archive(folder: &Path) {
    let script = r#"
        set -eu
        archive=$(basename "$(echo refit-*-v1.2.4-*.tar.gz)")
        mkdir work
        tar -xzf "$archive" -C work
        spoil() {
            broken=$(echo "$archive" | sed "s/1.2.4/$1/")
            printf '#!/bin/sh\n[ "$1" != version ] || exec echo "refit v%s (oss)"\n%s\n' "$1" "$2" >work/refit/refit
            tar -czf "$broken" -C work refit
            sha256sum "$broken" >"$broken.sha256"
        }
        spoil 1.2.5 'echo starting; echo "cannot join with --token 6ac3a7390d7ae9beb543f169700ec9da" >&2; exit 3'
        spoil 1.2.6 'exec sleep 100000'
        rm -r work
    "#;
    let made = Command::new("sh").args(["-c", script]).current_dir(folder).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

impl Cluster {
    pub async fn start() -> Self {
        let folder = directory();
        let data = folder.path().join("server");
        link_files(archives(), &data.join("artifacts"));
        let server = Server::start(REFIT, &data, &[]).await;
        let (address, pin) = (server.address().into(), server.invite(&[]).ca_pin);
        Self { folder, server, address, pin }
    }

    /// What `refitctl` answers to a program.
    #[track_caller]
    pub fn ask(&self, arguments: &[&str]) -> Value {
        self.server.ask(arguments)
    }

    pub fn choose(&self, version: &str) {
        let flag = format!("--set-agent-version={version}");
        // One that is not there, too: what updaters make of that is tested.
        self.ask(&["autoupdate", "update", &flag, "--immediate", "--allow-missing"]);
    }

    /// An image with the first version in it.
    pub fn installed(&self) -> Image {
        self.choose("1.2.3");
        let image = Image { root: self.folder.path().join("image") };
        let enabled = image.update(&["enable", "--proxy", &self.address, "--ca-pin", &self.pin]);
        assert_eq!(said(&enabled), "Installed 1.2.3.\n");
        image
    }
}

#[track_caller]
pub fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub struct Image {
    pub root: PathBuf,
}

impl Image {
    pub fn command(&self, arguments: &[&str]) -> Command {
        let called = self.root.with_extension("refit-update").join("refit-update");
        if !called.exists() {
            std::fs::create_dir_all(called.parent().unwrap()).unwrap();
            symlink(REFIT, &called).unwrap();
        }
        let mut command = Command::new(called);
        command.arg("--root").arg(&self.root).args(arguments).stdin(Stdio::null());
        command
    }

    pub fn update(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The version that the pointer names, which is whole and runs.
    pub fn active(&self) -> String {
        let active = std::fs::read_link(self.root.join("var/lib/refit/active")).unwrap();
        let folder = self.root.join("var/lib/refit").join(&active);
        assert!(folder.join("sha256").exists(), "{active:?} is not complete");
        let version = active.file_name().unwrap().to_str().unwrap().to_owned();
        let runs = Command::new(folder.join("bin/refit")).arg("version").output().unwrap();
        assert_eq!(said(&runs), format!("refit v{version} (oss)\n"));
        version
    }

    pub fn status(&self) -> Value {
        serde_json::from_str(&said(&self.update(&["status"]))).unwrap()
    }
}
