//! The present wire breaks nothing of the releases whose peers are still in fleets.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use prost::Message;
use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, FileDescriptorSet};
use refit_released::{DESCRIPTORS_0_1, breaking_changes};
use sha2::{Digest, Sha256};

fn released() -> FileDescriptorSet {
    FileDescriptorSet::decode(DESCRIPTORS_0_1).unwrap()
}

fn present() -> FileDescriptorSet {
    FileDescriptorSet::decode(refit_proto::DESCRIPTORS).unwrap()
}

fn message<'a>(set: &'a mut FileDescriptorSet, package: &str, name: &str) -> &'a mut DescriptorProto {
    let file = set.file.iter_mut().find(|file| file.package() == package && !file.service.is_empty());
    file.unwrap().message_type.iter_mut().find(|message| message.name() == name).unwrap()
}

#[test]
fn everything_of_0_1_is_still_there_under_its_number() {
    assert_eq!(breaking_changes(&released(), &present()), Vec::<String>::new());
    let fields: usize =
        released().file.iter().flat_map(|file| &file.message_type).map(|message| message.field.len()).sum();
    assert!(fields > 150, "only {fields} fields were compared");
}

#[test]
fn every_kind_of_break_is_seen() {
    let broken = |change: fn(&mut FileDescriptorSet)| {
        let mut changed = present();
        change(&mut changed);
        breaking_changes(&released(), &changed)
    };
    let renumbered = broken(|set| message(set, "refit.agent.v1", "Rotation").field[1].number = Some(9));
    assert_eq!(renumbered, ["refit.agent.v1.Rotation.phase = 2 is gone"]);
    let retyped = broken(|set| message(set, "refit.agent.v1", "Rotation").field[1].set_type(Type::Bytes));
    assert_eq!(retyped.len(), 1, "{retyped:?}");
    let renamed = broken(|set| message(set, "refit.nodes.v1", "Node").field[0].name = Some("uuid".into()));
    assert!(renamed[0].starts_with("refit.nodes.v1.Node.host_id = 1 was"), "{renamed:?}");
    let gone = broken(|set| drop(message(set, "refit.rollouts.v1", "Group").field.pop()));
    assert!(gone.is_empty(), "the last field is newer than 0.1: {gone:?}");
    let gone = broken(|set| drop(message(set, "refit.rollouts.v1", "Group").field.remove(16)));
    assert_eq!(gone, ["refit.rollouts.v1.Group.waiting = 17 is gone"]);
    let service = broken(|set| {
        let file = set.file.iter_mut().find(|file| file.package() == "refit.rotation.v1").unwrap();
        file.service[0].method[0].server_streaming = Some(true);
        file.service[0].method.pop();
    });
    assert_eq!(service.len(), 2, "{service:?}");
}

/// Every file below a directory, by path.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> =
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    found.sort_unstable();
    found
}

/// Peers that were built with them are out there: what changes now is a new release's, not theirs.
#[test]
fn the_files_of_a_release_never_change() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/released/0.1");
    let mut hash = Sha256::new();
    for file in files(&root) {
        hash.update(file.strip_prefix(&root).unwrap().to_str().unwrap());
        hash.update(std::fs::read(&file).unwrap());
    }
    let found: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(found, "80c739df13f0445aef0d9a4120aad0d7da2c039759874a1e18b0ee1f68cfa79b");
}
