//! The present wire keeps every promise of the releases whose peers are still in fleets.

#![allow(clippy::unwrap_used)]

use prost::Message;
use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, FileDescriptorSet};
use refit_released::{DESCRIPTORS_0_1, broken_promises};

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
    assert_eq!(broken_promises(&released(), &present()), Vec::<String>::new());
    let fields: usize =
        released().file.iter().flat_map(|file| &file.message_type).map(|message| message.field.len()).sum();
    assert!(fields > 150, "only {fields} fields were compared");
}

#[test]
fn every_kind_of_break_is_seen() {
    let broken = |change: fn(&mut FileDescriptorSet)| {
        let mut changed = present();
        change(&mut changed);
        broken_promises(&released(), &changed)
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
