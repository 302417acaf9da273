//! The database file: permissions, locking against other processes, and refusal of foreign or damaged files.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use refit_backend::{Backend, Error, SqliteBackend};

use crate::conformance::{bytes, key};
use crate::{child, child_store, open, place};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Opening must be refused for `reason` and leave everything as it is.
fn refused(path: &Path, reason: &str) {
    let before = fs::read(path).unwrap();
    let changed = fs::metadata(path).unwrap().modified().unwrap();
    match SqliteBackend::open(path) {
        Err(Error::NotAStore { path: named, reason: said }) => {
            assert_eq!(named, path);
            assert!(said.contains(reason), "{said:?} does not say {reason:?}");
        }
        other => panic!("{other:?}"),
    }
    assert!(fs::read(path).unwrap() == before, "the file was changed");
    assert_eq!(fs::metadata(path).unwrap().modified().unwrap(), changed);
}

#[tokio::test]
async fn nobody_else_can_read_it() {
    let (_directory, path) = place();
    let store = open(&path);
    store.put(&key("/a"), bytes("1")).await.unwrap();
    let data = path.parent().unwrap();
    assert_eq!(mode(data), 0o700);
    assert_eq!(names_in(data), ["store.db", "store.db-shm", "store.db-wal", "store.db.lock"]);
    for name in names_in(data) {
        assert_eq!(mode(&data.join(&name)), 0o600, "{name}");
    }
    drop(store);
    assert_eq!(names_in(data), ["store.db", "store.db.lock"], "closing writes the journal back");
}

#[tokio::test]
async fn it_is_named_by_its_path() {
    let (_directory, path) = place();
    assert_eq!(open(&path).describe(), format!("sqlite {}", path.display()));
}

#[tokio::test]
async fn an_empty_file_becomes_a_store() {
    let (_directory, path) = place();
    fs::create_dir(path.parent().unwrap()).unwrap();
    fs::write(&path, "").unwrap();
    let store = open(&path);
    store.put(&key("/a"), bytes("1")).await.unwrap();
    assert_eq!(mode(&path), 0o600);
}

#[tokio::test]
async fn a_creation_that_was_cut_off_is_begun_anew() {
    let (_directory, path) = place();
    fs::create_dir(path.parent().unwrap()).unwrap();
    for leftover in ["store.db.new", "store.db.new-journal", "store.db.new-wal"] {
        fs::write(path.with_file_name(leftover), "half of a store").unwrap();
    }
    open(&path).put(&key("/a"), bytes("1")).await.unwrap();
    assert_eq!(names_in(path.parent().unwrap()), ["store.db", "store.db.lock"]);
}

#[test]
fn what_is_no_store_is_refused_and_left_alone() {
    let (directory, _) = place();
    let path = directory.path().join("other.db");

    fs::write(&path, "garbage ".repeat(4000)).unwrap();
    refused(&path, "not an SQLite database");
    fs::write(&path, "SQLite format 3\0").unwrap();
    refused(&path, "cut off");

    fs::remove_file(&path).unwrap();
    let foreign = rusqlite::Connection::open(&path).unwrap();
    foreign.execute_batch("CREATE TABLE items (key, value); INSERT INTO items VALUES (1, 2)").unwrap();
    foreign.close().unwrap();
    refused(&path, "another program");

    fs::create_dir(directory.path().join("folder")).unwrap();
    let folder = SqliteBackend::open(&directory.path().join("folder"));
    assert!(matches!(folder, Err(Error::NotAStore { .. })), "{folder:?}");
}

#[test]
fn a_damaged_store_is_refused_and_left_alone() {
    let (_directory, path) = place();
    drop(open(&path));
    let whole = fs::read(&path).unwrap();

    fs::write(&path, &whole[..whole.len() - 5000]).unwrap();
    refused(&path, "cut off");

    let mut scrambled = whole.clone();
    scrambled[100..].fill(0xAA);
    fs::write(&path, scrambled).unwrap();
    refused(&path, "damaged");

    fs::write(&path, "").unwrap();
    fs::write(path.with_file_name("store.db-wal"), "what is left").unwrap();
    refused(&path, "journal");
}

#[test]
fn a_store_of_a_newer_version_is_refused_and_left_alone() {
    let (_directory, path) = place();
    drop(open(&path));
    let newer = rusqlite::Connection::open(&path).unwrap();
    newer.pragma_update(None, "user_version", 2).unwrap();
    newer.close().unwrap();
    refused(&path, "format 2 is newer");
}

#[tokio::test]
async fn one_process_has_it_once() {
    let (_directory, path) = place();
    let store = open(&path);
    assert!(matches!(SqliteBackend::open(&path), Err(Error::Locked(named)) if named == path));
    let other_handle = store.clone();
    drop(store);
    assert!(matches!(SqliteBackend::open(&path), Err(Error::Locked(_))), "a handle is left");
    drop(other_handle);
    for round in 0..5 {
        open(&path).put(&key("/round"), bytes(format!("{round}"))).await.unwrap();
    }
}

#[test]
fn another_process_is_kept_out() {
    if let Some(path) = child_store() {
        let _store = open(&path);
        println!("\nopened");
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        return;
    }
    let (_directory, path) = place();
    let mut holder = child("files::another_process_is_kept_out", &path).spawn().unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "opened"));
    assert!(matches!(SqliteBackend::open(&path), Err(Error::Locked(named)) if named == path));
    drop(holder.stdin.take());
    lines.for_each(drop);
    assert!(holder.wait().unwrap().success());
    open(&path);
}
