//! Hostile and corrupt archives: each is refused with an error, and nothing of it is left.

#![allow(clippy::unwrap_used)]

mod archive_support;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use archive_support::*;
use proptest::prelude::*;
use refit_update::InstallError;
use refit_update::archive::ArchiveError;

fn refused(what: &str, archive: Vec<u8>) -> ArchiveError {
    let host = Host::new();
    match host.install(&Memory::of(archive)) {
        Err(InstallError::Archive { error, .. }) => {
            assert!(host.is_bare(), "{what}: {:#?}", host.tree());
            error
        }
        other => panic!("{what}: {other:?}"),
    }
}

fn with(member: Raw) -> Vec<u8> {
    let mut members = good();
    members.push(member);
    archive(&members)
}

fn replacing(name: &str, member: Raw) -> Vec<u8> {
    let mut members = good();
    let at = members.iter().position(|member| member.name == name.as_bytes()).unwrap();
    members[at] = member;
    archive(&members)
}

#[test]
fn members_that_no_good_archive_has_are_refused_by_name() {
    let setuid = |mode| Raw { mode, ..file("refit/x", "x") };
    let hostile = [
        ("has an absolute name", file("/etc/passwd", "x")),
        ("has an absolute name", file("//refit/x", "x")),
        ("climbs out with ..", file("refit/../../etc/passwd", "x")),
        ("climbs out with ..", file("../refit/x", "x")),
        ("climbs out with ..", directory("refit/..")),
        ("is not in the directory", file("teleport/refit", "x")),
        ("is not in the directory", file("refit-2", "x")),
        ("links out", symlink("refit", "elsewhere")),
        ("has no name", file("", "x")),
        ("links out", symlink("refit/x", "/etc/passwd")),
        ("links out", symlink("refit/x", "../x")),
        ("links out", symlink("refit/a/x", "../../x")),
        ("links out", symlink("refit/x", "a/../../x")),
        ("links out", symlink("refit/x", "")),
        ("links out", hard_link("refit/x", "/etc/passwd")),
        ("links out", hard_link("refit/x", "refit/../../x")),
        ("links out", hard_link("refit/x", "other/x")),
        ("links out", hard_link("refit/x", "")),
        ("is a device", raw(b'3', "refit/x")),
        ("is a device", raw(b'4', "refit/x")),
        ("is a pipe", raw(b'6', "refit/x")),
        ("is a sparse file", raw(b'S', "refit/x")),
        ("is neither a file", raw(b'7', "refit/x")),
        ("is neither a file", raw(b'Z', "refit/x")),
        ("is setuid or setgid", setuid(0o4755)),
        ("is setuid or setgid", setuid(0o2755)),
        ("is there twice", file("refit/refit", "again")),
        ("is there twice", file("./refit//./README", "again")),
        ("is there twice", symlink("refit/README", "refit")),
        ("is named like a directory", file("refit/x/", "x")),
        ("has bytes", Raw { body: vec![1], ..symlink("refit/x", "refit") }),
        ("has bytes", Raw { body: vec![1], ..directory("refit/x") }),
    ];
    for (why, member) in hostile {
        let shown = format!("{member:?}");
        let error = refused(&shown, with(member));
        assert!(
            matches!(&error, ArchiveError::Member { why: found, .. } if found.starts_with(why)),
            "{shown}: {error}"
        );
    }
    for (why, name, member) in [
        ("links to something", "refit/refitctl", symlink("refit/refitctl", "README")),
        ("links to something", "refit/refitctl", symlink("refit/refitctl", "refitctl")),
        ("links to something", "refit/refitctl", hard_link("refit/refitctl", "refit/etc")),
        ("is a directory", "refit/refit", directory("refit/refit")),
        (
            "is a link",
            "refit/etc/systemd/refit.service",
            symlink("refit/etc/systemd/refit.service", "../../refit"),
        ),
    ] {
        let error = refused(name, replacing(name, member));
        assert!(
            matches!(&error, ArchiveError::Member { why: found, .. } if found.starts_with(why)),
            "{error}"
        );
    }
    let circle = [
        symlink("refit/refit", "refitctl"),
        symlink("refit/refitctl", "refit-update"),
        symlink("refit/refit-update", "refit"),
    ];
    let mut members = good();
    members.splice(1..4, circle);
    assert!(matches!(refused("circle", archive(&members)), ArchiveError::Missing(names) if names.len() == 3));
}

fn described(kind: u8, description: impl Into<Vec<u8>>, member: Raw) -> Vec<u8> {
    let mut members = good();
    members.push(Raw { body: description.into(), ..raw(kind, "././@Description") });
    members.push(member);
    archive(&members)
}

fn record(key: &str, value: &str) -> String {
    let bare = key.len() + value.len() + 3;
    let length = (1..4).map(|digits| bare + digits).find(|length| length.to_string().len() + bare == *length);
    format!("{} {key}={value}\n", length.unwrap())
}

#[test]
fn long_names_and_pax_records_hide_nothing() {
    let host = Host::new();
    let long = format!("refit/{}", "long/".repeat(60) + "name");
    let good_pax =
        [record("mtime", "1.5"), record("path", &long), record("SCHILY.xattr.user.x", "y")].concat();
    host.install(&Memory::of(described(b'x', good_pax, file("refit/x", "x")))).unwrap();
    let host = Host::new();
    host.install(&Memory::of(described(b'L', long.clone() + "\0", file("refit/x", "x")))).unwrap();
    let host = Host::new();
    host.install(&Memory::of(described(b'g', record("comment", "a commit"), file("refit/x", "x")))).unwrap();

    for (what, kind, description, member) in [
        ("a long name that climbs", b'L', "refit/../../x".into(), file("refit/x", "x")),
        ("a long name of a binary twice", b'L', "refit/refit".into(), file("refit/x", "x")),
        ("a long link", b'K', "../../etc/passwd".into(), symlink("refit/x", "refit")),
        ("a pax path that climbs", b'x', record("path", "/etc/passwd"), file("refit/x", "x")),
        ("a pax link", b'x', record("linkpath", "/etc/passwd"), symlink("refit/x", "refit")),
        ("a zero byte", b'x', record("path", "refit/x\0/../.."), file("refit/x", "x")),
        ("a name that is too long", b'L', format!("refit/{}", "x".repeat(2000)), file("refit/x", "x")),
    ] {
        let error = refused(what, described(kind, description, member));
        assert!(matches!(error, ArchiveError::Member { .. }), "{what}: {error}");
    }
    for (what, kind, description) in [
        ("a pax size", b'x', record("size", "0")),
        ("a sparse map", b'x', record("GNU.sparse.map", "0,1")),
        ("a global path", b'g', record("path", "refit/y")),
        ("two paths", b'x', record("path", "refit/y") + &record("path", "refit/z")),
        ("no length", b'x', "path=refit/y\n".into()),
        ("a length past the end", b'x', "99 path=refit/y\n".into()),
        ("a length of nothing", b'x', "2 path=refit/y\n".into()),
        ("no newline", b'x', "8 path=y".into()),
        ("a description without end", b'L', "x".repeat(100_000)),
    ] {
        let error = refused(what, described(kind, description, file("refit/x", "x")));
        assert!(matches!(error, ArchiveError::Header { .. }), "{what}: {error}");
    }
    let mut members = good();
    members.push(Raw { body: b"refit/y".to_vec(), ..raw(b'L', "x") });
    assert_eq!(refused("a description of nothing", archive(&members)), ArchiveError::Truncated);
    members.push(Raw { body: b"refit/z".to_vec(), ..raw(b'L', "x") });
    members.push(file("x", ""));
    assert!(matches!(refused("two long names", archive(&members)), ArchiveError::Header { .. }));
    // A gigabyte that claims to be a name is not taken into memory.
    let claim = Raw { size: Some(1 << 30), ..raw(b'L', "x") };
    assert!(matches!(refused("a huge name", with(claim)), ArchiveError::Header { .. }));
}

#[test]
fn a_million_members_are_too_many() {
    let mut members = good();
    members.extend((0..10_001 - good().len()).map(|number| file(&format!("refit/{number}"), "")));
    assert_eq!(refused("members", archive(&members)), ArchiveError::TooMany(10_000));
    members.pop();
    Host::new().install(&Memory::of(archive(&members))).unwrap();
}

#[test]
fn a_bomb_stops_at_what_it_said() {
    let mut members = good();
    members.push(file("refit/zeros", vec![0; 50 << 20]));
    let mut bomb = archive(&members);
    let at = bomb.len() - 4;
    bomb[at..].copy_from_slice(&1_000_000_u32.to_le_bytes());
    assert_eq!(refused("it said less", bomb.clone()), ArchiveError::TooLarge(1_000_000));
    bomb[at..].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(refused("it said more", bomb), ArchiveError::Gzip(_)));
    let claim = Raw { size: Some(u64::MAX - 700), ..raw(b'0', "refit/x") };
    refused("a size that overflows", with(claim));
    let claim = Raw { size: Some(1 << 40), ..raw(b'0', "refit/refit-2") };
    assert_eq!(refused("a size that is not there", with(claim)), ArchiveError::Truncated);
}

/// Where its size is not told, an archive of zeros is bounded by its own length, and a disk by its reserve.
#[test]
fn zeros_do_not_fill_a_disk() {
    const MIB: u64 = 1 << 20;
    let mut members = good();
    members[1] = file("refit/refit", vec![0; 200 << 20]);
    let zeros = archive(&members);
    for (source, disk_bytes, most_taken, told) in [
        (
            Memory { no_ranges: true, ..Memory::of(zeros.clone()) },
            300 * MIB,
            65 * MIB,
            "it unpacks to more than",
        ),
        (Memory { no_ranges: true, ..Memory::of(zeros.clone()) }, 50 * MIB, 48 * MIB, "bytes are needed"),
        (Memory::of(zeros.clone()), 150 * MIB, 0, "bytes are needed"),
        (Memory { no_total: true, ..Memory::of(zeros.clone()) }, 300 * MIB, 0, "bytes are needed"),
    ] {
        let host = Host::new();
        let left = Arc::new(AtomicU64::new(disk_bytes));
        let disk = RecordingDisk { left: Some(left.clone()), ..RecordingDisk::default() };
        let error = host.install_on(&disk, &source).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
        let taken = disk_bytes - left.load(Ordering::Relaxed);
        assert!(taken <= most_taken, "{taken} of {disk_bytes} bytes were written: {error}");
        assert!(host.is_bare(), "{:#?}", host.tree());
    }
}

#[test]
fn the_cause_of_a_broken_header_is_told() {
    let mut tar = tar(&good());
    tar[512 + 124..512 + 136].copy_from_slice(b"not a number");
    let sum: u32 =
        (0..512).map(|at| if (148..156).contains(&at) { 32 } else { u32::from(tar[512 + at]) }).sum();
    tar[512 + 148..512 + 156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let error = refused("a size that is no number", gzip(&tar));
    let ArchiveError::Header { number: 2, why } = &error else { panic!("{error:?}") };
    assert!(why.contains("not a number") && why.chars().count() <= 100, "{why}");
}

#[test]
fn what_is_not_whole_is_refused() {
    let tar = tar(&good());
    let whole = gzip(&tar);
    for cut in [0, 1, 10, whole.len() / 2, whole.len() - 9, whole.len() - 1] {
        let error = refused(&format!("gzip cut at {cut}"), whole[..cut].to_vec());
        // The cut moves what is taken for the size at the end.
        assert!(matches!(error, ArchiveError::Gzip(_) | ArchiveError::TooLarge(_)), "{cut}: {error}");
    }
    for cut in (0..tar.len() - 1023).step_by(256).chain([tar.len() - 1, tar.len() - 512, tar.len() - 1023]) {
        let error = refused(&format!("tar cut at {cut}"), gzip(&tar[..cut]));
        assert_eq!(error, ArchiveError::Truncated, "{cut}");
    }
    let garbage = [tar.clone(), vec![0; 4096], vec![1]].concat();
    assert_eq!(refused("tar and garbage", gzip(&garbage)), ArchiveError::Trailing);
    assert_eq!(refused("two archives", gzip(&[tar.clone(), tar.clone()].concat())), ArchiveError::Trailing);
    let padded = [tar.clone(), vec![0; 10_240]].concat();
    Host::new().install(&Memory::of(gzip(&padded))).unwrap();
    let ends = |more: &[u8]| [whole.clone(), more.to_vec()].concat();
    // The end of the file still says the size of the archive.
    let size = (tar.len() as u32).to_le_bytes();
    assert_eq!(refused("gzip and garbage", ends(&size)), ArchiveError::Trailing);
    assert_eq!(refused("two gzip files", ends(&whole)), ArchiveError::Trailing);
    refused("not gzip at all", tar.clone());
    refused("nothing", vec![]);
    let mut broken = whole.clone();
    let at = broken.len() - 8;
    broken[at] ^= 1;
    assert!(matches!(refused("a wrong checksum", broken), ArchiveError::Gzip(_)));
    let mut broken = tar.clone();
    broken[512] ^= 1;
    assert!(matches!(refused("a wrong header", gzip(&broken)), ArchiveError::Header { .. }));
}

fn name() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => Just("refit"),
        2 => Just("refitctl"),
        1 => Just("refit-update"),
        2 => Just(".."),
        1 => Just("."),
        1 => Just(""),
        1 => Just("etc"),
        1 => Just("systemd"),
        1 => Just("refit.service"),
        1 => Just("tmp"),
        1 => Just("1.2.3"),
        1 => Just("\u{e9}\n\0"),
    ];
    prop::collection::vec(part, 0..6).prop_map(|parts| parts.join("/"))
}

fn member() -> impl Strategy<Value = Raw> {
    let kind = prop_oneof![
        6 => Just(b'0'), 4 => Just(b'2'), 3 => Just(b'1'), 3 => Just(b'5'), 1 => Just(b'L'), 1 => Just(b'K'),
        1 => Just(b'x'), 1 => Just(b'g'), 1 => Just(b'S'), 1 => Just(b'3'), 1 => Just(b'6'), 1 => any::<u8>(),
    ];
    let mode =
        prop_oneof![8 => Just(0o755), 1 => Just(0o4755), 1 => any::<u32>().prop_map(|mode| mode & 0o7777)];
    let body = prop_oneof![
        3 => Just(vec![]),
        3 => prop::collection::vec(any::<u8>(), 0..1500),
        2 => name().prop_map(String::into_bytes),
        1 => name().prop_map(|name| record("path", &name).into_bytes()),
        1 => name().prop_map(|name| record("linkpath", &name).into_bytes()),
    ];
    let size =
        prop_oneof![12 => Just(None), 1 => any::<u64>().prop_map(Some), 1 => (0..5000_u64).prop_map(Some)];
    (name(), kind, name(), mode, body, size).prop_map(|(name, kind, link, mode, body, size)| Raw {
        name: name.into_bytes(),
        kind,
        link: link.into_bytes(),
        mode,
        body,
        size,
    })
}

/// TarReader slipped into a good archive; at times a good one goes, the tar or the gzip file loses or changes bytes.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let slipped = prop::collection::vec((any::<prop::sample::Index>(), member()), 0..4);
    let gone = prop::option::weighted(0.2, any::<prop::sample::Index>());
    let damage = || prop::option::weighted(0.15, (any::<prop::sample::Index>(), any::<u8>(), any::<bool>()));
    (slipped, gone, damage(), damage()).prop_map(|(slipped, gone, tar_damage, gzip_damage)| {
        let mut members = good();
        if let Some(gone) = gone {
            members.remove(gone.index(members.len()));
        }
        for (at, member) in slipped {
            members.insert(at.index(members.len() + 1), member);
        }
        let damaged = |mut bytes: Vec<u8>, damage: Option<(prop::sample::Index, u8, bool)>| {
            if let Some((at, byte, cut)) = damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
                if cut {
                    bytes.truncate(at);
                }
            }
            bytes
        };
        damaged(gzip(&damaged(tar(&members), tar_damage)), gzip_damage)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: refit_testbed::sweep(400, 20_000) as u32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_an_archive_says_nothing_is_made_outside_of_its_version(archive in hostile()) {
        let host = Host::new();
        match host.install(&Memory::of(archive.clone())) {
            Err(error) => {
                prop_assert!(host.is_bare(), "{error}: {:#?}", host.tree());
                prop_assert!(error.to_string().len() < 1000);
            }
            Ok(installed) => {
                prop_assert_eq!(installed.sha256, sha256(&archive));
                let version = "var/lib/refit/versions/1.2.3/";
                let allowed = ["", "bin/", "bin/refit", "bin/refitctl", "bin/refit-update", "etc/", "etc/systemd/",
                    "etc/systemd/refit.service", "etc/systemd/refit-update.service", "etc/systemd/refit-update.timer",
                    "etc/systemd/refit-update.path", "sha256"];
                for path in host.tree() {
                    let (path, target) = path.split_once(" -> ").map_or((path.as_str(), None), |(path, target)| (path, Some(target)));
                    let above = version.starts_with(path);
                    prop_assert!(above || allowed.contains(&path.strip_prefix(version).unwrap_or("?")), "{}", path);
                    prop_assert!(target.is_none_or(|target| host.profile.binaries.iter().any(|binary| binary == target)));
                }
                for binary in &host.profile.binaries {
                    let end = fs::canonicalize(host.directory().join("bin").join(binary)).unwrap();
                    prop_assert!(end.is_file() && end.starts_with(fs::canonicalize(host.directory()).unwrap()));
                }
            }
        }
    }
}
