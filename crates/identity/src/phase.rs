//! The phases of a rotation of the cluster's authorities, as servers name them to agents.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::NameError;
use crate::role::{join_or, text_enum};

/// How far the replacement of the cluster's authorities has come. What is signed and trusted in each
/// phase is decided by the server's authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(try_from = "String", into = "String")]
pub enum Phase {
    /// There is one authority.
    #[default]
    Standby,
    /// A new one exists, and all agents and servers learn to trust it beside the old one.
    Init,
    /// Agents and users get identities of the new one.
    UpdateClients,
    /// Servers too: agents that do not trust the new one yet are cut off.
    UpdateServers,
    /// Agents and servers go back to identities of the old one.
    Rollback,
}

impl Phase {
    /// Every phase, for tables and tests that must miss none.
    pub const ALL: [Self; 5] =
        [Self::Standby, Self::Init, Self::UpdateClients, Self::UpdateServers, Self::Rollback];

    /// The phase as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standby => "standby",
            Self::Init => "init",
            Self::UpdateClients => "update_clients",
            Self::UpdateServers => "update_servers",
            Self::Rollback => "rollback",
        }
    }

    /// Where a rotation can go from here. The first is where it goes when nothing is wrong.
    pub fn possible(self) -> &'static [Self] {
        match self {
            Self::Standby => &[Self::Init],
            Self::Init => &[Self::UpdateClients, Self::Rollback],
            Self::UpdateClients => &[Self::UpdateServers, Self::Rollback],
            Self::UpdateServers => &[Self::Standby, Self::Rollback],
            Self::Rollback => &[Self::Standby],
        }
    }

    /// Whether the new authority signs for agents and users in this phase.
    pub fn updates_clients(self) -> bool {
        matches!(self, Self::UpdateClients | Self::UpdateServers)
    }
}

text_enum!(Phase, "phase of a rotation");
