//! Reads values that a message carries twice: as an enum from current peers, or as text from peers of 0.1. Also builds
//! the one message that several places write with both. No I/O. Used by servers, agents and `refitctl`.

use crate::agent::v1::{HeartbeatRequest, RoleRequest, Rotation as AgentRotation, SignedIdentity};
use crate::cluster::v1::Status;
use crate::nodes::v1::{CreateTokenRequest, CreateTokenResponse, Node, Token};
use crate::rollouts::v1::{
    Group, GroupHost, GroupState, HostOutcome, ListGroupHostsRequest, Rollout, Schedule,
};
use crate::rotation::v1::{Lagging, LaggingKind, Rotation, RotationMode, SetPhaseRequest};
use crate::text_enum::{code_of, text_of, texts_of};
use crate::v1::{AgentRole, Edition, RotationPhase, Upgrader};

/// Gives a message a method that reads a text and its enum together.
macro_rules! reads {
    ($message:ty, $($method:ident: $value:ty = $code:ident, $text:ident;)+) => {
        impl $message {
            $(
                #[doc = concat!("What `", stringify!($code), "` says, or else `", stringify!($text), "`.")]
                pub fn $method(&self) -> String {
                    text_of::<$value>(self.$code, &self.$text)
                }
            )+
        }
    };
}

/// The same for lists.
macro_rules! reads_list {
    ($($message:ty, $method:ident: $value:ty = $codes:ident, $texts:ident;)+) => {
        $(impl $message {
            #[doc = concat!("What `", stringify!($codes), "` say, or else `", stringify!($texts), "`.")]
            pub fn $method(&self) -> Vec<String> {
                texts_of::<$value>(&self.$codes, &self.$texts)
            }
        })+
    };
}

reads!(RoleRequest, role_text: AgentRole = role_code, role;);
reads!(SignedIdentity, role_text: AgentRole = role_code, role;);
reads!(AgentRotation, phase_text: RotationPhase = phase_code, phase;);
reads!(HeartbeatRequest,
    edition_text: Edition = edition_code, edition;
    upgrader_text: Upgrader = upgrader_code, upgrader;
);
reads!(Node,
    edition_text: Edition = edition_code, edition;
    upgrader_text: Upgrader = upgrader_code, upgrader;
    rotation_phase_text: RotationPhase = rotation_phase_code, rotation_phase;
);
reads!(Status, rotation_phase_text: RotationPhase = rotation_phase_code, rotation_phase;);
reads!(SetPhaseRequest, phase_text: RotationPhase = phase_code, phase;);
reads!(Rotation,
    phase_text: RotationPhase = phase_code, phase;
    mode_text: RotationMode = mode_code, mode;
);
reads!(Lagging, kind_text: LaggingKind = kind_code, kind;);
reads!(Rollout, schedule_text: Schedule = schedule_code, schedule;);
reads!(Group, state_text: GroupState = state_code, state;);
reads!(GroupHost, outcome_text: HostOutcome = outcome_code, outcome;);
reads!(ListGroupHostsRequest, outcome_text: HostOutcome = outcome_code, outcome;);
reads_list! {
    HeartbeatRequest, role_texts: AgentRole = role_codes, roles;
    CreateTokenRequest, role_texts: AgentRole = role_codes, roles;
    CreateTokenResponse, role_texts: AgentRole = role_codes, roles;
    Token, role_texts: AgentRole = role_codes, roles;
    Node, role_texts: AgentRole = role_codes, roles;
}

impl AgentRotation {
    /// A rotation at that phase, for peers that read the enum and for those that read the text.
    pub fn at(id: impl Into<String>, phase: impl Into<String>) -> Self {
        let phase = phase.into();
        Self { id: id.into(), phase_code: code_of::<RotationPhase>(&phase), phase }
    }

    /// Whether both have the same phase, even if one comes from a peer that knows only one of the two fields.
    pub fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && self.phase_text() == other.phase_text()
    }
}

impl Group {
    /// Its state; unspecified for one that this version does not know, which is neither active nor finished.
    pub fn known_state(&self) -> GroupState {
        GroupState::try_from(code_of::<GroupState>(&self.state_text())).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotation_is_the_same_whichever_field_says_so() {
        let both = AgentRotation::at("r1", "update_clients");
        assert_eq!(
            (both.phase.as_str(), both.phase_code()),
            ("update_clients", RotationPhase::UpdateClients)
        );
        let text = AgentRotation { phase_code: 0, ..both.clone() };
        let code = AgentRotation { phase: String::new(), ..both.clone() };
        for other in [&text, &code] {
            assert!(both.is_same(other) && other.is_same(&both), "{other:?}");
        }
        assert!(!both.is_same(&AgentRotation::at("r2", "update_clients")));
        assert!(!both.is_same(&AgentRotation::at("r1", "init")));
        assert!(!both.is_same(&AgentRotation::default()));
        let newer = AgentRotation { id: "r1".into(), phase: "revoke".into(), phase_code: 99 };
        assert!(newer.is_same(&AgentRotation::at("r1", "revoke")) && !newer.is_same(&both));
    }

    #[test]
    fn a_state_that_is_not_known_is_no_other() {
        let group =
            |code: i32, text: &str| Group { state_code: code, state: text.into(), ..Default::default() };
        assert_eq!(group(GroupState::Halted.into(), "").known_state(), GroupState::Halted);
        assert_eq!(group(0, "halted").known_state(), GroupState::Halted);
        for unknown in [group(0, "resting"), group(42, "resting"), group(42, "")] {
            assert_eq!(unknown.known_state(), GroupState::Unspecified, "{unknown:?}");
        }
        assert_eq!(group(42, "resting").state_text(), "resting");
        assert_eq!(
            group(42, "halted").known_state(),
            GroupState::Halted,
            "its writer says what it is close to"
        );
    }
}
