use bytes::Bytes;
use refit_backend::Key;
use refit_types::{Channel, ChannelName, Resource, Version};
use serde::{Deserialize, Serialize};

use crate::StorageFormat;

/// The first form of channels: what is served at `/v1/<name>/version` and `/v1/<name>/critical`, and
/// nothing else. A description has no place in it.
pub fn channels_v1() -> StorageFormat<Channel> {
    StorageFormat { prefix: prefix("/channels/default"), encode: encode_v1, decode: decode_v1 }
}

/// The present form of channels: the whole document.
pub fn channels_v2() -> StorageFormat<Channel> {
    StorageFormat { prefix: prefix("/channels/v2/default"), encode: encode_v2, decode: decode_v2 }
}

fn prefix(path: &str) -> Key {
    Key::new(path).expect("a constant that is a key")
}

#[derive(Serialize, Deserialize)]
struct Bare {
    version: Version,
    critical: YesOrNo,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum YesOrNo {
    Yes,
    No,
}

fn encode_v1(channel: &Channel) -> Bytes {
    let critical = if channel.critical { YesOrNo::Yes } else { YesOrNo::No };
    to_json(&Bare { version: channel.version.clone(), critical })
}

fn decode_v1(name: &str, value: &[u8]) -> Result<Channel, String> {
    let name: ChannelName = name.parse().map_err(|error| format!("{error}"))?;
    let bare: Bare = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    let critical = matches!(bare.critical, YesOrNo::Yes);
    Ok(Channel { name, description: String::new(), version: bare.version, critical })
}

fn encode_v2(channel: &Channel) -> Bytes {
    to_json(&Resource::Channel(channel.clone()).document(None))
}

fn decode_v2(name: &str, value: &[u8]) -> Result<Channel, String> {
    let document = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    match Resource::from_document(document) {
        Ok((Resource::Channel(channel), _)) if channel.name.as_str() == name => Ok(channel),
        Ok(_) => Err(format!("it names itself differently than {name:?}")),
        Err(faults) => Err(faults.to_string()),
    }
}

fn to_json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).expect("maps with text keys are always JSON").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_come_back_as_they_went() {
        let channel = Channel {
            name: "stable/cloud".parse().unwrap(),
            description: String::new(),
            version: "15.1.1".parse().unwrap(),
            critical: true,
        };
        assert_eq!(&encode_v1(&channel)[..], br#"{"version":"15.1.1","critical":"yes"}"#);
        for form in [channels_v1(), channels_v2()] {
            assert_eq!((form.decode)("stable/cloud", &(form.encode)(&channel)).unwrap(), channel);
            assert!((form.decode)("stable/cloud", b"{").is_err());
        }
        assert!(decode_v2("other", &encode_v2(&channel)).is_err());
    }
}
