//! Whether present `.proto` files are compatible with those of a release: every message, field and method is still
//! there, under the same number, with the same type.

use std::collections::BTreeMap;

use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};

/// What the present files break of the release's, one line each.
pub fn breaking_changes(released: &FileDescriptorSet, present: &FileDescriptorSet) -> Vec<String> {
    let (old, new) = (messages(released), messages(present));
    let mut broken = Vec::new();
    for (name, message) in &old {
        let Some(now) = new.get(name) else {
            broken.push(format!("{name} is gone"));
            continue;
        };
        for field in &message.field {
            let same_number = now.field.iter().find(|other| other.number() == field.number());
            match same_number {
                None => broken.push(format!("{name}.{} = {} is gone", field.name(), field.number())),
                Some(other) if shape(other) != shape(field) => broken.push(format!(
                    "{name}.{} = {} was {:?} and is {:?}",
                    field.name(),
                    field.number(),
                    shape(field),
                    shape(other)
                )),
                Some(_) => {}
            }
        }
    }
    let (old, new) = (methods(released), methods(present));
    for (path, was) in &old {
        match new.get(path) {
            None => broken.push(format!("{path} is gone")),
            Some(is) if is != was => broken.push(format!("{path} was {was:?} and is {is:?}")),
            Some(_) => {}
        }
    }
    broken
}

/// Everything about a field that its bytes or its readers depend on.
fn shape(field: &FieldDescriptorProto) -> (&str, i32, i32, &str, Option<i32>, bool) {
    let r#type = field.r#type.unwrap_or_default();
    let label = field.label.unwrap_or_default();
    (field.name(), r#type, label, field.type_name(), field.oneof_index, field.proto3_optional())
}

fn messages(set: &FileDescriptorSet) -> BTreeMap<String, &DescriptorProto> {
    let mut found = BTreeMap::new();
    for file in &set.file {
        for message in &file.message_type {
            collect(file.package(), message, &mut found);
        }
    }
    found
}

fn collect<'a>(scope: &str, message: &'a DescriptorProto, found: &mut BTreeMap<String, &'a DescriptorProto>) {
    let name = format!("{scope}.{}", message.name());
    for nested in &message.nested_type {
        collect(&name, nested, found);
    }
    found.insert(name, message);
}

/// What each method takes and gives, and whether as streams.
fn methods(set: &FileDescriptorSet) -> BTreeMap<String, (&str, &str, bool, bool)> {
    let of_file = set.file.iter().flat_map(|file| {
        file.service.iter().flat_map(move |service| {
            service.method.iter().map(move |method| {
                let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                let streams = (method.client_streaming(), method.server_streaming());
                (path, (method.input_type(), method.output_type(), streams.0, streams.1))
            })
        })
    });
    of_file.collect()
}
