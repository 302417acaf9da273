//! The pin of a CA: what a host that has not joined yet knows its cluster by.

use std::fmt;
use std::str::FromStr;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Certificate, NameError};

const PREFIX: &str = "sha256:";

/// The fingerprint of a CA's public key: short enough to paste, and all that a newcomer needs to tell
/// the right control plane from any other. Written as `sha256:` and 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CaPin([u8; 32]);

impl CaPin {
    /// The pin of a CA certificate, over its DER SubjectPublicKeyInfo.
    pub fn of(authority: &Certificate) -> Self {
        Self(Sha256::digest(authority.public_key()).into())
    }

    /// Whether `certificate` has the pinned key.
    pub fn matches(&self, certificate: &Certificate) -> bool {
        Self::of(certificate) == *self
    }
}

impl FromStr for CaPin {
    type Err = NameError;

    fn from_str(given: &str) -> Result<Self, NameError> {
        let digits = given.strip_prefix(PREFIX);
        let bytes = digits.and_then(|digits| HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).ok());
        bytes.and_then(|bytes| bytes.try_into().ok()).map(Self).ok_or_else(|| NameError {
            given: given.into(),
            what: "CA pin",
            expected: format!("\"{PREFIX}\" and 64 hex digits"),
        })
    }
}

impl fmt::Display for CaPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for CaPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for CaPin {
    type Error = NameError;

    fn try_from(given: String) -> Result<Self, NameError> {
        given.parse()
    }
}

impl From<CaPin> for String {
    fn from(pin: CaPin) -> Self {
        pin.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_read_back() {
        let text = format!("sha256:{}", "0f".repeat(32));
        let pin: CaPin = text.parse().unwrap();
        assert_eq!(pin.to_string(), text);
        assert_eq!(text.replace('f', "F").parse::<CaPin>().unwrap(), pin);
        for bad in
            ["", "sha256:", "sha256:0f", "sha1:0f", &text[1..], &format!("{text}0f"), &format!("{text} ")]
        {
            assert!(bad.parse::<CaPin>().is_err(), "{bad:?}");
        }
    }
}
