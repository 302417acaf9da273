//! The two formats of channels: bare values, and the whole document. Servers of two releases read and write both while
//! a cluster is upgraded.

use bytes::Bytes;
use refit_backend::Key;
use refit_types::{Channel, ChannelName, Version};
use serde::{Deserialize, Serialize};

use crate::{StorageFormat, documents};

/// The first format of channels: what is served at `/v1/<name>/version` and `/v1/<name>/critical`, and
/// nothing else. A description has no place in it.
pub fn channels_v1() -> StorageFormat<Channel> {
    let prefix = Key::new("/channels/default").expect("a constant that is a key");
    StorageFormat { prefix, encode: encode_v1, decode: decode_v1 }
}

/// The present format of channels: the whole document.
pub fn channels_v2() -> StorageFormat<Channel> {
    documents("/channels/v2/default")
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
    let bare = Bare { version: channel.version.clone(), critical };
    serde_json::to_vec(&bare).expect("maps with text keys are always JSON").into()
}

fn decode_v1(name: &str, value: &[u8]) -> Result<Channel, String> {
    let name = ChannelName::from_stored(name).map_err(|error| error.to_string())?;
    let bare: Bare = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    let critical = matches!(bare.critical, YesOrNo::Yes);
    Ok(Channel { name, description: String::new(), version: bare.version, critical })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_come_back_as_they_went() {
        let channel = Channel {
            name: "stable/cloud".parse().unwrap(),
            description: String::new(),
            version: "15.1.1".parse().unwrap(),
            critical: true,
        };
        assert_eq!(&encode_v1(&channel)[..], br#"{"version":"15.1.1","critical":"yes"}"#);
        for format in [channels_v1(), channels_v2()] {
            assert_eq!((format.decode)("stable/cloud", &(format.encode)(&channel)).unwrap(), channel);
            assert!((format.decode)("stable/cloud", b"{").is_err());
        }
        let v2 = channels_v2();
        assert!((v2.decode)("other", &(v2.encode)(&channel)).is_err());
    }

    #[test]
    fn a_channel_of_a_name_that_is_reserved_now_is_still_read() {
        for (format, stored) in [
            (channels_v1(), r#"{"version":"15.1.1","critical":"no"}"#),
            (
                channels_v2(),
                r#"{"kind":"channel","version":"v2","metadata":{"name":"web/stable"},"spec":{"version":"15.1.1"}}"#,
            ),
        ] {
            let channel = (format.decode)("web/stable", stored.as_bytes()).unwrap();
            assert_eq!((channel.name.as_str(), channel.version.to_string()), ("web/stable", "15.1.1".into()));
        }
    }
}
