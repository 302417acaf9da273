//! How far an agent has followed a rotation, and which of its two identities it presents, as it is stored.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::role::{join_or, text_enum};
use crate::{Error, NameError, Phase, Result, secret_json};

const KIND: &str = "state";
const VERSION: &str = "v2";

/// The two places in which an agent keeps an identity of one role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(try_from = "String", into = "String")]
pub enum IdentitySlot {
    /// The one that it has when no rotation is under way.
    #[default]
    Current,
    /// The one of the new authority, until the rotation has come to its end.
    Replacement,
}

impl IdentitySlot {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Current, Self::Replacement];

    /// The slot as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Replacement => "replacement",
        }
    }

    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Current => Self::Replacement,
            Self::Replacement => Self::Current,
        }
    }
}

text_enum!(IdentitySlot, "place of an identity");

/// How far an agent has followed a rotation. It is written last, so it never claims more than was done.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct AgentState {
    /// The rotation, or nothing when there has been none.
    pub rotation_id: String,
    /// The phase of it that was carried out.
    pub phase: Phase,
    /// The identity to present. Nothing is ever deleted: this alone activates a replacement.
    pub presents: IdentitySlot,
}

#[derive(Serialize)]
struct Document<'a> {
    kind: &'static str,
    version: &'static str,
    metadata: Metadata,
    spec: &'a AgentState,
}

#[derive(Serialize)]
struct Metadata {
    name: &'static str,
}

impl AgentState {
    /// Reads the JSON form.
    pub fn from_json(text: &[u8]) -> Result<Self> {
        Self::read(text).map_err(Error::State)
    }

    fn read(text: &[u8]) -> Result<Self, String> {
        let document = secret_json::parse(text)?;
        secret_json::expect(&document, KIND, VERSION)?;
        let phase: Result<Phase, NameError> = secret_json::text(&document, "spec.phase")?.parse();
        let presents: Result<IdentitySlot, NameError> =
            secret_json::text(&document, "spec.presents")?.parse();
        Ok(Self {
            rotation_id: secret_json::text(&document, "spec.rotation_id")?.into(),
            phase: phase.map_err(|error| error.to_string())?,
            presents: presents.map_err(|error| error.to_string())?,
        })
    }

    /// The JSON form.
    pub fn to_json(&self) -> Result<String> {
        let metadata = Metadata { name: "state" };
        let document = Document { kind: KIND, version: VERSION, metadata, spec: self };
        serde_json::to_string(&document).map_err(|_| Error::State("it cannot be written as JSON".into()))
    }
}
