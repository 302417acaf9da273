//! Installations over a source and a disk that fail: a version is complete or missing afterwards.

#![allow(clippy::unwrap_used)]

mod archive_support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use archive_support::*;
use refit_update::archive::ArchiveError;
use refit_update::{Download, InstallError, Interrupt, Profile, RealDisk, TransferLimits, install};

const PLACED: [&str; 12] = [
    "bin/",
    "bin/refit",
    "bin/refit-update -> refit",
    "bin/refitctl -> refit",
    "etc/",
    "etc/systemd/",
    "etc/systemd/refit-update.path",
    "etc/systemd/refit-update.service",
    "etc/systemd/refit-update.timer",
    "etc/systemd/refit.service",
    "sha256",
    "",
];

fn placed(host: &Host) -> bool {
    let directory = "var/lib/refit/versions/1.2.3/";
    let tree = host.tree();
    let mut expected: Vec<_> = PLACED.iter().map(|path| format!("{directory}{path}")).collect();
    expected.extend(["var/", "var/lib/", "var/lib/refit/", "var/lib/refit/versions/"].map(String::from));
    expected.sort();
    tree == expected
}

#[test]
fn a_good_archive_becomes_a_complete_version() {
    let host = Host::new();
    let archive = archive(&good());
    let seen = Mutex::new(Vec::new());
    let progress = |bytes, total| seen.lock().unwrap().push((bytes, total));
    let source = Memory::of(archive.clone());
    let download = Download {
        source: &source,
        urls: &[URL.into()],
        limits: &TransferLimits::default(),
        interrupt: &Interrupt::never(),
        progress: &progress,
    };
    let installed = install(&RealDisk, &host.layout, &host.profile, &host.version, download).unwrap();
    assert_eq!((installed.sha256.as_str(), installed.already), (sha256(&archive).as_str(), false));
    assert!(placed(&host), "{:#?}", host.tree());
    let total = archive.len() as u64;
    assert_eq!(seen.lock().unwrap().last(), Some(&(total, Some(total))));
    let directory = installed.directory;
    assert_eq!(fs::read_to_string(directory.join("bin/refitctl")).unwrap(), "#!/bin/sh\n");
    assert_eq!(fs::read_to_string(directory.join("sha256")).unwrap(), sha256(&archive) + "\n");
    for (path, mode) in
        [("", 0o755), ("bin", 0o755), ("bin/refit", 0o755), ("etc/systemd/refit.service", 0o644)]
    {
        let found = fs::metadata(directory.join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(found, mode, "{path}");
    }
}

#[test]
fn another_layout_is_mapped_by_its_profile() {
    let profile = Profile {
        binaries: vec!["agentd".into(), "agentctl".into()],
        archive_root: None,
        archive_unit: "./examples/systemd/agent.service".into(),
        unit: "agentd.service".into(),
        updater_units: Vec::new(),
        ..Profile::refit()
    };
    let host = Host::with(profile);
    let members = [
        directory("./"),
        file("./agentd", "1"),
        file("agentctl", "2"),
        file("examples/systemd/agent.service", "[Unit]"),
        file("examples/agentd", "not this one"),
    ];
    host.install(&Memory::of(archive(&members))).unwrap();
    assert_eq!(fs::read_to_string(host.directory().join("bin/agentd")).unwrap(), "1");
    assert_eq!(fs::read_to_string(host.directory().join("etc/systemd/agentd.service")).unwrap(), "[Unit]");
}

#[test]
fn a_complete_version_is_never_touched() {
    let host = Host::new();
    host.install(&Memory::of(archive(&good()))).unwrap();
    let before = host.tree();
    let disk = RecordingDisk::default();
    // There is nothing to download from.
    let again = host.install_on(&disk, &Memory::default()).unwrap();
    assert_eq!((again.already, again.sha256), (true, sha256(&archive(&good()))));
    assert_eq!((host.tree(), disk.notes()), (before, vec![]));
}

#[test]
fn what_an_interrupted_run_left_is_replaced() {
    let host = Host::new();
    for left in ["1.2.3.part/bin/junk", "1.2.3/bin/junk"] {
        let left = host.layout.versions().join(left);
        fs::create_dir_all(left.parent().unwrap()).unwrap();
        fs::write(left, "junk").unwrap();
    }
    host.install(&Memory::of(archive(&good()))).unwrap();
    assert!(placed(&host), "{:#?}", host.tree());
}

#[test]
fn a_checksum_that_is_wrong_or_absent_refuses_the_archive() {
    let host = Host::new();
    let source = Memory::of(archive(&good()));
    let checksum = format!("{URL}.sha256");
    let set = |text: &str| source.files.lock().unwrap().insert(checksum.clone(), text.into());
    set(&sha256(b"another"));
    let error = host.install(&source).unwrap_err();
    assert!(matches!(error, InstallError::Mismatch { .. }), "{error}");
    set("<html>not found</html>");
    let error = host.install(&source).unwrap_err();
    assert!(matches!(error, InstallError::ChecksumFile { .. }), "{error}");
    set(&"0".repeat(100_000));
    assert!(matches!(host.install(&source).unwrap_err(), InstallError::ChecksumFile { .. }));
    let hex = sha256(&archive(&good()));
    set(&format!("{hex}  refit-oss-v1.2.4-linux-amd64-bin.tar.gz\n"));
    let error = host.install(&source).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("checksum of \"refit-oss-v1.2.4-linux-amd64-bin.tar.gz\", which is another file"),
        "{error}"
    );
    source.files.lock().unwrap().remove(&checksum);
    assert!(matches!(host.install(&source).unwrap_err(), InstallError::Source(_)));
    assert!(host.is_bare(), "{:#?}", host.tree());
}

#[test]
fn what_is_missing_is_named() {
    let host = Host::new();
    let without = |name: &str| -> Vec<Raw> {
        good().into_iter().filter(|member| member.name != name.as_bytes()).collect()
    };
    for (absent, missing) in [
        ("refit/refit", vec!["refit", "refitctl", "refit-update"]),
        ("refit/refitctl", vec!["refitctl"]),
        ("refit/etc/systemd/refit.service", vec!["etc/systemd/refit.service"]),
        ("refit/etc/systemd/refit-update.timer", vec!["etc/systemd/refit-update.timer"]),
    ] {
        let error = host.install(&Memory::of(archive(&without(absent)))).unwrap_err();
        let InstallError::Archive { error: ArchiveError::Missing(names), .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(names, &missing);
        assert!(missing.iter().all(|name| error.to_string().contains(name)), "{error}");
    }
    assert!(host.is_bare(), "{:#?}", host.tree());
}

#[test]
fn a_profile_cannot_write_elsewhere() {
    for name in ["../refit", "a/b", "..", ""] {
        let host = Host::with(Profile { unit: name.into(), ..Profile::refit() });
        let error = host.install(&Memory::of(archive(&good()))).unwrap_err();
        assert!(matches!(error, InstallError::Name { .. }), "{error}");
    }
}

#[test]
fn everything_is_durable_before_it_is_complete() {
    let host = Host::new();
    let disk = RecordingDisk::default();
    host.install_on(&disk, &Memory::of(archive(&good()))).unwrap();
    let notes = disk.notes();
    let at = |note: &str| {
        notes.iter().position(|found| found == note).unwrap_or_else(|| panic!("{note}: {notes:#?}"))
    };
    let placed = at("rename to /1.2.3");
    for path in ["/bin/refit", "/etc/systemd/refit.service"] {
        assert!(at(&format!("create /1.2.3.part{path}")) < at(&format!("sync /1.2.3.part{path}")));
        assert!(at(&format!("sync /1.2.3.part{path}")) < placed);
    }
    for directory in ["/1.2.3.part/bin", "/1.2.3.part/etc/systemd", "/1.2.3.part/etc", "/1.2.3.part/"] {
        let synced = at(&format!("sync {directory}"));
        let made = notes.iter().rposition(|note| {
            (note.starts_with("create") || note.starts_with("link") || note.starts_with("make"))
                && note.contains(directory)
        });
        assert!(made.is_none_or(|made| made < synced) && synced < placed, "{directory}: {notes:#?}");
    }
    assert!(placed < at("sync ") && at("sync ") < at("create /1.2.3/sha256.refit-new"));
    assert_eq!(
        notes[notes.len() - 3..],
        ["sync /1.2.3/sha256.refit-new", "rename to /1.2.3/sha256", "sync /1.2.3"]
    );
}

#[test]
fn whichever_operation_fails_nothing_is_left_and_after_a_cut_the_next_run_succeeds() {
    let clean = RecordingDisk::default();
    Host::new().install_on(&clean, &Memory::of(archive(&good()))).unwrap();
    let operations = clean.notes().len();
    assert!(operations > 15, "{operations}");
    for number in 0..operations {
        let host = Host::new();
        let disk = RecordingDisk { fails: Some((number, false)), ..RecordingDisk::default() };
        let error = host.install_on(&disk, &Memory::of(archive(&good()))).unwrap_err();
        assert!(matches!(error, InstallError::Disk { .. }), "{error}");
        // The last sync comes when the version is complete already.
        assert!(host.is_bare() || number + 1 == operations && placed(&host), "{number}: {:#?}", host.tree());

        let host = Host::new();
        let disk = RecordingDisk { fails: Some((number, true)), ..RecordingDisk::default() };
        host.install_on(&disk, &Memory::of(archive(&good()))).unwrap_err();
        assert_eq!(host.layout.checksum(&host.version).exists(), number + 1 == operations, "{number}");
        host.install(&Memory::of(archive(&good()))).unwrap();
        assert!(placed(&host), "{number}: {:#?}", host.tree());
    }
}

fn large() -> Vec<Raw> {
    let mut members = good();
    members[1] = file("refit/refit", vec![7; 200 << 20]);
    members
}

#[test]
fn too_little_space_is_found_before_anything_is_written() {
    let host = Host::new();
    let tar = tar(&good());
    // A tenth of what is free stays free.
    let enough = (tar.len() as u64 + (1 << 20)) * 10 / 9 + 1;
    let free = enough - 10;
    let needed = tar.len() as u64 + (1 << 20) + free / 10;
    let disk = RecordingDisk { free: Some(AtomicU64::new(free)), ..RecordingDisk::default() };
    let error = host.install_on(&disk, &Memory::of(gzip(&tar))).unwrap_err();
    let text = error.to_string();
    let InstallError::NoSpace { at, needed: said, free: found } = error else { panic!("{text}") };
    assert_eq!((at, said, found), (host.layout.versions(), needed, free));
    assert!(text.contains(&needed.to_string()) && text.contains("versions"), "{text}");
    assert_eq!(disk.notes(), Vec::<String>::new());
    let disk = RecordingDisk { free: Some(AtomicU64::new(enough)), ..RecordingDisk::default() };
    host.install_on(&disk, &Memory::of(gzip(&tar))).unwrap();
}

#[test]
fn space_that_goes_while_writing_is_noticed() {
    let host = Host::new();
    let source = Memory::of(archive(&large()));
    let disk = RecordingDisk { free: Some(AtomicU64::new(230 << 20)), ..RecordingDisk::default() };
    let error = host.install_on(&disk, &source).unwrap_err();
    assert!(matches!(error, InstallError::NoSpace { free, .. } if free <= 115 << 20), "{error}");
    assert!(host.is_bare(), "{:#?}", host.tree());
    let disk = RecordingDisk { room: Some(AtomicU64::new(1 << 20)), ..RecordingDisk::default() };
    let error = host.install_on(&disk, &source).unwrap_err();
    assert!(matches!(error, InstallError::NoSpace { .. }), "{error}");
    assert!(host.is_bare(), "{:#?}", host.tree());
}

#[test]
fn without_a_length_a_guess_is_made() {
    let host = Host::new();
    let source = Memory { no_total: true, ..Memory::of(archive(&good())) };
    let disk = RecordingDisk { free: Some(AtomicU64::new(1 << 30)), ..RecordingDisk::default() };
    assert!(matches!(host.install_on(&disk, &source).unwrap_err(), InstallError::NoSpace { .. }));
    host.install(&source).unwrap();
    let source = Memory { no_ranges: true, ..Memory::of(archive(&good())) };
    let disk = RecordingDisk { free: Some(AtomicU64::new(1 << 20)), ..RecordingDisk::default() };
    let host = Host::new();
    let error = host.install_on(&disk, &source).unwrap_err();
    let five_times = 5 * archive(&good()).len() as u64 + (1 << 20) + (1 << 20) / 10;
    assert!(matches!(error, InstallError::NoSpace { needed, .. } if needed == five_times), "{error}");
}

fn incompressible() -> Vec<u8> {
    let mut members = good();
    members[1] = file("refit/refit", noise(3 << 20));
    archive(&members)
}

#[test]
fn a_download_that_breaks_off_goes_on() {
    for quietly in [false, true] {
        let host = Host::new();
        let source = Memory { quietly, ..Memory::of(incompressible()) };
        // Far more breaks than tries: each made progress.
        *source.cuts.lock().unwrap() = vec![100_000; 30];
        host.install(&source).unwrap();
        assert_eq!(source.pauses(), 30);
        assert_eq!(fs::read(host.directory().join("bin/refit")).unwrap(), noise(3 << 20));
    }
}

#[test]
fn without_progress_it_is_given_up() {
    let host = Host::new();
    let source = Memory::of(incompressible());
    *source.cuts.lock().unwrap() = vec![0; 100];
    let error = host.install(&source).unwrap_err();
    assert!(matches!(&error, InstallError::Source(error) if error.is_transient()), "{error}");
    assert_eq!(source.pauses(), 4);
    assert!(host.is_bare(), "{:#?}", host.tree());
}

#[test]
fn without_ranges_it_needs_restart_a_few_times() {
    let host = Host::new();
    let mut source = Memory { no_ranges: true, ..Memory::of(incompressible()) };
    *source.cuts.lock().unwrap() = vec![1_000_000; 4];
    host.install(&source).unwrap();
    assert!(placed(&host), "{:#?}", host.tree());
    let host = Host::new();
    source.pauses = 0.into();
    *source.cuts.lock().unwrap() = vec![1_000_000; 100];
    let error = host.install(&source).unwrap_err();
    assert!(matches!(&error, InstallError::Source(error) if error.needs_restart()), "{error}");
    assert!(source.pauses.load(Ordering::Relaxed) < 20, "bounded");
    assert!(host.is_bare(), "{:#?}", host.tree());
}

#[test]
fn a_file_that_changes_is_downloaded_anew_with_its_new_checksum() {
    let host = Host::new();
    let source = Memory::of(incompressible());
    // The checksum, the archive, its end; then it breaks off and is another.
    *source.changes.lock().unwrap() = Some((3, archive(&good())));
    *source.cuts.lock().unwrap() = vec![1_000_000];
    let installed = host.install(&source).unwrap();
    assert_eq!(installed.sha256, sha256(&archive(&good())));
    assert_eq!(fs::read(host.directory().join("bin/refit")).unwrap(), b"#!/bin/sh\n");
}
