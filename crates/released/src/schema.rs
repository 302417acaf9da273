//! What a release knows of the wire: which methods there are, and which fields each message has. Takes out of encoded
//! messages what the release does not know, as a process of it would.

use std::collections::HashMap;

use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, encode_varint, skip_field};
use prost_types::field_descriptor_proto::Type;
use prost_types::{DescriptorProto, FileDescriptorSet};

/// The methods and messages of a set of `.proto` files.
#[derive(Debug)]
pub struct Schema {
    messages: HashMap<String, HashMap<u32, Field>>,
    /// By path, like `/refit.agent.v1.AgentService/Renew`.
    methods: HashMap<String, (String, String)>,
}

/// A field: what message it holds, if it holds one.
#[derive(Debug)]
struct Field {
    message: Option<String>,
}

/// Bytes that are no message.
#[derive(Debug)]
pub struct Malformed;

impl Schema {
    /// The schema of compiled `.proto` files.
    ///
    /// # Panics
    ///
    /// If they are not that.
    pub fn of(descriptors: &[u8]) -> Self {
        let set = FileDescriptorSet::decode(descriptors).expect("compiled .proto files");
        let mut schema = Self { messages: HashMap::new(), methods: HashMap::new() };
        for file in &set.file {
            for message in &file.message_type {
                schema.add(file.package(), message);
            }
            for service in &file.service {
                for method in &service.method {
                    let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    let types = (method.input_type().to_owned(), method.output_type().to_owned());
                    schema.methods.insert(path, types);
                }
            }
        }
        schema
    }

    fn add(&mut self, scope: &str, message: &DescriptorProto) {
        let name = format!("{scope}.{}", message.name());
        for nested in &message.nested_type {
            self.add(&name, nested);
        }
        let fields = message.field.iter().map(|field| {
            let holds = (field.r#type() == Type::Message).then(|| field.type_name().to_owned());
            (field.number().unsigned_abs(), Field { message: holds })
        });
        self.messages.insert(format!(".{name}"), fields.collect());
    }

    /// The messages that a method takes and gives, if there is such a method.
    pub fn method(&self, path: &str) -> Option<(&str, &str)> {
        self.methods.get(path).map(|(input, output)| (input.as_str(), output.as_str()))
    }

    /// The message without the fields that the release does not know, and how many were taken out.
    pub fn strip(&self, message: &str, mut bytes: &[u8]) -> Result<(Vec<u8>, usize), Malformed> {
        let Some(fields) = self.messages.get(message) else { return Err(Malformed) };
        let (mut kept, mut dropped) = (Vec::with_capacity(bytes.len()), 0);
        while !bytes.is_empty() {
            let start = bytes;
            let (number, wire_type) = decode_key(&mut bytes).map_err(|_| Malformed)?;
            let key = &start[..start.len() - bytes.len()];
            match fields.get(&number) {
                Some(Field { message: Some(inner) }) if wire_type == WireType::LengthDelimited => {
                    let length = decode_varint(&mut bytes).map_err(|_| Malformed)?;
                    let length = usize::try_from(length).map_err(|_| Malformed)?;
                    let (value, rest) = bytes.split_at_checked(length).ok_or(Malformed)?;
                    let (value, inner_dropped) = self.strip(inner, value)?;
                    kept.extend_from_slice(key);
                    encode_varint(value.len() as u64, &mut kept);
                    kept.extend_from_slice(&value);
                    (bytes, dropped) = (rest, dropped + inner_dropped);
                }
                known => {
                    skip_field(wire_type, number, &mut bytes, DecodeContext::default())
                        .map_err(|_| Malformed)?;
                    match known {
                        Some(_) => kept.extend_from_slice(&start[..start.len() - bytes.len()]),
                        None => dropped += 1,
                    }
                }
            }
        }
        Ok((kept, dropped))
    }
}

#[cfg(test)]
mod tests {
    use refit_proto::agent::v1::{Authorities, Rotation};

    use super::*;
    use crate::{DESCRIPTORS_0_1, v0_1};

    #[test]
    fn what_a_release_does_not_know_is_gone_at_every_depth() {
        let schema = Schema::of(DESCRIPTORS_0_1);
        let sent = Authorities {
            tls_ca_certs: vec!["one".into(), "two".into()],
            ssh_ca_certs: Vec::new(),
            rotation: Some(Rotation::at("r1", "update_clients")),
        };
        let (kept, dropped) = schema.strip(".refit.agent.v1.Authorities", &sent.encode_to_vec()).unwrap();
        assert_eq!(dropped, 1, "the enum inside");
        let old = v0_1::agent::v1::Authorities::decode(kept.as_slice()).unwrap();
        let rotation = old.rotation.clone().unwrap();
        assert_eq!((rotation.id.as_str(), rotation.phase.as_str()), ("r1", "update_clients"));
        assert_eq!(old.encode_to_vec(), kept, "nothing else is left");
        let new = Authorities::decode(kept.as_slice()).unwrap();
        assert_eq!(new.rotation.unwrap().phase_code, 0);
        assert_eq!(new.tls_ca_certs, sent.tls_ca_certs);
    }

    #[test]
    fn labels_and_times_stay() {
        let schema = Schema::of(DESCRIPTORS_0_1);
        let sent = v0_1::agent::v1::HeartbeatRequest {
            node_labels: [("a".to_owned(), "b".to_owned())].into(),
            started_at: Some(prost_types::Timestamp { seconds: 7, nanos: 8 }),
            hint_acknowledged: 9,
            ..Default::default()
        };
        let bytes = sent.encode_to_vec();
        let (kept, dropped) = schema.strip(".refit.agent.v1.HeartbeatRequest", &bytes).unwrap();
        assert_eq!((kept, dropped), (bytes, 0));
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        let schema = Schema::of(DESCRIPTORS_0_1);
        for bytes in [&[0x1a, 0x05, 0x01][..], &[0xff], &[0x0b], &[0x1a, 0xff, 0xff, 0xff, 0xff, 0x0f]] {
            assert!(schema.strip(".refit.agent.v1.Authorities", bytes).is_err(), "{bytes:?}");
        }
        assert!(schema.strip(".refit.agent.v1.Nothing", &[]).is_err());
    }
}
