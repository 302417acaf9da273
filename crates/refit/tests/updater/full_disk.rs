//! A real file system that is full, a page sooner each time; with an agent of another layout, whose archive is small.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use refit_testbed::{Process, eventually};

use crate::cluster::{Cluster, PATIENCE, REFIT, said};

const PAGE: u64 = 4096;
const DISK_BYTES: u64 = 4 * 1024 * 1024;

/// A small file system that only one process and its guests see, and that goes with it.
struct Disk {
    holder: Process,
    place: PathBuf,
}

impl Disk {
    async fn mount(place: &Path) -> Self {
        fs::create_dir(place).unwrap();
        let script = "mount -t tmpfs -o size=$1 tmpfs \"$2\" && touch \"$2/ready\" && exec sleep infinity";
        let arguments = ["--mount", "--propagation", "private", "sh", "-c", script, "sh"];
        let size = DISK_BYTES.to_string();
        let arguments = arguments.iter().copied().chain([size.as_str(), place.to_str().unwrap()]);
        let arguments: Vec<String> = arguments.map(str::to_owned).collect();
        let holder = Process::start("unshare", &arguments, &place.with_extension("log"));
        let disk = Self { holder, place: place.into() };
        eventually("the disk is there", PATIENCE, async || disk.at("ready").exists()).await;
        disk
    }

    /// Where something is, seen from outside.
    fn at(&self, path: &str) -> PathBuf {
        let place = self.place.strip_prefix("/").unwrap();
        Path::new("/proc").join(self.holder.pid().to_string()).join("root").join(place).join(path)
    }

    /// Runs a program that sees the disk.
    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let namespace = format!("--mount=/proc/{}/ns/mnt", self.holder.pid());
        Command::new("nsenter").arg(namespace).arg(program).args(arguments).output().unwrap()
    }

    fn shell(&self, script: &str) {
        let ran = self.run("sh", &["-euc", script]);
        assert!(ran.status.success(), "{script}: {}", String::from_utf8_lossy(&ran.stderr));
    }

    /// Leaves that many bytes free.
    fn fill(&self, free: u64) {
        let stat = rustix::fs::statvfs(self.at("")).unwrap();
        let ballast = (stat.f_bavail * stat.f_frsize).saturating_sub(free);
        fs::write(self.at("ballast"), vec![1; usize::try_from(ballast).unwrap()]).unwrap();
    }
}

/// An archive as Teleport's are, of programs that say their version.
fn publish(folder: &Path, version: &str) {
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let script = format!(
        r#"
        mkdir -p work/teleport/examples/systemd
        for name in teleport tctl tsh tbot; do
            {{ echo '#!/bin/sh'; echo 'echo "Teleport v{version} git:v{version} go1.21"; exit'; head -c 20000 /dev/urandom | od; }} >work/teleport/$name
            chmod 755 work/teleport/$name
        done
        echo '[Service]' >work/teleport/examples/systemd/teleport.service
        tar -czf teleport-v{version}-linux-{arch}-bin.tar.gz -C work teleport
        sha256sum teleport-v{version}-linux-{arch}-bin.tar.gz >teleport-v{version}-linux-{arch}-bin.tar.gz.sha256
        rm -r work
        "#
    );
    let made = Command::new("sh").args(["-euc", &script]).current_dir(folder).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn database(folder: &Path) -> PathBuf {
    let path = folder.join("sqlite.db");
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10) SELECT randomblob(3000) FROM n";
    let script = format!("CREATE TABLE things (name BLOB); INSERT INTO things {rows};");
    said(&Command::new("sqlite3").arg("-batch").arg(&path).arg(script).output().unwrap());
    path
}

#[tokio::test]
async fn a_disk_that_is_full_at_any_write_leaves_the_version_that_is_there() {
    let cluster = Cluster::start().await;
    let folder = cluster.folder.path();
    for version in ["1.2.3", "1.2.4"] {
        publish(&folder.join("server/artifacts"), version);
    }
    let disk = Disk::mount(&folder.join("disk")).await;
    let place = disk.place.to_str().unwrap().to_owned();
    let profile = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles/teleport.yaml");
    let update = |arguments: &[&str]| {
        let fixed = ["update", "--root", &place, "--profile", profile.to_str().unwrap()];
        disk.run(REFIT, &[&fixed, arguments].concat())
    };
    cluster.choose("1.2.3");
    said(&update(&["enable", "--proxy", &cluster.address, "--ca-pin", &cluster.pin]));
    let stored = database(folder);
    disk.shell(&format!(
        "mkdir -p {place}/var/lib/teleport/proc; cp {} {place}/var/lib/teleport/proc/",
        stored.display()
    ));
    let pristine = folder.join("pristine");
    disk.shell(&format!("cp -a {place} {}", pristine.display()));
    cluster.choose("1.2.4");
    said(&update(&["update", "--now"]));
    // From here on it is on the disk, so that no check for the room that it needs is in the way.
    let versions = "var/lib/teleport/versions";
    disk.shell(&format!("cp -a {place}/{versions}/1.2.4 {}/{versions}/", pristine.display()));

    let (mut refused, mut free) = (0, 0);
    loop {
        disk.shell(&format!("rm -rf {place}/* ; cp -a {}/. {place}", pristine.display()));
        disk.fill(free);
        let tried = update(&["update", "--now"]);
        let active = fs::read_link(disk.at("var/lib/teleport/active")).unwrap();
        if tried.status.success() {
            assert_eq!(active, Path::new("versions/1.2.4"));
            break;
        }
        let told = String::from_utf8_lossy(&tried.stderr).into_owned();
        assert_eq!(tried.status.code(), Some(1), "{free} bytes free: {told}");
        assert!(told.contains("error: "), "{told}");
        // The pointer may have moved when only what is told of it had no room.
        let version = active.file_name().unwrap().to_str().unwrap();
        let runs = disk.run(
            disk.place.join("var/lib/teleport").join(&active).join("bin/teleport").to_str().unwrap(),
            &[],
        );
        assert!(said(&runs).contains(&format!("v{version}")), "{free} bytes free: {told}");

        fs::remove_file(disk.at("ballast")).unwrap();
        said(&update(&["update", "--now"]));
        assert_eq!(fs::read_link(disk.at("var/lib/teleport/active")).unwrap(), Path::new("versions/1.2.4"));
        let status: serde_json::Value = serde_json::from_str(&said(&update(&["status"]))).unwrap();
        assert_eq!(status["agent_version_installed"], "1.2.4");
        assert!(status["last_failure"].is_null(), "{status}");
        assert_eq!(fs::read(disk.at("var/lib/teleport/proc/sqlite.db")).unwrap(), fs::read(&stored).unwrap());
        refused += 1;
        free += PAGE;
        assert!(free < DISK_BYTES, "it never has enough room");
    }
    assert!(refused > 3, "only {refused} updates met a full disk");
    println!("{refused} full disks, the last with {free} bytes free");
}
